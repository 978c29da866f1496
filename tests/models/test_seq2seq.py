"""An encoder-decoder against its equations, one step at a time, and as a `NextToken`."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import AccessDenied, ModelError
from vestige.models.checkpoints import (
    load_intent_slot,
    load_model,
    load_seq2seq,
    save_model,
)
from vestige.models.protocols import NextToken, TwoParts
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.seq2seq import Decoder, Seq2SeqConfig, Seq2SeqModel

SOURCES = WordVocabulary(("<unk>", "<eos>", *(f"s{i}" for i in range(9))))
TARGETS = WordVocabulary(("<unk>", "<eos>", *(f"t{i}" for i in range(14))))
KINDS = [("lstm", True), ("lstm", False), ("gru", True), ("gru", False)]


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind[0]}{'+attention' if kind[1] else ''}")
def model(request: pytest.FixtureRequest) -> Seq2SeqModel:
    return made(*request.param)


def made(cell: Any = "lstm", attention: bool = True, **shape: Any) -> Seq2SeqModel:
    sizes = {"embedding_size": 5, "hidden_size": 7, "dropout_in": 0.3, "initial_range": 0.6} | shape
    torch.manual_seed(1)
    return Seq2SeqModel(
        SOURCES, TARGETS, Seq2SeqConfig(cell=cell, attention=attention, **sizes)
    ).eval()


def ids(rows: int, length: int, top: int, seed: int = 0) -> Tensor:
    return torch.randint(0, top, (rows, length), generator=torch.Generator().manual_seed(seed))


def cell_step(
    weights: dict[str, Tensor], inner: Tensor, state: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """One step of an LSTM or GRU for one row."""
    given = weights["weight_ih_l0"] @ inner + weights["bias_ih_l0"]
    held = weights["weight_hh_l0"] @ state[0] + weights["bias_hh_l0"]
    if len(state) == 2:
        i, f, g, o = (given + held).chunk(4)
        cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * cell.tanh(), cell
    (r, z, n), (own_r, own_z, own_n) = given.chunk(3), held.chunk(3)
    keep, new = (z + own_z).sigmoid(), (n + (r + own_r).sigmoid() * own_n).tanh()
    return ((1 - keep) * new + keep * state[0],)


@torch.no_grad()
def naive(model: Seq2SeqModel, source: Tensor, target: Tensor) -> Tensor:
    """Logits after each token of one target, a step at a time, by Luong's equations."""
    size = model.config.hidden_size
    state = (torch.zeros(size),) * (2 if model.config.cell == "lstm" else 1)
    encoder, decoder = (dict(part.named_parameters()) for part in (model.encoder, model.decoder))
    said, logits = [], []
    for token in source:
        state = cell_step(encoder, model.source_embedding.weight[token], state)
        said.append(state[0])
    for token in target:
        state = cell_step(decoder, model.embedding.weight[token], state)
        hidden = state[0]
        if model.config.attention:
            scores = torch.stack([(model.score.weight @ hidden) @ memory for memory in said])
            shares = scores.exp() / scores.exp().sum()
            context = sum(share * memory for share, memory in zip(shares, said, strict=True))
            hidden = torch.tanh(model.mix.weight @ torch.cat([context, hidden]))
        logits.append(model.head.weight @ hidden + model.head.bias)
    return torch.stack(logits)


def text(tokens: Tensor) -> str:
    return SOURCES.decode(tokens.tolist())


def test_a_batch_equals_the_equations_one_step_at_a_time(model: Seq2SeqModel) -> None:
    sources, targets = ids(4, 6, len(SOURCES)), ids(4, 5, len(TARGETS), 1)
    found = model(sources, targets)
    for row in range(4):
        expected = naive(model, sources[row], targets[row])
        torch.testing.assert_close(found[row], expected, rtol=1e-4, atol=1e-5)


def test_forward_is_the_head_after_the_body(model: Seq2SeqModel) -> None:
    sources, targets = ids(3, 4, len(SOURCES)), ids(3, 5, len(TARGETS), 1)
    hidden, _ = model.reading(sources).body(targets)
    assert hidden.shape == (3, 5, 7)
    torch.testing.assert_close(model.predict(hidden), model(sources, targets))
    torch.testing.assert_close(model.head(hidden), model(sources, targets))


