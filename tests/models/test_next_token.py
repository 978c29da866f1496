"""Every language model follows the protocol `NextToken` and its own equations."""

from dataclasses import replace

import pytest
import torch

from tests.models.conftest import DECODERS, LANGUAGE_MODELS
from vestige.models.protocols import NextToken, choose_device
from vestige.models.recurrent_network import (
    GRUConfig,
    GRULanguageModel,
    LSTMConfig,
    LSTMLanguageModel,
)
from vestige.models.seq2seq import Seq2SeqConfig
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
def forward(model, tokens):
    return model(tokens)[0].log_softmax(-1)


def test_reading_one_by_one_equals_the_forward_pass(model):
    assert isinstance(model, NextToken)
    assert model.vocab_size >= len(model.vocabulary)
    expected = forward(model, TOKENS)
    state = model.start(ROWS, anywhere=True)
    for position in range(LENGTH):
        state = model.advance(state, TOKENS[:, position])
        answer = model.log_probs(state)
        assert answer.dtype == torch.float32
        assert not answer.requires_grad
        torch.testing.assert_close(answer, expected[:, position], **CLOSE)
        torch.testing.assert_close(answer, model.logits(state).log_softmax(-1))


def test_the_beginning_of_a_text_is_the_state_after_eos(model):
    if isinstance(model, TableModel):
        pytest.skip("a table has separate probabilities of first tokens")
    eos = torch.full((ROWS, 1), model.vocabulary.eos_id)
    expected = forward(model, torch.cat([eos, TOKENS], 1))
    first, last = model.log_probs(model.start(ROWS)), model.log_probs(read(model, TOKENS))
    torch.testing.assert_close(first, expected[:, 0], **CLOSE)
    torch.testing.assert_close(last, expected[:, -1], **CLOSE)


@pytest.mark.slow
def test_several_tokens_read_at_once_equal_one_by_one(model):
    expected = read(model, TOKENS, anywhere=True)
    for first in (0, 1, 3):
        state = read(model, TOKENS[:, :first], anywhere=True)
        for rows in (slice(None), torch.tensor([4, 0, 0, 2]), slice(1, 3)):
            once = model.read(state[rows], TOKENS[rows, first:-1])
            once = model.advance(once, TOKENS[rows, -1])
            answer = model.log_probs(expected)[rows]
            torch.testing.assert_close(model.log_probs(once), answer, **CLOSE)
    nothing = model.read(expected, TOKENS[:, :0])
    assert torch.equal(model.log_probs(nothing), model.log_probs(expected))


@pytest.mark.slow
def test_selected_rows_equal_those_rows_read_alone(model):
    before = read(model, TOKENS[:, :-1])
    rows = torch.tensor([4, 0, 0, 2, 1, 1])
    for index in (rows, slice(1, 4), slice(None, None, 2), slice(0, 0)):
        selected, following = before[index], TOKENS[:, -1][index]
        assert len(selected) == len(following)
        answer = model.log_probs(model.advance(selected, following))
        assert answer.shape == (len(selected), model.vocab_size)
        if len(selected):
            expected = model.log_probs(read(model, TOKENS[index]))
            torch.testing.assert_close(answer, expected, **CLOSE)


def test_reading_more_does_not_change_an_earlier_state(model):
    state = read(model, TOKENS)
    before = model.log_probs(state).clone()
    later = model.advance(state, TOKENS[:, 0])
    model.advance(state[:2], TOKENS[:2, 1])
    model.read(state, TOKENS[:, 1:3])
    assert torch.equal(model.log_probs(state), before)
    again = model.advance(state, TOKENS[:, 0])
    assert torch.equal(model.log_probs(again), model.log_probs(later))


def test_a_state_needs_a_token_before_it_has_probabilities(model):
    state = model.start(2, anywhere=True)
    assert len(state) == len(state[torch.tensor([1, 0])]) == 2
    assert not state.has_read
    with pytest.raises(ValueError, match="at least one token"):
        model.log_probs(state)


