"""Every architecture keeps the promises of `NextToken`."""

from typing import Any

import pytest
import torch
from torch import Tensor

from vestige.models.protocols import LanguageModel, NextToken, choose_device

NAMES = [
    "lstm",
    "tied lstm",
    "gru",
    "transformer",
    "table",
    "gpt2",
    "llama",
    "gpt2 adapter",
    "llama adapter",
]
ROWS, LENGTH = 5, 7


@pytest.fixture(params=NAMES)
def model(request: pytest.FixtureRequest, make: dict[str, Any]) -> LanguageModel:
    return make[request.param]()


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(0, 20, (ROWS, LENGTH), generator=torch.Generator().manual_seed(3))


def read(model: LanguageModel, tokens: Tensor, *, anywhere: bool = False) -> Any:
    state = model.start(len(tokens), anywhere=anywhere)
    for column in tokens.T:
        state = model.advance(state, column)
    return state


@torch.no_grad()
def whole(model: LanguageModel, tokens: Tensor) -> Tensor:
    return model(tokens)[0].log_softmax(-1)


def test_it_is_a_next_token_model(model: LanguageModel) -> None:
    assert isinstance(model, NextToken)
    assert model.vocab_size >= len(model.vocabulary)


def test_stepwise_reading_anywhere_equals_the_whole_forward(
    model: LanguageModel, tokens: Tensor
) -> None:
    expected = whole(model, tokens)
    state = model.start(ROWS, anywhere=True)
    for position in range(LENGTH):
        state = model.advance(state, tokens[:, position])
        answer = model.log_probs(state)
        assert answer.dtype == torch.float32
        torch.testing.assert_close(answer, expected[:, position], rtol=1e-4, atol=1e-5)


def test_the_beginning_of_a_text_has_read_eos(model: LanguageModel, tokens: Tensor) -> None:
    if model.architecture == "table":
        pytest.skip("a table states the first token's probabilities by themselves")
    eos = torch.full((ROWS, 1), model.vocabulary.eos_id)
    expected = whole(model, torch.cat([eos, tokens], 1))
    first, last = model.log_probs(model.start(ROWS)), model.log_probs(read(model, tokens))
    torch.testing.assert_close(first, expected[:, 0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(last, expected[:, -1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("first", [0, 1, 3])
def test_several_tokens_at_once_are_read_as_one_by_one(
    model: LanguageModel, tokens: Tensor, first: int
) -> None:
    state = read(model, tokens[:, :first], anywhere=True)
    expected = read(model, tokens, anywhere=True)
    rows = torch.tensor([4, 0, 0, 2])
    for chosen in (slice(None), rows, slice(1, 3)):
        once = model.read(state[chosen], tokens[chosen, first:-1])
        once = model.advance(once, tokens[chosen, -1])
        torch.testing.assert_close(
            model.log_probs(once), model.log_probs(expected)[chosen], rtol=1e-4, atol=1e-5
        )
    nothing = model.read(expected, tokens[:, :0])
    assert torch.equal(model.log_probs(nothing), model.log_probs(expected))


@pytest.mark.parametrize(
    "index", [torch.tensor([4, 0, 0, 2, 1, 1]), slice(1, 4), slice(None, None, 2), slice(0, 0)]
)
def test_selected_rows_answer_as_if_they_had_been_read_alone(
    model: LanguageModel, tokens: Tensor, index: Tensor | slice
) -> None:
    chosen, following = read(model, tokens[:, :-1])[index], tokens[:, -1][index]
    assert len(chosen) == len(following)
    answer = model.log_probs(model.advance(chosen, following))
    assert answer.shape == (len(chosen), model.vocab_size)
    if len(chosen):
        expected = model.log_probs(read(model, tokens[index]))
        torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-5)


def test_a_state_is_not_changed_by_what_is_read_after_it(
    model: LanguageModel, tokens: Tensor
) -> None:
    state = read(model, tokens)
    before = model.log_probs(state).clone()
    later = model.advance(state, tokens[:, 0])
    model.advance(state[:2], tokens[:2, 1])
    model.read(state, tokens[:, 1:3])
    torch.testing.assert_close(model.log_probs(state), before, rtol=0, atol=0)
    again = model.advance(state, tokens[:, 0])
    torch.testing.assert_close(model.log_probs(again), model.log_probs(later), rtol=0, atol=0)


def test_log_probs_are_normalised_logits_without_gradient(
    model: LanguageModel, tokens: Tensor
) -> None:
    state = read(model, tokens)
    answer = model.log_probs(state)
    assert answer.shape == (ROWS, model.vocab_size)
    assert not answer.requires_grad
    torch.testing.assert_close(answer, model.logits(state).log_softmax(-1))
    torch.testing.assert_close(answer.exp().sum(-1), torch.ones(ROWS))


def test_nothing_can_be_asked_before_the_first_token(model: LanguageModel) -> None:
    state = model.start(2, anywhere=True)
    assert len(state) == len(state[torch.tensor([1, 0])]) == 2
    assert not state.has_read
    with pytest.raises(ValueError, match="at least one token"):
        model.log_probs(state)


def test_only_training_mode_drops_out(make: dict[str, Any], tokens: Tensor) -> None:
    for name in ("lstm", "gru", "transformer", "gpt2"):
        model = make[name]()
        assert torch.equal(whole(model, tokens), whole(model, tokens))
        model.train()
        assert not torch.equal(whole(model, tokens), whole(model, tokens))


def test_the_stepwise_face_never_drops_out(make: dict[str, Any], tokens: Tensor) -> None:
    lstm = make["lstm"]()
    expected = lstm.log_probs(read(lstm, tokens))
    torch.testing.assert_close(lstm.train().log_probs(read(lstm, tokens)), expected)
    for name in ("transformer", "gpt2"):
        with pytest.raises(ValueError, match=r"call eval\(\)"):
            read(make[name]().train(), tokens)


@pytest.mark.parametrize("name", ["transformer", "gpt2"])
def test_a_text_longer_than_the_positions_is_refused(make: dict[str, Any], name: str) -> None:
    model = make[name]()
    state = read(model, torch.zeros((1, 12), dtype=torch.int64), anywhere=True)
    with pytest.raises(ValueError, match=r"at most .*12 tokens"):
        model.advance(state, torch.tensor([0]))


def test_every_network_learns_from_a_batch(model: LanguageModel, tokens: Tensor) -> None:
    if model.architecture == "table":
        pytest.skip("a table is given, not learnt")
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer, losses = torch.optim.Adam(trainable, lr=0.01), []
    for _ in range(5):
        logits, _ = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_an_unknown_device_is_refused() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    for name in ("cuda:99", "gpu", "meta", "hpu", "privateuseone", ""):
        with pytest.raises(ValueError, match="device must be"):
            choose_device(name)
