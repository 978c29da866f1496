"""Encoder-decoders equal their equations, and with a source they are language models."""

import pytest
import torch

from tests.models.conftest import SOURCES, TARGETS, TRANSLATORS, translator
from tests.models.test_next_token import CLOSE, gru_step, lstm_step
from vestige.models.protocols import TwoParts
from vestige.models.seq2seq import Decoder


@pytest.fixture(params=TRANSLATORS)
def model(request):
    return translator(request.param)


def random_ids(rows, length, top, seed=0):
    return torch.randint(0, top, (rows, length), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def naive(model, source, target):
    """Logits after each token of one target, a step at a time, by Luong's equations."""
    size, lstm = model.config.hidden_size, model.config.cell == "lstm"
    encoder, decoder = (dict(part.named_parameters()) for part in (model.encoder, model.decoder))

    def step(weights, below, state):
        from_input = weights["weight_ih_l0"] @ below + weights["bias_ih_l0"]
        from_state = weights["weight_hh_l0"] @ state[0] + weights["bias_hh_l0"]
        return (lstm_step if lstm else gru_step)(from_input, from_state, state)

    state, outputs, logits = (torch.zeros(size), torch.zeros(size)), [], []
    for token in source:
        state = step(encoder, model.source_embedding.weight[token], state)
        outputs.append(state[0])
    outputs = torch.stack(outputs)
    for token in target:
        state = step(decoder, model.embedding.weight[token], state)
        hidden = state[0]
        if model.config.attention:
            attention = (outputs @ (model.score.weight @ hidden)).softmax(0)
            hidden = torch.tanh(model.mix.weight @ torch.cat([attention @ outputs, hidden]))
        logits.append(model.head.weight @ hidden + model.head.bias)
    return torch.stack(logits)


def test_batches_equal_the_equations(model):
    sources, targets = random_ids(4, 6, len(SOURCES)), random_ids(4, 5, len(TARGETS), 1)
    logits = model(sources, targets)
    for row in range(4):
        torch.testing.assert_close(logits[row], naive(model, sources[row], targets[row]), **CLOSE)
    hidden, _ = model.reading(sources).body(targets)
    assert hidden.shape == (4, 5, 7)
    torch.testing.assert_close(model.predict(hidden), logits)
    torch.testing.assert_close(model.head(hidden), logits)
    torch.testing.assert_close(model(sources, targets[:, :3]), logits[:, :3], **CLOSE)


def test_a_decoder_with_a_source_equals_the_batch(model):
    """It also has the tests of `test_next_token.py`."""
    sources, targets = random_ids(4, 6, len(SOURCES)), random_ids(4, 5, len(TARGETS), 1)
    sources[:, -1], targets[:, 0] = SOURCES.eos_id, TARGETS.eos_id
    expected = model(sources, targets)
    for row in range(4):
        decoder = model.given(SOURCES.decode(sources[row, :-1].tolist()))
        assert isinstance(decoder, TwoParts)
        assert (decoder.vocab_size, decoder.vocabulary) == (len(TARGETS), TARGETS)
        assert decoder.first_token == TARGETS.eos_id
        torch.testing.assert_close(decoder(targets[row : row + 1])[0][0], expected[row], **CLOSE)


def test_one_source_can_have_several_targets(model):
    source, targets = random_ids(1, 4, len(SOURCES)), random_ids(5, 3, len(TARGETS), 2)
    expected = model(source.repeat(5, 1), targets)
    decoder = model.reading(source)
    torch.testing.assert_close(decoder(targets)[0], expected, **CLOSE)
    first, state = decoder(targets[:, :1])
    second, _ = decoder(targets[:, 1:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), expected, **CLOSE)


def test_an_empty_source_is_its_end_token(model):
    decoder = model.given("")
    expected = model(torch.tensor([[SOURCES.eos_id]]), torch.tensor([[TARGETS.eos_id]]))
    torch.testing.assert_close(decoder.logits(decoder.start(1)), expected[0], **CLOSE)


def test_a_model_without_attention_has_no_memory_of_the_encoder():
    plain = translator("lstm")
    assert not {"score", "mix"} & {name for name, _ in plain.named_children()}
    assert plain.given("s1 s2").start(1).memory is None


def test_dropout_is_active_only_in_training_and_never_with_a_source(model):
    sources, targets = random_ids(2, 4, len(SOURCES)), random_ids(2, 5, len(TARGETS), 1)
    expected = model(sources, targets)
    before = model.given("s1 s2").logits(model.given("s1 s2").start(1))
    model.train()
    assert not torch.equal(model(sources, targets), expected)
    decoder = model.given("s1 s2")
    assert not decoder.training
    torch.testing.assert_close(decoder.logits(decoder.start(1)), before)
    torch.testing.assert_close(decoder(targets)[0], decoder(targets)[0])
    assert model.reading(sources).training
    model(sources, targets).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_several_sources_need_one_row_each(model):
    decoder = model.reading(random_ids(3, 4, len(SOURCES)))
    assert isinstance(decoder, Decoder)
    with pytest.raises(ValueError, match="a row for each of 3 sources, got 1"):
        decoder.start(3)
    with pytest.raises(ValueError, match="a row for each of 3 sources, got 2"):
        decoder(random_ids(2, 2, len(TARGETS)))
