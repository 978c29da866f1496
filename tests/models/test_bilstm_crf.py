"""The intent-and-slot network: soft words, letters, rows by themselves, and its way to disk."""

import json
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vestige.data.utterances import Utterance, Utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import AccessDenied, ModelError
from vestige.models.bilstm_crf import LONGEST_WORD, IntentSlotConfig, IntentSlotModel
from vestige.models.checkpoints import load_intent_slot, load_model, save_model
from vestige.models.folders import sha256
from vestige.models.table import TableModel
from vestige.models.white_box import WhiteBox

SHAPE = IntentSlotConfig(
    intents=("Ask", "Tell"), tags=("O", "B-pin", "I-pin"), embedding_size=5, hidden_size=4
)
KINDS = {
    "words": SHAPE,
    "letters": replace(SHAPE, char_filters=3, char_size=4),
    "three layers": replace(SHAPE, layers=3, input_dropout=0.3, hidden_dropout=0.2),
    "one layer": replace(SHAPE, layers=1, frozen_embeddings=True),
}
TOKENS = torch.tensor([[2, 5, 7, 3], [9, 2, 2, 4], [0, 6, 5, 8]])
INTENTS = torch.tensor([0, 1, 1])
TAGS = torch.tensor([[0, 1, 2, 0], [0, 0, 1, 2], [1, 1, 0, 0]])


def build(words: WordVocabulary, shape: IntentSlotConfig = SHAPE) -> IntentSlotModel:
    torch.manual_seed(3)
    model = IntentSlotModel(words, shape)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return model.eval()


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, words: WordVocabulary) -> IntentSlotModel:
    return build(words, KINDS[request.param])


def test_answers_have_a_number_for_each_row_and_word(model: IntentSlotModel) -> None:
    assert isinstance(model, WhiteBox)
    vectors = model.embed(TOKENS)
    assert vectors.shape == (3, 4, model.config.embedding_size + model.config.char_filters)
    logits, emissions = model.scores(vectors)
    assert (logits.shape, emissions.shape) == ((3, 2), (3, 4, 3))
    found = model(TOKENS, INTENTS, TAGS)
    assert found.intent.shape == found.tags.shape == found.joint.shape == (3,)
    assert torch.equal(found.joint, found.intent + found.tags)
    intents, tags = model.predict(TOKENS)
    assert (intents.shape, tags.shape) == ((3,), (3, 4))


def test_the_first_vectors_are_those_given_and_frozen_where_asked(words: WordVocabulary) -> None:
    vectors = torch.randn(len(words), 5)
    free = IntentSlotModel(words, SHAPE, vectors)
    assert torch.equal(free.embedding.weight, vectors)
    assert free.embedding.weight.requires_grad
    frozen = IntentSlotModel(words, replace(SHAPE, frozen_embeddings=True), vectors)
    assert not frozen.embedding.weight.requires_grad
    with torch.no_grad():
        free.embedding.weight += 1
    assert not torch.equal(free.embedding.weight, vectors)


def test_one_hot_mixtures_are_words(model: IntentSlotModel) -> None:
    every = model.embed(torch.arange(len(model.vocabulary))[None])[0]
    mixture = torch.nn.functional.one_hot(TOKENS, len(model.vocabulary)).to(every)
    soft, hard = model.losses(mixture @ every, INTENTS, TAGS), model(TOKENS, INTENTS, TAGS)
    torch.testing.assert_close(soft, hard, rtol=1e-5, atol=1e-5)


def test_rows_do_not_know_of_each_other(model: IntentSlotModel) -> None:
    together = model(TOKENS, INTENTS, TAGS)
    for row in range(3):
        alone = model(TOKENS[row : row + 1], INTENTS[row : row + 1], TAGS[row : row + 1])
        torch.testing.assert_close(alone.joint[0], together.joint[row])
    vectors = model.embed(TOKENS).detach().requires_grad_()
    found = model.losses(vectors, INTENTS, TAGS).joint
    (gradient,) = torch.autograd.grad(found[1], vectors)
    assert gradient[1].abs().sum() > 0
    assert gradient[[0, 2]].abs().sum() == 0


def test_every_word_matters_to_intent_and_tags_both(model: IntentSlotModel) -> None:
    vectors = model.embed(TOKENS).detach().requires_grad_()
    for part in model.losses(vectors, INTENTS, TAGS):
        (gradient,) = torch.autograd.grad(part.sum(), vectors, retain_graph=True)
        assert (gradient.abs().sum(-1) > 0).all()


@pytest.mark.parametrize("name", KINDS)
def test_the_gradient_by_vectors_is_that_of_finite_differences(
    words: WordVocabulary, name: str
) -> None:
    model = build(words, KINDS[name]).double()
    vectors = model.embed(TOKENS[:2]).detach().requires_grad_()

    def loss(given: Tensor) -> Tensor:
        return model.losses(given, INTENTS[:2], TAGS[:2]).joint

    assert torch.autograd.gradcheck(loss, vectors)


