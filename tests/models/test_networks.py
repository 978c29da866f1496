"""The networks of our own: their parameters, their dropout, the state that training carries."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from vestige.data.vocabulary import WordVocabulary
from vestige.models.recurrent_network import (
    GRUConfig,
    GRULanguageModel,
    LSTMConfig,
    LSTMLanguageModel,
)
from vestige.models.transformer import TransformerConfig


def test_the_lstm_consists_of_plain_layers(words: WordVocabulary) -> None:
    model = LSTMLanguageModel(words, LSTMConfig(layers=2, embedding_size=4, hidden_size=6))
    assert [type(child) for child in model.children()] == [nn.Embedding, nn.LSTM, nn.Linear]
    assert all(parameter.abs().max() <= 0.1 for parameter in model.parameters())
    assert model.head.weight.shape == (20, 6)


def test_the_tied_lstm_has_one_matrix_for_words(words: WordVocabulary) -> None:
    model = LSTMLanguageModel(words, LSTMConfig(embedding_size=6, hidden_size=6, tied=True))
    assert model.head.weight is model.embedding.weight


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_text_read_in_windows_equals_the_text_read_at_once(
    make: dict[str, Any], name: str
) -> None:
    model = make[name]()
    tokens = torch.randint(0, 20, (3, 9), generator=torch.Generator().manual_seed(0))
    expected, _ = model(tokens)
    first, state = model(tokens[:, :4])
    assert state.hidden.requires_grad
    assert not state.detach().hidden.requires_grad
    second, _ = model(tokens[:, 4:], state.detach())
    torch.testing.assert_close(torch.cat([first, second], 1), expected)


def test_the_lstm_equals_its_equations(make: dict[str, Any]) -> None:
    model = make["lstm"]()
    tokens = torch.tensor([5, 9, 3])
    expected, _ = model(tokens[None])
    weights = dict(model.lstm.named_parameters())
    h, c = torch.zeros(2, 12), torch.zeros(2, 12)
    for position, token in enumerate(tokens):
        below = model.embedding.weight[token]
        for layer in range(2):
            gates = (
                weights[f"weight_ih_l{layer}"] @ below
                + weights[f"bias_ih_l{layer}"]
                + weights[f"weight_hh_l{layer}"] @ h[layer]
                + weights[f"bias_hh_l{layer}"]
            )
            i, f, g, o = gates.chunk(4)
            cell = f.sigmoid() * c[layer] + i.sigmoid() * g.tanh()
            below = o.sigmoid() * cell.tanh()
            h = torch.cat([h[:layer], below[None], h[layer + 1 :]])
            c = torch.cat([c[:layer], cell[None], c[layer + 1 :]])
        logits = functional.linear(below, model.head.weight, model.head.bias)
        torch.testing.assert_close(logits, expected[0, position], rtol=1e-4, atol=1e-5)


def test_the_gru_equals_its_equations(make: dict[str, Any]) -> None:
    model = make["gru"]()
    tokens = torch.tensor([5, 9, 3])
    expected, _ = model(tokens[None])
    weights = dict(model.gru.named_parameters())
    h = torch.zeros(2, 12)
    for position, token in enumerate(tokens):
        below = model.embedding.weight[token]
        for layer in range(2):
            given = weights[f"weight_ih_l{layer}"] @ below + weights[f"bias_ih_l{layer}"]
            held = weights[f"weight_hh_l{layer}"] @ h[layer] + weights[f"bias_hh_l{layer}"]
            (r, z, n), (own_r, own_z, own_n) = given.chunk(3), held.chunk(3)
            keep = (z + own_z).sigmoid()
            new = (n + (r + own_r).sigmoid() * own_n).tanh()
            below = (1 - keep) * new + keep * h[layer]
            h = torch.cat([h[:layer], below[None], h[layer + 1 :]])
        logits = functional.linear(below, model.head.weight, model.head.bias)
        torch.testing.assert_close(logits, expected[0, position], rtol=1e-4, atol=1e-5)


def test_a_gru_has_the_shape_of_an_lstm_and_three_gates(words: WordVocabulary) -> None:
    model = GRULanguageModel(words, GRUConfig(layers=2, embedding_size=4, hidden_size=6))
    assert [type(child) for child in model.children()] == [nn.Embedding, nn.GRU, nn.Linear]
    assert model.gru.weight_hh_l1.shape == (18, 6)
    assert all(parameter.abs().max() <= 0.1 for parameter in model.parameters())


def test_a_later_token_does_not_change_an_earlier_answer(make: dict[str, Any]) -> None:
    model = make["transformer"]()
    tokens = torch.randint(0, 20, (2, 8), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[:, 5] = (tokens[:, 5] + 1) % 20
    before, after = model(tokens)[0], model(changed)[0]
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
def test_an_impossible_shape_is_refused(config: Any, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        replace(config, **changes)