@pytest.mark.parametrize("name", ["lstm", "gru", "transformer", "gpt2"])
def test_dropout_is_active_only_in_training_and_never_in_steps(make, name):
    model = make[name]()
    assert torch.equal(forward(model, TOKENS), forward(model, TOKENS))
    expected = model.log_probs(read(model, TOKENS))
    model.train()
    assert not torch.equal(forward(model, TOKENS), forward(model, TOKENS))
    if name in ("transformer", "gpt2"):
        with pytest.raises(ValueError, match=r"call eval\(\)"):
            read(model, TOKENS)
    else:
        torch.testing.assert_close(model.log_probs(read(model, TOKENS)), expected)


@pytest.mark.parametrize("name", ["transformer", "gpt2"])
def test_texts_longer_than_the_positions_are_refused(shared, name):
    state = read(shared[name], torch.zeros((1, 12), dtype=torch.int64), anywhere=True)
    with pytest.raises(ValueError, match=r"at most .*12 tokens"):
        shared[name].advance(state, torch.tensor([0]))


def test_unknown_devices_are_refused():
    assert choose_device("cpu") == torch.device("cpu")
    for name in ("cuda:99", "gpu", "meta", "hpu", "privateuseone", ""):
        with pytest.raises(ValueError, match="device must be"):
            choose_device(name)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_reading_in_windows_equals_reading_at_once(shared, name):
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
    (r, z, n), (state_r, state_z, state_n) = from_input.chunk(3), from_state.chunk(3)
    keep, new = (z + state_z).sigmoid(), (n + (r + state_r).sigmoid() * state_n).tanh()
    return ((1 - keep) * new + keep * state[0],)


@torch.no_grad()
@pytest.mark.parametrize(("name", "step"), [("lstm", lstm_step), ("gru", gru_step)])
def test_recurrent_networks_equal_their_equations(shared, name, step):
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


def test_recurrent_networks_start_from_small_weights_and_can_tie_their_head(words):
    lstm = LSTMLanguageModel(words, LSTMConfig(layers=2, embedding_size=4, hidden_size=6))
    gru = GRULanguageModel(words, GRUConfig(layers=2, embedding_size=4, hidden_size=6))
    assert all(p.abs().max() <= 0.1 for p in (*lstm.parameters(), *gru.parameters()))
    tied = LSTMLanguageModel(words, LSTMConfig(embedding_size=6, hidden_size=6, tied=True))
    assert tied.head.weight is tied.embedding.weight


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (LSTMConfig(), {"layers": 0}, "layers must be a whole number from 1 to 1,000, got 0"),
        (LSTMConfig(), {"dropout_in": 1.0}, "dropout_in must lie in"),
        (LSTMConfig(), {"embedding_size": 3, "tied": True}, "got 3 and 200"),
        (TransformerConfig(), {"heads": 5}, "multiple of heads, got 192 and 5"),
        (TransformerConfig(), {"dropout": -0.1}, "dropout must lie in"),
        (TransformerConfig(), {"max_length": 0}, "max_length must be a whole number"),
        (Seq2SeqConfig(), {"cell": "rnn"}, "cell must be one of"),
        (Seq2SeqConfig(), {"hidden_size": 0}, "hidden_size must be a whole number"),
        (Seq2SeqConfig(), {"dropout_out": 1.0}, "dropout_out must lie in"),
        (Seq2SeqConfig(), {"initial_range": -1}, "initial_range must be positive"),
    ],
)
def test_invalid_configurations_are_refused(config, changes, message):
    with pytest.raises(ValueError, match=message):
        replace(config, **changes)


START, AFTER = [0.25, 0.75, 0.0], [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.2, 0.3, 0.5]]


def test_a_table_has_exactly_its_given_probabilities():
    model = TableModel(START, AFTER)
    first = model.log_probs(model.start(2)).exp()
    torch.testing.assert_close(first, torch.tensor([START, START]))
    state = model.advance(model.start(3, anywhere=True), torch.tensor([2, 0, 1]))
    log_probs = model.log_probs(state)
    torch.testing.assert_close(log_probs.exp(), torch.tensor([AFTER[2], AFTER[0], AFTER[1]]))
    assert log_probs[2].tolist() == [-torch.inf, -torch.inf, 0.0]
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
def test_tables_that_are_not_distributions_are_refused(start, after):
    with pytest.raises(ValueError, match="start and after must"):
        TableModel(start, after)