def test_given_its_source_it_is_a_next_token_model(model: Seq2SeqModel) -> None:
    given = model.given("s1 s2")
    assert isinstance(given, NextToken)
    assert isinstance(given, TwoParts)
    assert not given.training
    assert (given.vocab_size, given.vocabulary) == (len(TARGETS), TARGETS)
    assert given.first_token == TARGETS.eos_id


def test_given_a_source_it_answers_as_the_batch_does(model: Seq2SeqModel) -> None:
    sources, targets = ids(4, 6, len(SOURCES)), ids(4, 5, len(TARGETS), 1)
    sources[:, -1], targets[:, 0] = SOURCES.eos_id, TARGETS.eos_id
    expected = model(sources, targets).log_softmax(-1)
    for row in range(4):
        given = model.given(text(sources[row, :-1]))
        state = given.start(3)
        for place in range(5):
            answer = given.log_probs(state)
            assert answer.shape == (3, len(TARGETS))
            assert not answer.requires_grad
            torch.testing.assert_close(answer[1], expected[row, place], rtol=1e-4, atol=1e-5)
            if place < 4:
                state = given.advance(state, targets[row, place + 1].repeat(3))


def test_rows_of_one_source_may_say_different_things(model: Seq2SeqModel) -> None:
    source, targets = ids(1, 4, len(SOURCES)), ids(5, 3, len(TARGETS), 2)
    expected = model(source.repeat(5, 1), targets)
    given = model.reading(source)
    torch.testing.assert_close(given(targets)[0], expected, rtol=1e-4, atol=1e-5)
    first, state = given(targets[:, :1])
    second, _ = given(targets[:, 1:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), expected, rtol=1e-4, atol=1e-5)
    state = given.start(5, anywhere=True)
    for column in targets.T:
        state = given.advance(state, column)
    torch.testing.assert_close(given.logits(state), expected[:, -1], rtol=1e-4, atol=1e-5)
    chosen = torch.tensor([4, 0, 0])
    torch.testing.assert_close(given.logits(state[chosen]), given.logits(state)[chosen])


def test_nothing_can_be_asked_before_the_first_token(model: Seq2SeqModel) -> None:
    given = model.given("s1")
    assert given.start(2).has_read
    state = given.start(2, anywhere=True)
    assert not state.has_read
    assert len(state) == 2
    with pytest.raises(ValueError, match="at least one token"):
        given.log_probs(state)


def test_an_empty_source_is_its_end(model: Seq2SeqModel) -> None:
    given = model.given("")
    expected = model(torch.tensor([[SOURCES.eos_id]]), torch.tensor([[TARGETS.eos_id]]))
    torch.testing.assert_close(given.logits(given.start(1)), expected[0], rtol=1e-4, atol=1e-5)


def test_what_stands_behind_a_target_changes_nothing_before_it(model: Seq2SeqModel) -> None:
    sources, targets = ids(3, 4, len(SOURCES)), ids(3, 8, len(TARGETS), 1)
    whole = model(sources, targets)[:, :5]
    torch.testing.assert_close(model(sources, targets[:, :5]), whole, rtol=1e-4, atol=1e-5)


def test_only_attention_looks_at_all_that_the_encoder_said() -> None:
    with_it, without = made(), made(attention=False)
    assert {"score", "mix"} <= {name for name, _ in with_it.named_children()}
    assert not {"score", "mix"} & {name for name, _ in without.named_children()}
    assert without.given("s1 s2").start(1).memory is None


