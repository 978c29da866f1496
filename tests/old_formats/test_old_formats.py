"""Models and ledgers of trainings that earlier states of the formats wrote are read."""

import tarfile
from pathlib import Path

import pytest
import torch

from vestige.models.checkpoints import load_intent_slot, load_model
from vestige.privacy.ledger import from_json

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name)
def old(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(request.param) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("name", ["lstm", "gru", "transformer", "table"])
def test_models_load(old, name):
    model = load_model(old / "models" / name)
    assert model.architecture == name
    scores = model.log_probs(model.start(2))
    torch.testing.assert_close(scores.exp().sum(1), torch.ones(2))


def test_trainings_are_models(old):
    assert load_model(old / "target").architecture == "lstm"
    assert load_intent_slot(old / "nlu").tags


def test_ledgers_are_read(old):
    files = [*old.rglob("privacy.json")]
    assert files
    for file in files:
        assert from_json(file.read_bytes(), where=file)
