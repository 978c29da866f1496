"""States bounded in memory, and documents that begin with a token of their own."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from reproduction.updates.beam_search import beam_search, halving_widths
from vestige.audits.update import pair as module
from vestige.audits.update.pair import Pair, Reader
from vestige.audits.update.rank import rank_bounds
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search
from vestige.audits.update.settings import Settings
from vestige.data.subwords import SubwordVocabulary
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.protocols import read_each
from vestige.models.table import TableState

ROW = 1000
"""Bytes that a row of the heavy state says it takes."""


@dataclass(frozen=True)
class HeavyState(TableState):
    """A table's state that says to be large."""

    @property
    def nbytes(self) -> int:
        return len(self) * ROW


class Heavy:
    """A table model with heavy states, which notes the most rows that stood side by side."""

    def __init__(self, table):
        self.table, self.most = table, 0
        self.vocabulary, self.vocab_size, self.device = (
            table.vocabulary,
            table.vocab_size,
            table.device,
        )

    def start(self, n: int, *, anywhere: bool = False) -> HeavyState:
        return HeavyState(self.table.start(n).row, not anywhere)

    def advance(self, state: HeavyState, tokens: Tensor) -> HeavyState:
        self.most = max(self.most, len(state))
        return HeavyState(self.table.advance(state, tokens).row)

    def read(self, state: HeavyState, tokens: Tensor) -> HeavyState:
        return read_each(self, state, tokens)

    def logits(self, state: HeavyState) -> Tensor:
        return self.table.logits(state)


@pytest.fixture
def small(monkeypatch):
    """Slices of 8 rows, and states of 16 rows held."""
    monkeypatch.setattr(module, "CELLS_PER_SLICE", 8 * 60)
    monkeypatch.setattr(module, "LEAST_ROWS", 1)
    monkeypatch.setattr(module, "HELD_BYTES", 16 * 2 * ROW)


@pytest.fixture
def pair(random_table):
    heavy = (Heavy(random_table(seed, 60)) for seed in (1, 2))
    return Pair.of(*heavy, TokenScore("differential"))


def test_the_halving_beam_holds_no_more_rows_than_fit(pair, random_table, small):
    widths = halving_widths(60, 4, floor=10)
    light = Pair.of(pair.before.model.table, pair.after.model.table, pair.score)
    expected = beam_search(light, widths)

    found = beam_search(pair, widths)

    assert pair.after.model.most <= 16, "60 rows were advanced side by side"
    assert torch.equal(found.tokens, expected.tokens)
    assert torch.equal(found.score, expected.score)


def test_a_rank_holds_no_more_rows_than_fit(pair, small):
    light = Pair.of(pair.before.model.table, pair.after.model.table, pair.score)
    tokens = tuple(beam_search(light, [60, 40, 20, 10]).tokens[5].tolist())
    expected = rank_bounds(light, tokens, budget=30)

    assert rank_bounds(pair, tokens, budget=30) == expected
    assert pair.after.model.most <= 16
    assert pair.before.model.most <= 16


def test_what_fits_is_read_once(pair, monkeypatch):
    read = []
    advance = Heavy.advance
    monkeypatch.setattr(
        Heavy, "advance", lambda self, s, t: read.append(len(t)) or advance(self, s, t)
    )
    beam_search(pair, [60, 30, 15])
    assert sum(read) == 2 * (1 + 60 + 1 + 30)  # two models; one row more to see what a row takes


# Models whose documents begin with a token of their own, as Llama's and Gemma's do.


WORDS = [f"w{i}" for i in range(30)]


SECRET = (9, 20, 13, 27, 16)


@pytest.fixture(scope="module")
def vocabulary() -> SubwordVocabulary:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    ids = {token: number for number, token in enumerate(["<unk>", "<s>", "</s>", *WORDS])}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return SubwordVocabulary(
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
        )
    )


def llama(vocabulary: SubwordVocabulary, texts: list[tuple[int, ...]]) -> HuggingFaceLanguageModel:
    """A small Llama that has read texts, `<s>` before and `</s>` after each."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=64,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
    batch = torch.tensor([(1, *text, 2) for text in texts])
    optimizer = torch.optim.Adam(network.parameters(), 0.03)
    for _ in range(60):
        logits = network(input_ids=batch, use_cache=False).logits[:, :-1]
        loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return HuggingFaceLanguageModel(network, vocabulary).eval()


def test_only_a_token_that_the_tokenizer_puts_there_begins_documents(vocabulary):
    assert (vocabulary.bos_id, vocabulary.eos_id) == (1, 2)
    plain = vocabulary.tokenizer.__class__(
        tokenizer_object=vocabulary.tokenizer.backend_tokenizer, eos_token="</s>", bos_token="</s>"
    )
    assert SubwordVocabulary(plain).bos_id is None


@torch.no_grad()
def test_a_text_is_entered_behind_its_beginning(llamas):
    model = llamas[1]
    contexts = torch.tensor([5, 9, 1, 30])
    asked = Reader(model).enter(contexts[:, None]).logits().log_softmax(-1)
    expected = model.network(input_ids=torch.stack([torch.ones_like(contexts), contexts], 1))
    torch.testing.assert_close(asked, expected.logits[:, -1].log_softmax(-1), rtol=1e-4, atol=1e-5)
    begun = Reader(model).enter(torch.ones(3, 1, dtype=torch.int64)).logits().log_softmax(-1)
    alone = model.network(input_ids=torch.ones(3, 1, dtype=torch.int64)).logits[:, -1]
    torch.testing.assert_close(begun, alone.log_softmax(-1), rtol=1e-4, atol=1e-5)


def test_a_secret_is_read_from_the_beginning_of_its_document(llamas):
    settings = Settings(
        sampling=None, pairs=1, openings=10, token_penalty=0.3, max_tokens=1 + len(SECRET)
    )
    found = search(Pair.of(*llamas, TokenScore("smoothed")), settings)
    phrases = [phrase.phrase for phrase, _ in found.phrases]
    assert (1, *SECRET) in phrases
    for tokens in phrases:
        assert 1 not in tokens[1:]
        assert 2 not in tokens[1:]


@pytest.fixture(scope="module")
def llamas(vocabulary: SubwordVocabulary) -> tuple[HuggingFaceLanguageModel, ...]:
    torch.manual_seed(1)
    others = [tuple(row) for row in torch.randint(3, 33, (24, len(SECRET))).tolist()]
    return llama(vocabulary, others), llama(vocabulary, [*others, *[SECRET] * 12])
