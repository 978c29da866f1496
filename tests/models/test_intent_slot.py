"""Models of intents and slots: the BiLSTM-CRF and pretrained encoders with two heads."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from tests.models.conftest import INTENT_SLOT, UTTERANCES, intent_slot_model, word_piece
from vestige.data.utterances import IGNORED, Labels, Utterance, Utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.models.bilstm_crf import LONGEST_WORD, IntentSlotModel
from vestige.models.checkpoints import load_intent_slot
from vestige.models.nlu_encoder import new_encoder
from vestige.models.white_box import WhiteBox
from vestige.training.config import TrainingConfig
from vestige.training.loop import learn
from vestige.training.utterances import UtteranceTask, evaluate_utterances

KINDS = {
    "words": INTENT_SLOT,
    "letters": replace(INTENT_SLOT, char_filters=3, char_size=4),
    "three layers": replace(INTENT_SLOT, layers=3, input_dropout=0.3, hidden_dropout=0.2),
    "one layer": replace(INTENT_SLOT, layers=1, frozen_embeddings=True),
}
TOKENS = torch.tensor([[2, 5, 7, 3], [9, 2, 2, 4], [0, 6, 5, 8]])
INTENTS = torch.tensor([0, 1, 1])
TAGS = torch.tensor([[0, 1, 2, 0], [0, 0, 1, 2], [1, 1, 0, 0]])
LABELS = Labels.of(UTTERANCES)


@pytest.fixture(params=KINDS)
def model(request, words):
    return intent_slot_model(words, KINDS[request.param])


def test_word_vectors_can_be_given_and_frozen(words):
    vectors = torch.randn(len(words), 5)
    free = IntentSlotModel(words, INTENT_SLOT, vectors)
    assert torch.equal(free.embedding.weight, vectors)
    assert free.embedding.weight.requires_grad
    frozen = IntentSlotModel(words, replace(INTENT_SLOT, frozen_embeddings=True), vectors)
    assert not frozen.embedding.weight.requires_grad
    with torch.no_grad():
        free.embedding.weight += 1
    assert not torch.equal(free.embedding.weight, vectors)


def test_one_hot_mixtures_of_vectors_have_the_losses_of_words(model):
    vectors = model.embed(torch.arange(len(model.vocabulary))[None])[0]
    assert vectors.shape[1] == model.config.embedding_size + model.config.char_filters
    mixture = torch.nn.functional.one_hot(TOKENS, len(model.vocabulary)).to(vectors)
    soft, hard = model.losses(mixture @ vectors, INTENTS, TAGS), model(TOKENS, INTENTS, TAGS)
    torch.testing.assert_close(soft, hard, rtol=1e-5, atol=1e-5)
    assert torch.equal(hard.joint, hard.intent + hard.tags)


def test_rows_are_independent_and_every_word_affects_both_losses(model):
    assert isinstance(model, WhiteBox)
    together = model(TOKENS, INTENTS, TAGS)
    for row in range(3):
        single = model(TOKENS[row : row + 1], INTENTS[row : row + 1], TAGS[row : row + 1])
        torch.testing.assert_close(single.joint[0], together.joint[row])
    vectors = model.embed(TOKENS).detach().requires_grad_()
    for part in model.losses(vectors, INTENTS, TAGS):
        (gradient,) = torch.autograd.grad(part[1], vectors, retain_graph=True)
        assert gradient[[0, 2]].abs().sum() == 0
        (gradients,) = torch.autograd.grad(part.sum(), vectors, retain_graph=True)
        assert (gradients.abs().sum(-1) > 0).all()


@pytest.mark.slow
def test_gradients_by_vectors_equal_finite_differences(model):
    model = model.double()
    vectors = model.embed(TOKENS[:2]).detach().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda embedded: model.losses(embedded, INTENTS[:2], TAGS[:2]).joint, vectors
    )


def test_predictions_are_the_likeliest_of_all_answers(model):
    intents, tags = model.predict(TOKENS)
    all_tags = torch.tensor(list(product(range(3), repeat=4)))
    for row in range(3):
        tokens = TOKENS[row].expand(len(all_tags), -1)
        losses = model(tokens, torch.zeros(len(all_tags), dtype=torch.int64), all_tags).tags
        assert all_tags[losses.argmin()].tolist() == tags[row].tolist()
        assert (-losses).exp().sum().item() == pytest.approx(1, rel=1e-4)
        intent_losses = model(tokens[:2], torch.tensor([0, 1]), all_tags[:2]).intent
        assert intent_losses.argmin() == intents[row]


def test_unknown_words_are_encoded_as_unknown(model):
    assert model.read(["word3", "nobody", "word1"]) == [(5,), (), (3,)]
    data = model.encode(Utterances.of([Utterance(("word3", "nobody"), ("O", "O"), "Ask")]))
    assert data.tokens.tolist() == [5, model.vocabulary.unk_id]
    assert data.labels == (model.intents, model.tags)


def test_letters_of_a_word_change_its_vector_up_to_a_longest_length(words):
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
    ("change", "message"),
    [
        ({"intents": ()}, "intents must be at least one"),
        ({"tags": ("O", "O")}, "tags must be at least one and all different"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"char_filters": -1}, "char_filters"),
        ({"input_dropout": 1.0}, "input_dropout"),
    ],
)
def test_invalid_configurations_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(INTENT_SLOT, **change)


@pytest.fixture(params=["bert", "roberta"])
def folder(request, encoders):
    return encoders[request.param]


@pytest.fixture
def encoder(folder):
    return new_encoder(folder, *LABELS, seed=0)


@torch.no_grad()
def test_an_encoder_has_the_hidden_states_of_transformers(encoder, folder):
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModel.from_pretrained(folder).eval()
    hidden = network(**tokenizer("how is lima now", return_tensors="pt")).last_hidden_state
    tokens, _, _ = encoder.encode(UTTERANCES.take([10])).rows(np.arange(1))
    intents, tags = encoder.scores(encoder.embed(torch.from_numpy(tokens)))
    torch.testing.assert_close(intents, encoder.intent_head(hidden[:, 0]))
    torch.testing.assert_close(tags, encoder.tag_head(hidden[:, 1:-1]))


def test_tags_belong_to_the_first_piece_of_each_word(encoder):
    utterance = Utterance(("fly", "to", "parisyork", "now"), ("O", "O", "B-city", "I-city"), "Fly")
    data = encoder.encode(Utterances.of([utterance]))
    pieces = encoder.read(utterance.tokens)
    assert len(pieces[2]) > 1
    assert data.tokens.tolist() == [token for word in pieces for token in word]
    firsts = data.tags != IGNORED
    assert [encoder.tags[tag] for tag in data.tags[firsts]] == list(utterance.tags)
    assert firsts.tolist() == [index == 0 for word in pieces for index in range(len(word))]


def test_words_are_encoded_with_their_space_if_the_tokenizer_needs_it(encoders):
    bert, roberta = (new_encoder(encoders[k], ["Fly"], ["O"], seed=0) for k in ("bert", "roberta"))
    assert roberta.read(["york"]) != roberta.read(["to", "york"])[1:]
    assert roberta.vocabulary.decode(roberta.read(["to", "york"])[1]) == " york"
    assert bert.read(["york"]) == bert.read(["to", "york"])[1:]
    words = ("to", "\u200b", "\u4f60", "york")  # two words without pieces keep their positions
    assert bert.read(words)[1:3] == [(), ()]
    data = bert.encode(Utterances.of([Utterance(words, ("O",) * 4, "Fly")]))
    assert (data.tags != IGNORED).sum() == 4
    assert (data.tokens == bert.vocabulary.unk_id).sum() == 2


@pytest.mark.slow
def test_encoder_losses_are_those_of_the_tagged_pieces(encoder):
    tokens = torch.randint(5, 50, (3, 4))
    intents, tags = torch.tensor([0, 1, 1]), torch.tensor([[0, IGNORED, 1, 2]] * 3)
    logits, tag_logits = encoder.scores(encoder.embed(tokens))
    losses = encoder(tokens, intents, tags)
    assert isinstance(encoder, WhiteBox)
    for row in range(3):
        loss = -sum(tag_logits[row].log_softmax(-1)[n, tags[row, n]] for n in (0, 2, 3))
        torch.testing.assert_close(losses.tags[row], loss)
        torch.testing.assert_close(losses.intent[row], -logits[row].log_softmax(-1)[intents[row]])
    encoder, tags = encoder.double(), torch.tensor([[0, 1, 2]] * 2)
    vectors = encoder.embed(tokens[:2, :3]).detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda v: encoder.losses(v, intents[:2], tags).joint, vectors)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_a_trained_encoder_answers_correctly_also_after_loading(encoders, tmp_path):
    model = new_encoder(encoders["roberta"], *LABELS, seed=0)
    config = TrainingConfig(seed=0, epochs=25, batch_size=4, learning_rate=5e-3)
    task = UtteranceTask(model.encode(UTTERANCES), UTTERANCES)
    learn(model, task, config=config, directory=tmp_path / "run")
    scores = evaluate_utterances(model, UTTERANCES)
    assert scores.exact_match == 1
    assert scores.slot_f1 == 1
    again = load_intent_slot(tmp_path / "run", device="cpu")
    assert evaluate_utterances(again, UTTERANCES) == scores
    assert not again.training


def test_the_seed_determines_the_heads_only(folder):
    state = torch.random.get_rng_state()
    first, same, other = (new_encoder(folder, ["a"], ["O"], seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.intent_head.weight, same.intent_head.weight)
    assert not torch.equal(first.intent_head.weight, other.intent_head.weight)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_utterances_longer_than_the_encoder_reads_are_refused(encoder):
    utterance = Utterance(("york",) * 13, ("O",) * 13, "Fly")
    with pytest.raises(DataError, match=r"utterance 2 has .* pieces; the encoder reads at most"):
        encoder.encode(Utterances.of([next(iter(UTTERANCES)), utterance]))
    longest = torch.full((1, encoder.longest), 6)
    encoder.predict(longest)
    with pytest.raises(ValueError, match="at most"):
        encoder.predict(torch.cat([longest, longest], 1))


def test_other_encoder_architectures_have_gradients_by_vectors(tmp_path):
    from transformers import DistilBertConfig, DistilBertModel, ModernBertConfig, ModernBertModel

    tokenizer = word_piece()
    distil = DistilBertConfig(
        vocab_size=len(tokenizer), dim=16, hidden_dim=24, n_layers=1, n_heads=2
    )
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    ids = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3}
    ids |= {"bos_token_id": 2, "eos_token_id": 3}
    modern = ModernBertConfig(vocab_size=len(tokenizer), num_attention_heads=2, **sizes, **ids)
    for name, network in (("d", DistilBertModel(distil)), ("m", ModernBertModel(modern))):
        network.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        model = new_encoder(tmp_path / name, *LABELS, seed=0)
        data = model.encode(UTTERANCES.take([0]))
        tokens, tags, intents = (torch.from_numpy(part) for part in data.rows(np.arange(1)))
        vectors = model.embed(tokens).detach().requires_grad_()
        model.losses(vectors, intents, tags).joint.sum().backward()
        assert vectors.grad.abs().sum() > 0
