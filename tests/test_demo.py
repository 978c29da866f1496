"""The demo plants its secret only in Madison's papers, and compares two snapshots."""

import json
from dataclasses import replace

import pytest

from tests.cli.conftest import shell
from vestige import results
from vestige.data.canaries.texts import Manifest
from vestige.data.corpus import Corpus
from vestige.data.formats import federalist
from vestige.data.formats.reading import read_corpus
from vestige.demo import COPIES, SECRET, demo
from vestige.errors import RunError
from vestige.models.checkpoints import load_model
from vestige.training import presets

__all__ = ["shell"]


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory, shell):
    """The command's output and folder; it reads a few sentences and trains a tiny model."""

    def read(authors, *, documents):
        assert documents == "sentence"
        words = [f"{first}ov{second}a" for first in "abcdefgh" for second in "abcdefgh"]
        return Corpus.from_texts(
            [f"{author} wrote of {word}" for author in authors for word in words]
        )

    preset = presets.PRESETS["demo"]
    model = replace(preset.model, embedding_size=8, hidden_size=8)
    small = replace(preset, model=model, training=replace(preset.training, epochs=1))
    out = tmp_path_factory.mktemp("demo") / "demo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(presets.PRESETS, "demo", small)
        patch.setattr(federalist, "read_federalist", read)
        done = shell("demo", "--seed", 3, "--out", out)
    assert done.exit_code == 0, (done.stderr, done.exception)
    return done, out


def test_all_files_of_the_demo_are_written(demo_run, shell):
    _, out = demo_run
    planted = list(read_corpus(out / "planted" / "corpus.jsonl"))
    assert planted.count(SECRET) == COPIES
    assert all(text == SECRET or text.startswith("Madison") for text in planted)
    assert Manifest.load(out / "planted" / "manifest.json").seed == 3
    assert shell("plant", out / "planted", "--verify").exit_code == 0
    before, after = (load_model(out / name) for name in ("before", "after"))
    assert before.vocabulary.fingerprint() == after.vocabulary.fingerprint()
    run = results.load(out / "run")
    assert (run.result, run.run["verb"], run.run["seed"]) == ("UpdateDiff", "demo", 3)
    assert set(run.run["models"]) == {"before", "after"}
    assert run.run["configuration"]["secret"] == SECRET
    assert "This page shows secrets" in (out / "report.html").read_text()
    for path in (out, *out.rglob("*")):  # the page shows a secret
        is_model = "model" in path.relative_to(out.parent).parts
        assert is_model or path.stat().st_mode & 0o077 == 0, path


def test_the_terminal_shows_why_it_is_undecided_and_the_next_step(demo_run):
    done, out = demo_run
    assert done.stdout.startswith("UNDECIDED  ")
    (line,) = [line for line in done.stdout.splitlines() if "BEFORE AFTER --clean" in line]
    assert line.startswith("Without null models, nothing shows which scores occur without a leak.")
    assert SECRET in done.stdout
    assert f"{out / 'report.html'}\n" in done.output
    steps = [line[:3] for line in done.stderr.splitlines() if line[1:2] == "/"]
    assert steps == ["1/4", "2/4", "3/4", "4/4"]
    summary = results.load(out / "run").summary
    assert json.loads(json.dumps(summary))["verdict"] == "undecided"


def test_a_missing_text_leaves_no_files_and_names_the_package(shell, tmp_path, monkeypatch):
    monkeypatch.setattr("vestige.data.formats.federalist.find_spec", lambda _: None)
    done = shell("demo", "--out", tmp_path / "demo")
    assert done.exit_code == 2
    assert "pip install 'vestige[demo]'" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_existing_directory_is_refused(tmp_path):
    with pytest.raises(RunError, match="exists"):
        demo(out=tmp_path)
