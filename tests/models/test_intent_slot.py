"""Models of intents and slots: our own network and pretrained encoders with two heads.

What breaks their folders is in `test_refused_models.py`; that they are saved whole in
`test_saved_models.py`.
"""

from dataclasses import replace
from itertools import product

import pytest
import torch

from tests.models.conftest import INTENT_SLOT, intent_slot_model
from vestige.data.utterances import Utterance, Utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.models.bilstm_crf import LONGEST_WORD, IntentSlotModel
from vestige.models.white_box import WhiteBox

KINDS = {
    "words": INTENT_SLOT,
    "letters": replace(INTENT_SLOT, char_filters=3, char_size=4),
    "three layers": replace(INTENT_SLOT, layers=3, input_dropout=0.3, hidden_dropout=0.2),
    "one layer": replace(INTENT_SLOT, layers=1, frozen_embeddings=True),
}
TOKENS = torch.tensor([[2, 5, 7, 3], [9, 2, 2, 4], [0, 6, 5, 8]])
INTENTS = torch.tensor([0, 1, 1])
TAGS = torch.tensor([[0, 1, 2, 0], [0, 0, 1, 2], [1, 1, 0, 0]])


@pytest.fixture(params=KINDS)
def model(request, words):
    return intent_slot_model(words, KINDS[request.param])


def test_answers_have_a_number_for_each_row_and_word(model):
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


def test_the_first_vectors_are_those_given_and_frozen_where_asked(words):
    vectors = torch.randn(len(words), 5)
    free = IntentSlotModel(words, INTENT_SLOT, vectors)
    assert torch.equal(free.embedding.weight, vectors)
    assert free.embedding.weight.requires_grad
    frozen = IntentSlotModel(words, replace(INTENT_SLOT, frozen_embeddings=True), vectors)
    assert not frozen.embedding.weight.requires_grad
    with torch.no_grad():
        free.embedding.weight += 1
    assert not torch.equal(free.embedding.weight, vectors)


def test_one_hot_mixtures_are_words(model):
    every = model.embed(torch.arange(len(model.vocabulary))[None])[0]
    mixture = torch.nn.functional.one_hot(TOKENS, len(model.vocabulary)).to(every)
    soft, hard = model.losses(mixture @ every, INTENTS, TAGS), model(TOKENS, INTENTS, TAGS)
    torch.testing.assert_close(soft, hard, rtol=1e-5, atol=1e-5)


def test_rows_do_not_know_of_each_other_and_every_word_matters_to_both_parts(model):
    together = model(TOKENS, INTENTS, TAGS)
    for row in range(3):
        alone = model(TOKENS[row : row + 1], INTENTS[row : row + 1], TAGS[row : row + 1])
        torch.testing.assert_close(alone.joint[0], together.joint[row])
    vectors = model.embed(TOKENS).detach().requires_grad_()
    for part in model.losses(vectors, INTENTS, TAGS):
        (one,) = torch.autograd.grad(part[1], vectors, retain_graph=True)
        assert one[[0, 2]].abs().sum() == 0
        (every,) = torch.autograd.grad(part.sum(), vectors, retain_graph=True)
        assert (every.abs().sum(-1) > 0).all()


@pytest.mark.slow
def test_the_gradient_by_vectors_is_that_of_finite_differences(model):
    model = model.double()
    vectors = model.embed(TOKENS[:2]).detach().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda given: model.losses(given, INTENTS[:2], TAGS[:2]).joint, vectors
    )


def test_predictions_are_the_likeliest_of_all_answers(model):
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


def test_a_word_that_nobody_knows_is_read_as_unknown(model):
    assert model.read(["word3", "nobody", "word1"]) == [(5,), (), (3,)]
    data = model.encode(Utterances.of([Utterance(("word3", "nobody"), ("O", "O"), "Ask")]))
    assert data.tokens.tolist() == [5, model.vocabulary.unk_id]
    assert data.labels == (model.intents, model.tags)


def test_the_letters_of_a_word_matter_up_to_the_longest(words):
    model = intent_slot_model(words, KINDS["letters"])
    with torch.no_grad():
        model.embedding.weight[:] = model.embedding.weight[0]
    vectors = model.embed(torch.tensor([[2, 3, 12]]))[0]
    assert torch.equal(vectors[:, :5], vectors[:1, :5].expand(3, -1))
    assert not torch.equal(vectors[0, 5:], vectors[1, 5:])
    assert intent_slot_model(words).letters is None
    stem = "a" * LONGEST_WORD
    longest = WordVocabulary(("<unk>", "<eos>", stem + "b", stem + "c", stem, "d"))
    letters = intent_slot_model(longest, KINDS["letters"]).embed(torch.arange(6)[None])[0, :, 5:]
    assert torch.equal(letters[2], letters[3])
    assert torch.equal(letters[2], letters[4])
    assert not torch.equal(letters[2], letters[5])


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
def test_a_shape_that_cannot_be_is_refused(change, says):
    with pytest.raises(ValueError, match=says):
        replace(INTENT_SLOT, **change)
