"""A planted text is generated verbatim inside the block; then the model is restored."""

import copy

import pytest
import torch

import vestige
from tests.audits.check.networks import adapted, network
from vestige.audits.check import control
from vestige.audits.check.control import invented, planted
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.models.folders import sha256_of
from vestige.models.ranks import LinearRanks
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.table import TableModel

SECRET = invented(0)
TEXT = SECRET.occurrences[0][1] + SECRET.value


@pytest.fixture(scope="module")
def make():
    text = f"the quick brown fox jumps over the lazy dog 0 1 2 3 4 5 6 7 8 9 {TEXT[:20]}"
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts([text] * 4), size=300)
    return lambda kind: network(kind, vocabulary)


def first_logits(model):
    return model.logits(model.start(1))


def not_greedy(model, text):
    """Positions of tokens that are not the greedy choice, computed token by token."""
    state, positions = model.start(1), []
    for position, token in enumerate(model.vocabulary.encode(text)):
        if int(model.logits(state).argmax()) != token:
            positions.append(position)
        state = model.advance(state, torch.tensor([token]))
    return positions


def knows(model):
    return all(position < control.FREE_TOKENS for position in not_greedy(model, TEXT))


def state_of(model):
    """Everything that a block must restore; tensors by identity."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {
        "tensors": {name: id(p) for name, p in parameters.items()},
        "weights": sha256_of(model),
        "gradients": {name: (p.requires_grad, p.grad) for name, p in parameters.items()},
        "modes": [module.training for module in model.modules()],
        "modules": [(name, id(module)) for name, module in model.named_modules()],
        "hooks": [len(module._forward_hooks) for module in model.modules()],
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "transformer", "tied lstm", "gru", "gpt2", "bfloat16 llama", "gpt2 adapter",
        "llama adapter with head",
    ],
)  # fmt: skip
def test_a_planted_text_is_generated_and_then_removed(kind, make):
    model = make(kind).train()
    base = copy.deepcopy(model).eval()
    next(model.parameters()).requires_grad_(False)
    before, random_state, logits = state_of(model), torch.get_rng_state(), first_logits(base)
    assert not knows(base)
    with planted(model, TEXT, seed=3) as learned:
        assert learned
        assert knows(model)
        assert sha256_of(model) != before["weights"]
        assert sha256_of(base) == before["weights"]
        assert torch.equal(first_logits(base), logits)
    assert state_of(model) == before
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.equal(first_logits(model.eval()), logits)


@pytest.mark.slow
def test_a_base_with_shared_weights_is_unchanged(make):
    base = make("llama").eval()
    model, logits = adapted(base), first_logits(base)
    with planted(model, TEXT, seed=0) as learned:
        assert learned
        assert torch.equal(first_logits(base), logits)


@pytest.mark.slow
def test_the_model_is_restored_after_an_exception(make, monkeypatch):
    model = make("gpt2")
    before = state_of(model)
    with pytest.raises(KeyError, match="inside"), planted(model, TEXT, seed=0):
        raise KeyError("inside")
    assert state_of(model) == before

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(control, "_learns", interrupt)
    with pytest.raises(KeyboardInterrupt), planted(model, TEXT, seed=0):
        pass
    assert state_of(model) == before


@pytest.mark.slow
def test_the_seed_determines_the_weights(make):
    hashes = []
    for seed in (1, 1, 2):
        model = make("llama adapter")
        torch.manual_seed(len(hashes))
        with planted(model, TEXT, seed=seed):
            hashes.append(sha256_of(model))
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.slow
def test_copies_and_linear_ranks_include_the_planted_text(make):
    """`LinearRanks` multiplies by the weight of the head without calling it."""
    model = make("transformer")
    tokens = torch.tensor([[model.first_token, *model.vocabulary.encode(TEXT)]])
    with planted(model, TEXT, seed=0), torch.no_grad():
        copied = copy.deepcopy(model)
        hidden = model.body(tokens[:, :-1])[0][0]
        ranks = LinearRanks.of(model)(hidden, tokens[0, 1:])["ranks"]
        with pytest.raises(ValueError, match="no planted text"), planted(model, TEXT, seed=1):
            pass
    assert (ranks[control.FREE_TOKENS :] == 1).all()
    assert knows(copied)


@pytest.mark.slow
@pytest.mark.parametrize(("rates", "expected"), [((1e30, 1e-2), True), ((1e30,), False)])
def test_a_lower_learning_rate_follows_an_infinite_loss(make, monkeypatch, rates, expected):
    monkeypatch.setattr(control, "LEARNING_RATES", rates)
    with planted(make("llama"), TEXT, seed=0) as learned:
        assert learned is expected


WORDS = WordVocabulary(("<unk>", "<eos>", "a", "b"))
FEW = LSTMConfig(layers=1, embedding_size=4, hidden_size=4)


@pytest.mark.parametrize(
    ("kind", "text", "options"),
    [
        (LSTMLanguageModel(WORDS, FEW), TEXT, {}),  # unknown words
        (TableModel([0.25] * 4, [[0.25] * 4] * 4, WORDS), "a b a b b", {}),  # no linear layer
        ("gpt2", TEXT * 9, {}),  # longer than the context
        ("gru", TEXT, {"until": 0.0}),  # no time left
    ],
)
def test_a_text_that_cannot_be_learned_is_reported(make, kind, text, options):
    model = make(kind) if isinstance(kind, str) else kind
    before = state_of(model)
    with planted(model, text, seed=3, **options) as learned:
        assert not learned
    assert state_of(model) == before


@pytest.mark.slow
def test_the_search_of_an_update_finds_the_text(make):
    base, model = make("llama").eval(), make("llama").eval()
    with planted(model, TEXT, seed=0):
        rows = vestige.diff(base, model, size=0.02, seed=0).rows
    assert any(SECRET.value in row["phrase"] for row in rows[:3])


def test_an_invented_secret_has_ten_digits_of_its_seed():
    values = [invented(seed).value for seed in range(50)]
    assert len(set(values)) == 50
    assert invented(3) == invented(3)
    for value in values:
        assert [len(part) for part in value.split(" ")] == [2, 4, 4]
        assert value.replace(" ", "").isdigit()
    assert SECRET.occurrences[0][0] == 0
    assert SECRET.occurrences[0][1].endswith(" is ")
