"""The benchmark for a GPU runs small on a processor, and predicts by arithmetic."""

import json
import sys
from dataclasses import replace

import pytest
import torch
import update_gpu
from update_gpu import SHAPES, Chip, ModelCost, network, planned, predicted

from vestige.audits.update.plan import Steps
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.shared_ids import SharedIds
from vestige.models.transformer import CausalTransformer, TransformerConfig


def printed(monkeypatch, capsys, *options):
    monkeypatch.setattr(torch, "compile", lambda forward, dynamic: forward)  # minutes otherwise
    monkeypatch.setattr(sys, "argv", ["update_gpu.py", "--tiny", *options])
    update_gpu.main()
    text = capsys.readouterr().out
    return text, {row["pair"]: row for row in json.loads(text.splitlines()[-1])["rows"]}


def test_small_models_go_through_all_of_it(monkeypatch, capsys):
    text, rows = printed(monkeypatch, capsys)
    assert "Random weights prove speed alone" in text
    assert set(rows) == {
        "tiny full, prediction", "tiny step", "tiny full, random weights",
        "tiny adapter, random weights",
    }  # fmt: skip
    for kind in ("full", "adapter"):
        row = rows[f"tiny {kind}, random weights"]
        assert 20 < row["searched_tokens"] < 2 * rows["tiny full, prediction"]["forward_tokens"]
        assert row["searched_tokens"] == row["forward_tokens"]
        assert row["seconds"] > 0
        assert row["over_own_passes"] > 0
    assert rows["tiny step"]["eager"] > 0


@pytest.mark.long  # two trainings and two searches
def test_a_trained_pair_is_searched(monkeypatch, capsys, tmp_path):
    save_model(network(SHAPES["tiny"], torch.device("cpu")), tmp_path / "base")
    text = tmp_path / "text.jsonl"
    text.write_text("".join(json.dumps({"text": f"n {i} and n {i}"}) + "\n" for i in range(16)))
    _, rows = printed(monkeypatch, capsys, "--train", str(tmp_path / "base"), str(text))
    for kind in ("full", "lora"):
        assert rows[f"base {kind}, trained"]["forward_tokens"] > 20


def test_a_shape_counts_what_the_network_has():
    shape = SHAPES["tiny"]
    counted, real = shape.cost, ModelCost.of(network(shape, torch.device("cpu")))
    assert (counted.head, counted.attention) == (real.head, real.attention)
    assert counted.body == pytest.approx(real.body, rel=0.02)  # norms
    assert SHAPES["8B"].cost.body + 2 * SHAPES["8B"].cost.head == pytest.approx(8.03e9, rel=0.01)
    assert SHAPES["1B"].cost.body + SHAPES["1B"].cost.head == pytest.approx(1.24e9, rel=0.01)


def test_a_prediction_is_what_takes_longest():
    shape = SHAPES["8B"]
    decode = Steps(rows=64, steps=10)
    chip = Chip(peak=1e15, bandwidth=1e12, products=0.5, layer=0)
    read = 10 * (shape.nbytes + 4 * 64 * shape.vocabulary) / 1e12
    assert predicted(shape, [decode], chip) == pytest.approx(2 * read)
    many = Steps(rows=10_000, steps=10, before=0.0)
    products = shape.cost.operations(many) / 5e14
    assert predicted(shape, [many], chip) == pytest.approx(products)
    slow = replace(chip, layer=1.0)
    assert predicted(shape, [decode], slow) == pytest.approx(2 * 10 * shape.layers)


def test_the_default_search_is_planned_for_shapes_that_are_not_made():
    work = planned(SHAPES["8B"], update_gpu.SEARCH)
    assert sum(one.tokens for one in work) > 10_000


WORDS = [f"word{i}" for i in range(38)]


def vocabulary():
    return WordVocabulary(("<unk>", "<eos>", *WORDS))


def test_a_token_costs_two_operations_a_parameter():
    model = LSTMLanguageModel(
        vocabulary(), LSTMConfig(layers=2, embedding_size=8, hidden_size=8, tied=False)
    )
    cost = ModelCost.of(model)
    assert cost.body == 2 * (4 * 8 * (8 + 8) + 2 * 4 * 8) + 40  # gates with biases, the head's bias
    assert (cost.head, cost.attention) == (40 * 8, 0)
    assert cost.operations(Steps(rows=3, steps=5)) == 5 * 3 * 2 * (cost.body + cost.head)


def test_attention_costs_four_widths_a_layer_for_each_token_behind():
    shape = TransformerConfig(layers=2, heads=2, hidden_size=8, feed_forward=16, max_length=12)
    cost = ModelCost.of(CausalTransformer(vocabulary(), shape))
    assert cost.attention == 4 * 2 * 8
    without = replace(cost, attention=0)
    step = Steps(rows=1, steps=1)
    assert cost.operations(step) - without.operations(step) == update_gpu.BEHIND * cost.attention


def test_over_shared_ids_a_model_costs_what_it_costs():
    model = network(SHAPES["tiny"], torch.device("cpu"))
    shared = SharedIds(model, model.vocabulary, width=model.vocab_size, lacked=())
    assert ModelCost.of(shared) == ModelCost.of(model)
    assert ModelCost.of(model).head > 0
