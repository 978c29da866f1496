"""Token statistics from the nodes of a Ray cluster are those of this machine, whatever dies."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from vestige.audits.membership.membership import membership
from vestige.data.vocabulary import WordVocabulary
from vestige.models import token_statistics as statistics_module
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.token_statistics import CachedOutputs, Nodes, token_statistics
from vestige.monitor import SILENT

CHANCE = np.random.default_rng(0)
TEXTS = [CHANCE.integers(2, 60, n).tolist() for n in CHANCE.integers(3, 20, 40)]


def lstm():
    torch.manual_seed(0)
    words = WordVocabulary(("<unk>", "<eos>", *(f"w{n}" for n in range(58))))
    config = LSTMConfig(layers=1, embedding_size=8, hidden_size=8)
    return LSTMLanguageModel(words, config).eval()


def asked_on_nodes(folder, address, model):
    outputs = CachedOutputs(folder, SILENT, Nodes(address, "cpu"))
    return outputs.statistics(model, {}, TEXTS, task="asking")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # whatever Ray says of itself
def test_a_node_that_dies_costs_its_batch_and_a_driver_that_is_killed_what_was_under_way(
    address, tmp_path, monkeypatch
):
    monkeypatch.setattr(statistics_module, "GROUP_TOKENS", 40)
    model, dies, asked = lstm(), str(tmp_path / "dies"), str(tmp_path / "asked")

    def watch(module, inputs):  # sent with the model
        with Path(asked).open("a") as file:
            file.write("x")
        if Path(asked).stat().st_size >= 5 and not Path(dies).exists():
            Path(dies).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    model.embedding.register_forward_pre_hook(watch)
    groups = statistics_module._groups({str(n): ids for n, ids in enumerate(TEXTS)})
    assert len(groups) > 10
    write, written = statistics_module._write, []

    def killed(store, texts, told):
        write(store, texts, told)
        written.append(str(texts))
        if len(written) == 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(statistics_module, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        asked_on_nodes(tmp_path / "kept", address, model)
    assert Path(dies).exists()
    found = asked_on_nodes(tmp_path / "kept", address, model)
    assert len(set(written)) == len(written) == len(groups)
    here = token_statistics(lstm(), TEXTS)
    for name in vars(here):
        np.testing.assert_allclose(getattr(found, name), getattr(here, name), atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # whatever Ray says of itself
def test_an_audit_on_a_cluster_is_the_audit_of_this_machine(address, tmp_path):
    from tests.audits.membership.test_texts import BASE, NEVER, REFERENCE, TUNED, USED, corpus

    lists = {"texts": corpus(USED, NEVER), "reference": corpus(REFERENCE)}
    here = membership(TUNED, base=BASE, **lists)
    away = membership(TUNED, base=BASE, cluster=address, **lists)
    assert away.summary == here.summary


def test_a_model_over_several_gpus_is_refused_on_nodes():
    with pytest.raises(ValueError, match="`device` balanced must be left out with `cluster`"):
        membership("model", texts="texts", reference="never", cluster="auto", device="balanced")