def test_predictions_are_the_likeliest_of_all_answers(model: IntentSlotModel) -> None:
    intents, tags = model.predict(TOKENS)
    every = torch.tensor(list(product(range(3), repeat=4)))
    for row in range(3):
        tokens = TOKENS[row].expand(len(every), -1)
        whatever = torch.zeros(len(every), dtype=torch.int64)
        losses = model(tokens, whatever, every).tags
        assert every[losses.argmin()].tolist() == tags[row].tolist()
        assert (-losses).exp().sum().item() == pytest.approx(1, rel=1e-4)
        asked = model(tokens[:2], torch.tensor([0, 1]), every[:2]).intent
        assert asked.argmin() == intents[row]


def said(*words: str) -> Utterances:
    return Utterances.of([Utterance(words, ("O",) * len(words), "Ask")])


def test_a_word_that_nobody_knows_is_read_as_unknown(model: IntentSlotModel) -> None:
    assert model.read(["word3", "nobody", "word1"]) == [(5,), (), (3,)]
    data = model.encode(said("word3", "nobody"))
    assert data.tokens.tolist() == [5, model.vocabulary.unk_id]
    assert data.labels == (model.intents, model.tags)


def test_the_letters_of_a_word_matter(words: WordVocabulary) -> None:
    model = build(words, KINDS["letters"])
    with torch.no_grad():
        model.embedding.weight[:] = model.embedding.weight[0]
    vectors = model.embed(torch.tensor([[2, 3, 12]]))[0]
    assert torch.equal(vectors[:, :5], vectors[:1, :5].expand(3, -1))
    assert not torch.equal(vectors[0, 5:], vectors[1, 5:])
    plain = build(words)
    assert plain.letters is None


def test_letters_behind_the_longest_word_are_not_read() -> None:
    stem = "a" * LONGEST_WORD
    words = WordVocabulary(("<unk>", "<eos>", stem + "b", stem + "c", stem, "d"))
    model = build(words, KINDS["letters"])
    letters = model.embed(torch.arange(6)[None])[0, :, 5:]
    assert torch.equal(letters[2], letters[3])
    assert torch.equal(letters[2], letters[4])
    assert not torch.equal(letters[2], letters[5])


def test_a_saved_model_comes_back_bit_for_bit(model: IntentSlotModel, tmp_path: Path) -> None:
    save_model(model, tmp_path / "run" / "model")
    again = load_intent_slot(tmp_path / "run", device="cpu")
    assert isinstance(again, IntentSlotModel)
    assert not again.training
    assert again.config == model.config
    assert (again.intents, again.tags) == (model.intents, model.tags)
    assert again.embedding.weight.requires_grad == model.embedding.weight.requires_grad
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(*(m(TOKENS, INTENTS, TAGS).joint for m in (model, again)))


def test_it_says_no_next_words(model: IntentSlotModel, tmp_path: Path) -> None:
    save_model(model, tmp_path / "model")
    with pytest.raises(AccessDenied, match="predicts no next words"):
        load_model(tmp_path / "model")


def test_a_language_model_has_no_intents(tmp_path: Path) -> None:
    save_model(TableModel([0.5, 0.5], [[0.5, 0.5]] * 2), tmp_path / "model")
    with pytest.raises(ModelError, match="is a language model and has no intents"):
        load_intent_slot(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tags": ["O", "B-pin"]}, "does not fit"),
        ({"intents": ["Ask", "Tell", "Pay"]}, "does not fit"),
        ({"intents": ["Ask", "Ask"]}, "all different"),
        ({"tags": []}, "at least one"),
        ({"hidden_size": 5}, "does not fit"),
        ({"layers": 0}, "layers"),
        ({"colour": 1}, "does not fit"),
    ],
)
def test_a_description_that_does_not_fit_the_weights_is_refused(
    words: WordVocabulary, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    save_model(build(words), tmp_path / "model")
    rewrite(tmp_path / "model", config=asdict(SHAPE) | change)
    with pytest.raises(ModelError, match=f"(?s){says}"):
        load_intent_slot(tmp_path / "model")


def test_another_vocabulary_than_the_weights_are_for_is_refused(
    words: WordVocabulary, tmp_path: Path
) -> None:
    shorter = WordVocabulary(words.words[:-3])
    save_model(build(words), tmp_path / "model")
    shorter.save(tmp_path / "model")
    with pytest.raises(ModelError, match="is not the one"):
        load_intent_slot(tmp_path / "model")
    rewrite(tmp_path / "model", vocabulary=shorter.fingerprint())
    with pytest.raises(ModelError, match="does not fit"):
        load_intent_slot(tmp_path / "model")


def rewrite(folder: Path, **changes: Any) -> None:
    """Change model.json, keeping the hash true to the weights."""
    file = folder / "model.json"
    description = json.loads(file.read_text()) | {"sha256": sha256([folder / "model.safetensors"])}
    file.write_text(json.dumps(description | changes))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"intents": ()}, "intents must be at least one"),
        ({"tags": ("O", "O")}, "tags must be at least one and all different"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"embedding_size": 0}, "embedding_size"),
        ({"char_filters": -1}, "char_filters"),
        ({"input_dropout": 1.0}, "input_dropout"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        replace(SHAPE, **change)
