"""The benchmark for a GPU runs small on a processor, and predicts by arithmetic."""

import json
import sys
from dataclasses import replace

import pytest
import torch
import update_gpu
from update_gpu import SHAPES, Chip, network, planned, predicted

from vestige.attacks.update.forward_tokens import Passes, Work
from vestige.models.checkpoints import save_model
from vestige.workflows.update_plan import ModelCost


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
        # a prediction is of the search, without the samples that say whether a model predicts
        assert 20 < row["searched_tokens"] < 2 * rows["tiny full, prediction"]["forward_tokens"]
        assert row["searched_tokens"] < row["forward_tokens"]
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
    decode = Passes(proposal="any", kind="decode", rows=64, count=10, asked=64)
    chip = Chip(peak=1e15, bandwidth=1e12, products=0.5, layer=0)
    read = 10 * (shape.nbytes + 4 * 64 * shape.vocabulary) / 1e12
    assert predicted(shape, Work(1, (decode,)), chip) == pytest.approx(2 * read)
    many = replace(decode, rows=10_000, asked=0, before=0.0)
    products = 10 * 10_000 * (2 * shape.cost.body + shape.cost.attention / 2) / 5e14
    assert predicted(shape, Work(1, (many,)), chip) == pytest.approx(products)
    slow = replace(chip, layer=1.0)
    assert predicted(shape, Work(1, (decode,)), slow) == pytest.approx(2 * 10 * shape.layers)


def test_the_default_search_is_planned_for_shapes_that_are_not_made():
    work = planned(SHAPES["8B"], update_gpu.SEARCH)
    assert work.total > 10_000
