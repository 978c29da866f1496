"""Every word of every target is ranked where a decoder that is asked a word at a time ranks it."""

from typing import Any

import numpy as np
import pytest
import torch

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedPairs, encode_pairs
from vestige.data.vocabulary import WordVocabulary
from vestige.models.pair_ranks import pair_ranks
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel

SOURCES = WordVocabulary(("<unk>", "<eos>", *(f"s{i}" for i in range(9))))
TARGETS = WordVocabulary(("<unk>", "<eos>", *(f"t{i}" for i in range(14))))


def made(cell: Any, attention: bool) -> Seq2SeqModel:
    torch.manual_seed(1)
    config = Seq2SeqConfig(
        cell=cell, attention=attention, embedding_size=5, hidden_size=7, initial_range=0.6
    )
    return Seq2SeqModel(SOURCES, TARGETS, config).eval()


def corpus(count: int = 30, *, seed: int = 0) -> Corpus:
    generator = np.random.default_rng(seed)

    def text(letter: str, top: int) -> str:
        return " ".join(f"{letter}{i}" for i in generator.integers(0, top, generator.integers(5)))

    targets = [text("t", 14) for _ in range(count)]
    return Corpus.from_texts(targets, sources=[text("s", 9) for _ in range(count)])


@pytest.fixture
def pairs() -> EncodedPairs:
    return encode_pairs(corpus(), SOURCES, TARGETS)


@pytest.mark.parametrize(("cell", "attention"), [("lstm", True), ("gru", False)])
@pytest.mark.parametrize("rows", [64, 2])
def test_batches_give_what_single_words_give(
    pairs: EncodedPairs, cell: str, attention: bool, rows: int
) -> None:
    model = made(cell, attention)
    found = pair_ranks(model, pairs, log_probs=True, rows_at_once=rows)
    ranks, log_probs = [], []
    for text, source in enumerate(corpus().sources or ()):
        given = model.given(source)
        state = given.start(1)
        for token in pairs.targets.document(text)[:-1].tolist():
            known = given.log_probs(state)[0]
            order = torch.sort(known, descending=True, stable=True).indices
            ranks.append(order.tolist().index(token) + 1)
            log_probs.append(float(known[token]))
            state = given.advance(state, torch.tensor([token]))
    assert found.ranks.tolist() == ranks
    np.testing.assert_allclose(found.log_probs, log_probs, rtol=1e-4, atol=1e-5)


def test_a_part_is_ranked_as_in_the_whole(pairs: EncodedPairs) -> None:
    model = made("lstm", True)
    whole = pair_ranks(model, pairs)
    where = pairs.targets.offsets[whole.texts] + whole.positions
    part = pair_ranks(model, pairs, where=where[5:20:3])
    assert part.ranks.tolist() == whole.ranks[5:20:3].tolist()
    assert part.log_probs is None


def test_a_model_in_training_is_refused(pairs: EncodedPairs) -> None:
    with pytest.raises(ValueError, match="evaluation mode"):
        pair_ranks(made("lstm", True).train(), pairs)


def test_ids_of_another_vocabulary_are_refused(pairs: EncodedPairs) -> None:
    model = made("lstm", True)
    model.vocab_size = 11
    with pytest.raises(ValueError, match=r"targets must hold ids below 11"):
        pair_ranks(model, pairs)
