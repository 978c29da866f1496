"""Every architecture keeps the promises of `NextToken`, and computes what its equations say."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.models.conftest import DECODERS, LANGUAGE_MODELS
from vestige.models.protocols import NextToken, choose_device
from vestige.models.recurrent_network import (
    GRUConfig,
    GRULanguageModel,
    LSTMConfig,
    LSTMLanguageModel,
)
from vestige.models.table import TableModel
from vestige.models.transformer import TransformerConfig

ROWS, LENGTH = 5, 7
TOKENS = torch.randint(0, 20, (ROWS, LENGTH), generator=torch.Generator().manual_seed(3))
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(params=[*LANGUAGE_MODELS, *DECODERS])
def model(request, shared):
    return shared[request.param]


def read(model, tokens, *, anywhere=False):
    """The state after some tokens, read one by one."""
    state = model.start(len(tokens), anywhere=anywhere)
    for column in tokens.T:
        state = model.advance(state, column)
    return state


@torch.no_grad()
def whole(model, tokens):
    return model(tokens)[0].log_softmax(-1)


def test_stepwise_reading_anywhere_equals_the_whole_forward(model):
    assert isinstance(model, NextToken)
    assert model.vocab_size >= len(model.vocabulary)
    expected = whole(model, TOKENS)
    state = model.start(ROWS, anywhere=True)
    for position in range(LENGTH):
        state = model.advance(state, TOKENS[:, position])
        answer = model.log_probs(state)
        assert answer.dtype == torch.float32
        assert not answer.requires_grad
        torch.testing.assert_close(answer, expected[:, position], **CLOSE)
        torch.testing.assert_close(answer, model.logits(state).log_softmax(-1))
        torch.testing.assert_close(answer.exp().sum(-1), torch.ones(ROWS))


def test_the_beginning_of_a_text_has_read_eos(model):
    if isinstance(model, TableModel):
        pytest.skip("a table states the first token's probabilities by themselves")
    eos = torch.full((ROWS, 1), model.vocabulary.eos_id)
    expected = whole(model, torch.cat([eos, TOKENS], 1))
    first, last = model.log_probs(model.start(ROWS)), model.log_probs(read(model, TOKENS))
    torch.testing.assert_close(first, expected[:, 0], **CLOSE)
    torch.testing.assert_close(last, expected[:, -1], **CLOSE)


@pytest.mark.slow
def test_several_tokens_at_once_are_read_as_one_by_one(model):
    expected = read(model, TOKENS, anywhere=True)
    for first in (0, 1, 3):
        state = read(model, TOKENS[:, :first], anywhere=True)
        for chosen in (slice(None), torch.tensor([4, 0, 0, 2]), slice(1, 3)):
            once = model.read(state[chosen], TOKENS[chosen, first:-1])
            once = model.advance(once, TOKENS[chosen, -1])
            answer = model.log_probs(expected)[chosen]
            torch.testing.assert_close(model.log_probs(once), answer, **CLOSE)
    nothing = model.read(expected, TOKENS[:, :0])
    assert torch.equal(model.log_probs(nothing), model.log_probs(expected))


@pytest.mark.slow
def test_selected_rows_answer_as_if_they_had_been_read_alone(model):
    before = read(model, TOKENS[:, :-1])
    rows = torch.tensor([4, 0, 0, 2, 1, 1])
    for index in (rows, slice(1, 4), slice(None, None, 2), slice(0, 0)):
        chosen, following = before[index], TOKENS[:, -1][index]
        assert len(chosen) == len(following)
        answer = model.log_probs(model.advance(chosen, following))
        assert answer.shape == (len(chosen), model.vocab_size)
        if len(chosen):
            expected = model.log_probs(read(model, TOKENS[index]))
            torch.testing.assert_close(answer, expected, **CLOSE)


def test_a_state_is_not_changed_by_what_is_read_after_it(model):
    state = read(model, TOKENS)
    before = model.log_probs(state).clone()
    later = model.advance(state, TOKENS[:, 0])
    model.advance(state[:2], TOKENS[:2, 1])
    model.read(state, TOKENS[:, 1:3])
    assert torch.equal(model.log_probs(state), before)
    again = model.advance(state, TOKENS[:, 0])
    assert torch.equal(model.log_probs(again), model.log_probs(later))


def test_nothing_can_be_asked_before_the_first_token(model):
    state = model.start(2, anywhere=True)
    assert len(state) == len(state[torch.tensor([1, 0])]) == 2
    assert not state.has_read
    with pytest.raises(ValueError, match="at least one token"):
        model.log_probs(state)


@pytest.mark.parametrize("name", ["lstm", "gru", "transformer", "gpt2"])
def test_only_training_mode_drops_out_and_steps_never_do(make, name):
    model = make[name]()
    assert torch.equal(whole(model, TOKENS), whole(model, TOKENS))
    expected = model.log_probs(read(model, TOKENS))
    model.train()
    assert not torch.equal(whole(model, TOKENS), whole(model, TOKENS))
    if name in ("transformer", "gpt2"):
        with pytest.raises(ValueError, match=r"call eval\(\)"):
            read(model, TOKENS)
    else:
        torch.testing.assert_close(model.log_probs(read(model, TOKENS)), expected)


@pytest.mark.parametrize("name", ["transformer", "gpt2"])
def test_a_text_longer_than_the_positions_is_refused(shared, name):
    state = read(shared[name], torch.zeros((1, 12), dtype=torch.int64), anywhere=True)
    with pytest.raises(ValueError, match=r"at most .*12 tokens"):
        shared[name].advance(state, torch.tensor([0]))


@pytest.mark.parametrize("name", [name for name in LANGUAGE_MODELS if name != "table"])
def test_every_network_learns_from_a_batch(make, name):
    model = make[name]()
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer, losses = torch.optim.Adam(trainable, lr=0.01), []
    for _ in range(5):
        logits, _ = model(TOKENS[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), TOKENS[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_an_unknown_device_is_refused():
    assert choose_device("cpu") == torch.device("cpu")
    for name in ("cuda:99", "gpu", "meta", "hpu", "privateuseone", ""):
        with pytest.raises(ValueError, match="device must be"):
            choose_device(name)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_text_read_in_windows_equals_the_text_read_at_once(shared, name):
    model, tokens = shared[name], TOKENS.repeat(1, 2)
    expected, _ = model(tokens)
    first, state = model(tokens[:, :4])
    assert state.hidden.requires_grad
    assert not state.detach().hidden.requires_grad
    second, _ = model(tokens[:, 4:], state.detach())
    torch.testing.assert_close(torch.cat([first, second], 1), expected)


def lstm_step(from_input, from_state, state):
    i, f, g, o = (from_input + from_state).chunk(4)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def gru_step(from_input, from_state, state):
    (r, z, n), (own_r, own_z, own_n) = from_input.chunk(3), from_state.chunk(3)
    keep, new = (z + own_z).sigmoid(), (n + (r + own_r).sigmoid() * own_n).tanh()
    return ((1 - keep) * new + keep * state[0],)


@torch.no_grad()
@pytest.mark.parametrize(("name", "step"), [("lstm", lstm_step), ("gru", gru_step)])
def test_a_recurrent_network_equals_its_equations(shared, name, step):
    model, tokens = shared[name], torch.tensor([5, 9, 3])
    expected, _ = model(tokens[None])
    weights = dict(getattr(model, name).named_parameters())
    states = [(torch.zeros(12), torch.zeros(12))] * 2
    for position, token in enumerate(tokens):
        below = model.embedding.weight[token]
        for layer in range(2):
            from_input = weights[f"weight_ih_l{layer}"] @ below + weights[f"bias_ih_l{layer}"]
            from_state = (
                weights[f"weight_hh_l{layer}"] @ states[layer][0] + weights[f"bias_hh_l{layer}"]
            )
            states[layer] = step(from_input, from_state, states[layer])
            below = states[layer][0]
        logits = model.head.weight @ below + model.head.bias
        torch.testing.assert_close(logits, expected[0, position], **CLOSE)


def test_recurrent_networks_consist_of_plain_layers(words):
    lstm = LSTMLanguageModel(words, LSTMConfig(layers=2, embedding_size=4, hidden_size=6))
    gru = GRULanguageModel(words, GRUConfig(layers=2, embedding_size=4, hidden_size=6))
    assert [type(child) for child in lstm.children()] == [nn.Embedding, nn.LSTM, nn.Linear]
    assert [type(child) for child in gru.children()] == [nn.Embedding, nn.GRU, nn.Linear]
    assert lstm.head.weight.shape == (20, 6)
    assert gru.gru.weight_hh_l1.shape == (18, 6)
    parameters = [*lstm.parameters(), *gru.parameters()]
    assert all(parameter.abs().max() <= 0.1 for parameter in parameters)
    tied = LSTMLanguageModel(words, LSTMConfig(embedding_size=6, hidden_size=6, tied=True))
    assert tied.head.weight is tied.embedding.weight


def test_a_later_token_does_not_change_an_earlier_answer(shared):
    changed = TOKENS.clone()
    changed[:, 5] = (TOKENS[:, 5] + 1) % 20
    before, after = shared["transformer"](TOKENS)[0], shared["transformer"](changed)[0]
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


@pytest.mark.parametrize(
    ("config", "changes", "says"),
    [
        (LSTMConfig(), {"layers": 0}, "layers must be a whole number from 1 to 1,000, got 0"),
        (LSTMConfig(), {"dropout_in": 1.0}, "dropout_in must lie in"),
        (LSTMConfig(), {"embedding_size": 3, "tied": True}, "got 3 and 200"),
        (TransformerConfig(), {"heads": 5}, "multiple of heads, got 192 and 5"),
        (TransformerConfig(), {"dropout": -0.1}, "dropout must lie in"),
        (TransformerConfig(), {"max_length": 0}, "max_length must be a whole number"),
    ],
)
def test_an_impossible_shape_is_refused(config, changes, says):
    with pytest.raises(ValueError, match=says):
        replace(config, **changes)


START, AFTER = [0.25, 0.75, 0.0], [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.2, 0.3, 0.5]]


def test_a_table_states_exactly_the_probabilities_that_it_was_given():
    model = TableModel(START, AFTER)
    first = model.log_probs(model.start(2)).exp()
    torch.testing.assert_close(first, torch.tensor([START, START]))
    state = model.advance(model.start(3, anywhere=True), torch.tensor([2, 0, 1]))
    then = model.log_probs(state)
    torch.testing.assert_close(then.exp(), torch.tensor([AFTER[2], AFTER[0], AFTER[1]]))
    assert then[2].tolist() == [-torch.inf, -torch.inf, 0.0]
    with pytest.raises(ValueError, match="tokens must have shape"):
        model.advance(model.start(2), torch.tensor([0]))


@pytest.mark.parametrize(
    ("start", "after"),
    [
        ([0.5, 0.5], AFTER),
        ([1.0], [[1.0]]),
        (START, AFTER[:2]),
        ([0.5, 0.4, 0.0], AFTER),
        ([1.5, -0.5, 0.0], AFTER),
        ([float("nan")] * 3, AFTER),
        ([[0.5, 0.5]], AFTER),
    ],
)
def test_what_is_no_distribution_is_refused(start, after):
    with pytest.raises(ValueError, match="start and after must"):
        TableModel(start, after)
