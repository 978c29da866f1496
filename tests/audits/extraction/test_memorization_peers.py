"""Memorization compared with the code of OpenUnlearning and PrivacyGuard, on the same model.

Neither can be installed together with Vestige: `VESTIGE_PEER_CHECKOUTS` is a folder with checkouts
of github.com/locuslab/open-unlearning and github.com/facebookresearch/PrivacyGuard.
"""

import importlib
import importlib.util
import math
import os
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pandas
import pytest
import torch

from vestige.audits.extraction import memorization
from vestige.models.token_statistics import token_statistics

CHECKOUTS = os.environ.get("VESTIGE_PEER_CHECKOUTS")
VOCABULARY, LENGTH, IGNORED = 60, 24, -100


@pytest.fixture
def checkout(monkeypatch):
    """Makes a checkout importable; the modules that are `absent` are mocked."""

    def load(root, *, absent=()):
        folder = Path(CHECKOUTS or "", root)
        if CHECKOUTS is None or not folder.is_dir():
            pytest.skip(f"VESTIGE_PEER_CHECKOUTS names no folder with {root}")
        monkeypatch.syspath_prepend(str(folder))
        for name in absent:
            monkeypatch.setitem(sys.modules, name, mock.MagicMock(IGNORE_INDEX=IGNORED))
        return folder

    return load


@pytest.fixture(scope="module")
def network():
    """A GPT-2 that knows the first ten texts verbatim, and these texts with six others."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=1, n_head=2)
    )
    texts = torch.randint(1, VOCABULARY, (16, LENGTH))
    start = torch.zeros(16, 1, dtype=torch.int64)
    rows = torch.cat([start, texts], dim=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        model(rows[:10], labels=rows[:10]).loss.backward()
        optimizer.step()
    return model.eval(), rows


@pytest.fixture(scope="module")
def statistics(network):
    network, rows = network

    class Model(torch.nn.Module):
        first_token, vocab_size, device = 0, VOCABULARY, torch.device("cpu")
        vocabulary, separate_head, carries_state = range(VOCABULARY), False, False

        def body(self, tokens, state=None):
            return network(tokens).logits, None

        def predict(self, hidden):
            return hidden

    return token_statistics(Model().eval(), [row[1:].tolist() for row in rows], likeliest=20)


def test_exact_memorization_and_extraction_strength_equal_openunlearning(
    checkout, network, statistics, monkeypatch
):
    absent = ("rouge_score", "omegaconf", "data", "data.utils", "evals", "evals.metrics")
    folder = checkout("open-unlearning/src", absent=absent)
    plain = mock.MagicMock(unlearning_metric=lambda name: lambda function: function)
    monkeypatch.setitem(sys.modules, "evals.metrics.base", plain)
    for name in ("utils", "memorization"):
        file = folder / f"evals/metrics/{name}.py"
        spec = importlib.util.spec_from_file_location(f"evals.metrics.{name}", file)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
    model, rows = network
    # OpenUnlearning ignores the last labelled token, the end of an answer, so we append one.
    longer = torch.cat([rows, torch.ones(len(rows), 1, dtype=torch.int64)], dim=1)
    labels = longer.clone()
    labels[:, 0] = IGNORED
    items = [
        {"input_ids": ids, "labels": row, "index": index}
        for index, (ids, row) in enumerate(zip(longer, labels, strict=True))
    ]
    options = {"data": items, "collators": None, "batch_size": 4}
    exact = module.exact_memorization(model, **options)["value_by_index"]
    strength = module.extraction_strength(model, **options)["value_by_index"]
    strengths = set()
    for index, start in enumerate(statistics.offsets[:-1]):
        ranks = statistics.ranks[start : start + LENGTH]
        result = memorization.verbatim_measures(ranks > 1)
        assert result["exact"] == pytest.approx(exact[index]["score"], abs=1e-4)
        # OpenUnlearning gives 1 / n if nothing is extracted: its loop omits the empty suffix.
        expected = result["strength"] or 1 / LENGTH
        assert expected == pytest.approx(strength[index]["score"], abs=1e-4)
        strengths.add(round(expected, 2))
    assert len(strengths) > 2


@pytest.mark.parametrize(("top_k", "temperature"), [(20, 1.0), (5, 0.7), (1, 1.0), (20, 1.5)])
def test_discoverable_extraction_equals_privacyguard(
    checkout, network, statistics, top_k, temperature
):
    name = "privacy_guard.analysis.extraction.probabilistic_memorization_analysis_from_logits_node"
    checkout("PrivacyGuard")
    node = importlib.import_module(name)
    model, rows = network
    log_probs = memorization.sampled_log_probs(statistics, top_k=top_k, temperature=temperature)
    with torch.no_grad():
        logits = model(rows).logits[:, :-1]
    probabilities = []
    for index, start in enumerate(statistics.offsets[:-1]):
        log_prob = memorization.passage_sums(log_probs[start : start + LENGTH], 8, 12)[0]
        row = pandas.Series({"logits": logits[index, 8:20], "tokens": rows[index, 9:21]})
        expected = node._compute_model_probability_from_logits(
            row, "logits", "tokens", top_k=top_k, temperature=temperature
        )
        assert math.exp(log_prob) == pytest.approx(expected, abs=1e-4)
        if expected:
            assert log_prob == pytest.approx(math.log(expected), abs=1e-4)
        probabilities.append(expected)
        n = float(memorization.samples_needed(log_prob, probability=0.5))
        if 1 < n < 1e6:
            success = node._compute_n_probabilities_dict(expected, [n])[n]
            assert success == pytest.approx(0.5, abs=1e-4)
    assert max(probabilities) > 0.1 > min(probabilities)
    assert np.isfinite(probabilities).all()
