"""Models and ledgers in earlier file formats are read."""

import tarfile
from pathlib import Path

import pytest
import torch

from vestige.models.checkpoints import load_intent_slot, load_model
from vestige.privacy.ledger import from_json


@pytest.fixture(
    scope="module",
    params=sorted(Path(__file__).parent.glob("*.tar.xz")),
    ids=lambda path: path.name,
)
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(request.param) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("name", ["lstm", "gru", "transformer", "table"])
def test_models_are_loaded(folder, name):
    model = load_model(folder / "models" / name)
    assert model.architecture == name
    log_probs = model.log_probs(model.start(2))
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(2))


def test_training_folders_are_loaded_as_models(folder):
    assert load_model(folder / "target").architecture == "lstm"
    assert load_intent_slot(folder / "nlu").tags


def test_ledgers_are_read(folder):
    files = [*folder.rglob("privacy.json")]
    assert files
    for file in files:
        assert from_json(file.read_bytes(), where=file)
