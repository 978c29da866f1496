"""What earlier versions wrote is read: archives of `make.py`, one for each state of the formats."""

import importlib.util
import json
import shutil
import tarfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.cli.shell import invoke
from vestige import results
from vestige.data.canaries.texts import Manifest
from vestige.data.canaries.utterances import SecretManifest
from vestige.data.encoded import load_encoded
from vestige.models.checkpoints import load_intent_slot, load_model

HERE = Path(__file__).parent
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ARCHIVES = sorted(HERE.glob("*.tar.xz"))
RUNS = {
    "run-anatomy", "run-audit-users/run", "run-compare/run", "run-complete", "run-diff",
    "run-exposure", "run-extract-nlu", "run-rank", "run-reproduce/results/figure1",
    "run-train/run", "run-train-nlu/run", "run-train-pairs/run", "run-train-private/run",
}  # fmt: skip
PRIVATE = {"dp-sgd", "dp-fedavg"}


def module(path):
    spec = importlib.util.spec_from_file_location(f"old_formats_{path.stem}", path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


TRAININGS = module(HERE / "make.py").TRAININGS
AUDIT = module(BENCHMARKS / "every_verb.py").COMMANDS["membership users"][:-1]


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name)
def old(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(request.param) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_run_directory_loads_and_becomes_a_page(old, name, tmp_path):
    run = results.load(old / name)
    assert run.summary
    assert run.rows
    done = invoke(["report", old / name, "--show-secrets", "--out", tmp_path / "page.html"])
    assert done.finished, done.stderr  # 3 where the verdict of an older version is not checked
    assert "<article" in (tmp_path / "page.html").read_text("utf-8")


def test_every_run_of_the_archive_is_looked_at(old):
    found = {str(file.parent.relative_to(old)) for file in old.rglob("summary.json")}
    assert {name for name in found if name.startswith("run-")} == RUNS


def test_manifests_and_their_corpora_load(old, tmp_path):
    manifest = Manifest.load(old / "planted" / "manifest.json")
    planted = (old / "planted" / "corpus.jsonl").read_text("utf-8")
    for canary in manifest.canaries:
        assert planted.count(canary.phrase) == canary.copies
    assert max(canary.copies for canary in manifest.canaries) == 4
    secrets = SecretManifest.load(old / "secrets" / "manifest.json")
    assert max(secret.copies for secret in secrets.canaries) == 10


@pytest.mark.parametrize("name", ["lstm", "gru", "transformer", "table"])
def test_models_load(old, name):
    model = load_model(old / "models" / name)
    assert model.architecture == name
    scores = model.log_probs(model.start(2))
    torch.testing.assert_close(scores.exp().sum(1), torch.ones(2))


def test_trainings_are_models(old):
    assert load_model(old / "target").architecture == "lstm"
    assert load_intent_slot(old / "nlu").tags


def test_an_encoded_corpus_loads(old):
    lines = (old / "mine.jsonl").read_text("utf-8").splitlines()
    vocabulary = load_model(old / "target").vocabulary
    encoded = load_encoded(old / "target" / "data" / "training")
    texts = [vocabulary.decode(encoded.document(number)) for number in range(len(encoded))]
    assert [text.removesuffix(" <eos>") for text in texts] == [json.loads(s)["text"] for s in lines]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAININGS)
def test_an_unfinished_training_goes_on_to_where_it_would_have_come(
    old, name, tmp_path, monkeypatch
):
    """A private one has chance of its own; another ends where one without a break does."""
    shutil.copytree(old, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    resumed = invoke([*TRAININGS[name], "--out", f"unfinished/{name}", "--resume"])
    assert resumed.exit_code == 0, resumed.stderr
    if name in PRIVATE:
        assert (tmp_path / "unfinished" / name / "run" / "run.json").is_file()
        return
    straight = invoke([*TRAININGS[name], "--out", "straight"])
    assert straight.exit_code == 0, straight.stderr
    weights, expected = (
        load_file(tmp_path / out / "model" / "model.safetensors")
        for out in (f"unfinished/{name}", "straight")
    )
    assert weights.keys() == expected.keys()
    for key in weights:
        torch.testing.assert_close(weights[key], expected[key], rtol=1e-3, atol=1e-4)


def test_an_audit_is_another_now_and_takes_the_shadow_models_that_were_kept(
    old, tmp_path, monkeypatch
):
    shutil.copytree(old, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    before = results.load("run-audit-users/run")
    shutil.rmtree("run-audit-users/run")
    shadows = Path("run-audit-users/shadows")
    trained = {file: file.stat().st_mtime_ns for file in shadows.glob("*/shadow.json")}
    assert trained
    refused = invoke([*AUDIT, "run-audit-users"])
    assert refused.exit_code == 2, refused.stderr
    assert "exists already" in refused.stderr
    done = invoke([*AUDIT, "audit-now", "--shadow-dir", shadows])
    assert done.finished, done.stderr
    assert trained == {file: file.stat().st_mtime_ns for file in shadows.glob("*/shadow.json")}
    audited = [
        {row["user"] for row in one.rows if row["kind"] == "audited"}
        for one in (before, results.load("audit-now"))
    ]
    assert audited[0] == audited[1]