def test_only_training_mode_drops_out_and_given_never_does(model: Seq2SeqModel) -> None:
    sources, targets = ids(2, 4, len(SOURCES)), ids(2, 5, len(TARGETS), 1)
    expected = model(sources, targets)
    before = model.given("s1 s2").logits(model.given("s1 s2").start(1))
    model.train()
    assert not torch.equal(model(sources, targets), expected)
    given = model.given("s1 s2")
    torch.testing.assert_close(given.logits(given.start(1)), before)
    torch.testing.assert_close(given(targets)[0], given(targets)[0])
    trained = model.reading(sources)
    assert trained.training
    model(sources, targets).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_several_sources_need_a_row_each(model: Seq2SeqModel) -> None:
    given = model.reading(ids(3, 4, len(SOURCES)))
    assert isinstance(given, Decoder)
    with pytest.raises(ValueError, match="a row for each of 3 sources, got 1"):
        given.start(3)
    with pytest.raises(ValueError, match="a row for each of 3 sources, got 2"):
        given(ids(2, 2, len(TARGETS)))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cell": "rnn"}, "cell must be one of"),
        ({"hidden_size": 0}, "hidden_size must be a whole number"),
        ({"dropout_out": 1.0}, "dropout_out must lie in"),
        ({"initial_range": -1}, "initial_range must be positive"),
    ],
)
def test_a_shape_that_makes_no_sense_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        replace(Seq2SeqConfig(), **changes)


def test_a_saved_model_comes_back_bit_for_bit_with_both_vocabularies(
    model: Seq2SeqModel, tmp_path: Path
) -> None:
    save_model(model, tmp_path / "run" / "model")
    again = load_seq2seq(tmp_path / "run", device="cpu")
    assert not again.training
    assert again.config == model.config
    assert (again.source_vocabulary, again.vocabulary) == (SOURCES, TARGETS)
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    answers = [m.given("s1 s2").logits(m.given("s1 s2").start(2)) for m in (model, again)]
    assert torch.equal(*answers)


def test_the_two_languages_may_be_read_in_pieces_of_words(tmp_path: Path) -> None:
    french, english = (
        SubwordVocabulary.train_bpe(Corpus.from_texts([text] * 4), size=270)
        for text in ("le renard brun saute", "the brown fox jumps")
    )
    model = Seq2SeqModel(french, english, Seq2SeqConfig(embedding_size=4, hidden_size=4)).eval()
    save_model(model, tmp_path / "model")
    again = load_seq2seq(tmp_path / "model", device="cpu")
    assert again.source_vocabulary.fingerprint() == french.fingerprint()
    assert again.vocabulary.fingerprint() == english.fingerprint()


def test_a_model_of_another_kind_is_told_apart(tmp_path: Path) -> None:
    save_model(made(), tmp_path / "pairs")
    shape = LSTMConfig(layers=1, embedding_size=4, hidden_size=4)
    save_model(LSTMLanguageModel(TARGETS, shape), tmp_path / "lstm")
    with pytest.raises(AccessDenied, match="needs a source"):
        load_model(tmp_path / "pairs", device="cpu")
    with pytest.raises(ModelError, match="a sequence-to-sequence model and has no intents"):
        load_intent_slot(tmp_path / "pairs", device="cpu")
    with pytest.raises(ModelError, match="is a language model and takes no source"):
        load_seq2seq(tmp_path / "lstm", device="cpu")
    with pytest.raises(ModelError, match="does not exist"):
        load_seq2seq(tmp_path / "none", device="cpu")


def broken(folder: Path, name: str) -> None:
    if name == "no vocabulary of sources":
        (folder / "source" / "vocabulary.json").unlink()
    elif name == "another vocabulary of sources":
        TARGETS.save(folder / "source")
    else:
        description = json.loads((folder / "model.json").read_text())
        description.pop("source")
        (folder / "model.json").write_text(json.dumps(description))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no vocabulary of sources", "the vocabulary in .*source cannot be read"),
        ("another vocabulary of sources", "is not the one in model.json"),
        ("no word of sources", "is not the one in model.json"),
    ],
)
def test_a_broken_vocabulary_of_sources_is_refused(tmp_path: Path, name: str, says: str) -> None:
    save_model(made(), tmp_path / "pairs")
    broken(tmp_path / "pairs", name)
    with pytest.raises(ModelError, match=says):
        load_seq2seq(tmp_path / "pairs", device="cpu")
