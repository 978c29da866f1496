"""Memory limits of model states, and documents that begin with a special token."""

from dataclasses import dataclass

import pytest
import torch

from reproduction.updates.searches import beam_search, halving_widths
from tests.audits.small_llama import llama, train
from vestige.audits.update import pair as module
from vestige.audits.update.pair import Pair, Reader
from vestige.audits.update.rank import rank_bounds
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search
from vestige.audits.update.settings import Settings
from vestige.data.subwords import SubwordVocabulary
from vestige.models.protocols import read_each
from vestige.models.table import TableState

ROW, SIZE = 1000, 60
"""Reported bytes of a row of a heavy state, and words of the tables."""


@dataclass(frozen=True)
class HeavyState(TableState):
    """A state that reports a large size."""

    @property
    def nbytes(self):
        return len(self) * ROW


class Heavy:
    """A table with heavy states that records the rows of each batch."""

    def __init__(self, table):
        self.table, self.advanced = table, []

    def __getattr__(self, name):
        return getattr(self.table, name)

    def start(self, n, *, anywhere=False):
        return HeavyState(self.table.start(n).row, not anywhere)

    def advance(self, state, tokens):
        self.advanced.append(len(tokens))
        return HeavyState(self.table.advance(state, tokens).row)

    def read(self, state, tokens):
        return read_each(self, state, tokens)


@pytest.fixture
def pairs(random_table):
    """A pair of tables, and the same with heavy states."""
    tables = [random_table(seed, SIZE) for seed in (1, 2)]
    score = TokenScore("differential")
    return Pair.of(*tables, score), Pair.of(*map(Heavy, tables), score)


def test_batches_hold_only_rows_that_fit_in_memory(pairs, monkeypatch):
    light, heavy = pairs
    widths = halving_widths(SIZE, 4, floor=10)
    beam = beam_search(light, widths)
    tokens = tuple(beam.tokens[5].tolist())
    bounds = rank_bounds(light, tokens, budget=30)
    monkeypatch.setattr(module, "CELLS_PER_SLICE", 8 * SIZE)
    monkeypatch.setattr(module, "LEAST_ROWS", 1)
    monkeypatch.setattr(module, "HELD_BYTES", 16 * 2 * ROW)
    result = beam_search(heavy, widths)
    assert torch.equal(result.tokens, beam.tokens)
    assert torch.equal(result.score, beam.score)
    assert rank_bounds(heavy, tokens, budget=30) == bounds
    for reader in (heavy.before, heavy.after):
        assert max(reader.model.advanced) <= 16, "60 rows were advanced side by side"


def test_states_that_fit_are_read_once(pairs):
    _, heavy = pairs
    beam_search(heavy, [SIZE, 30, 15])
    for reader in (heavy.before, heavy.after):  # the first row measures the size of a row
        assert sum(reader.model.advanced) == 1 + SIZE + 1 + 30


# Models whose documents begin with a special token, like Llama and Gemma.

SECRET, BEGIN, END = (9, 20, 13, 27, 16), 1, 2


@pytest.fixture(scope="module")
def vocabulary():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    words = ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(30))]
    ids = {token: number for number, token in enumerate(words)}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BEGIN)])
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return SubwordVocabulary(PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special))


@pytest.fixture(scope="module")
def llamas(vocabulary):
    """Models that were trained without and with a secret, `<s>` before and `</s>` after texts."""
    torch.manual_seed(1)
    others = torch.randint(3, 33, (24, len(SECRET))).tolist()
    models = []
    for ids in (others, [*others, *[SECRET] * 12]):
        model = llama(vocabulary, bos_token_id=BEGIN, eos_token_id=END)
        texts = [vocabulary.decode(row) for row in ids]
        models.append(train(model, texts, rate=0.03, batch=len(texts)))
    return models


def test_documents_begin_only_with_a_token_that_the_tokenizer_adds(vocabulary):
    assert (vocabulary.bos_id, vocabulary.eos_id) == (BEGIN, END)
    tokenizer = vocabulary.tokenizer
    plain = type(tokenizer)(
        tokenizer_object=tokenizer.backend_tokenizer, eos_token="</s>", bos_token="</s>"
    )
    assert SubwordVocabulary(plain).bos_id is None


@torch.no_grad()
@pytest.mark.parametrize("contexts", [[[5], [9], [1], [30]], [[BEGIN]] * 3])
def test_start_anywhere_puts_the_first_token_of_documents_before_the_text(llamas, contexts):
    model, tokens = llamas[1], torch.tensor(contexts)
    begins = bool((tokens == BEGIN).all())
    input_ids = tokens if begins else torch.cat([torch.full_like(tokens, BEGIN), tokens], 1)
    expected = model.network(input_ids=input_ids).logits[:, -1].log_softmax(-1)
    result = Reader(model).start_anywhere(tokens).logits().log_softmax(-1)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def test_a_secret_that_begins_a_document_is_a_phrase(llamas):
    settings = Settings(
        sampling=None, pairs=1, openings=10, token_penalty=0.3, max_tokens=1 + len(SECRET)
    )
    result = search(Pair.of(*llamas, TokenScore("smoothed")), settings)
    phrases = [phrase.phrase for phrase, _ in result.phrases]
    assert (BEGIN, *SECRET) in phrases
    assert not any({BEGIN, END} & set(tokens[1:]) for tokens in phrases)
