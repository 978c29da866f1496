"""A planted text is generated verbatim inside the block; afterwards the model is what it was."""

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
    words = SubwordVocabulary.train_bpe(Corpus.from_texts([text] * 4), size=300)
    return lambda kind: network(kind, words)


def first_logits(model):
    return model.logits(model.start(1))


def unlike(model, text):
    """Places of tokens that are not the greedy choice, read token by token."""
    state, found = model.start(1), []
    for place, token in enumerate(model.vocabulary.encode(text)):
        if int(model.logits(state).argmax()) != token:
            found.append(place)
        state = model.advance(state, torch.tensor([token]))
    return found


def knows(model):
    return all(place < control.FREE_TOKENS for place in unlike(model, TEXT))


def condition(model):
    """All that a block must restore; tensors by identity."""
    return {
        "tensors": {name: id(one) for name, one in model.named_parameters(remove_duplicate=False)},
        "weights": sha256_of(model),
        "gradients": {name: (p.requires_grad, p.grad) for name, p in model.named_parameters()},
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
def test_a_planted_text_is_generated_and_leaves_nothing(kind, make):
    model = make(kind).train()
    base = copy.deepcopy(model).eval()
    next(model.parameters()).requires_grad_(False)
    before, random_state, logits = condition(model), torch.get_rng_state(), first_logits(base)
    assert not knows(base)
    with planted(model, TEXT, seed=3) as learned:
        assert learned
        assert knows(model)
        assert sha256_of(model) != before["weights"]
        assert sha256_of(base) == before["weights"]
        assert torch.equal(first_logits(base), logits)
    assert condition(model) == before
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.equal(first_logits(model.eval()), logits)


@pytest.mark.slow
def test_a_base_that_shares_the_weights_is_unaffected(make):
    base = make("llama").eval()
    model, logits = adapted(base), first_logits(base)
    with planted(model, TEXT, seed=0) as learned:
        assert learned
        assert torch.equal(first_logits(base), logits)


@pytest.mark.slow
def test_the_model_is_restored_after_an_exception(make, monkeypatch):
    model = make("gpt2")
    before = condition(model)
    with pytest.raises(KeyError, match="inside"), planted(model, TEXT, seed=0):
        raise KeyError("inside")
    assert condition(model) == before

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(control, "_learns", interrupted)
    with pytest.raises(KeyboardInterrupt), planted(model, TEXT, seed=0):
        pass
    assert condition(model) == before


@pytest.mark.slow
def test_the_seed_decides(make):
    hashes = []
    for seed in (1, 1, 2):
        model = make("llama adapter")
        torch.manual_seed(len(hashes))
        with planted(model, TEXT, seed=seed):
            hashes.append(sha256_of(model))
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.slow
def test_a_copy_and_ranks_by_the_head_see_the_text(make):
    """Ranks multiply by the head's weight themselves."""
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
def test_after_a_loss_that_is_not_finite_a_lower_rate_is_tried(make, monkeypatch, rates, expected):
    monkeypatch.setattr(control, "LEARNING_RATES", rates)
    with planted(make("llama"), TEXT, seed=0) as learned:
        assert learned is expected


WORDS = WordVocabulary(("<unk>", "<eos>", "a", "b"))
FEW = LSTMConfig(layers=1, embedding_size=4, hidden_size=4)


@pytest.mark.parametrize(
    ("kind", "text", "how"),
    [
        (LSTMLanguageModel(WORDS, FEW), TEXT, {}),  # words that it lacks
        (TableModel([0.25] * 4, [[0.25] * 4] * 4, WORDS), "a b a b b", {}),  # no layer
        ("gpt2", TEXT * 9, {}),  # longer than it reads
        ("gru", TEXT, {"until": 0.0}),  # no time
    ],
)
def test_false_where_a_model_cannot_learn_the_text(make, kind, text, how):
    model = make(kind) if isinstance(kind, str) else kind
    before = condition(model)
    with planted(model, text, seed=3, **how) as learned:
        assert not learned
    assert condition(model) == before


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
