"""The demo plants its secret in Madison's papers alone, and reads it back from two snapshots."""

from dataclasses import replace

import pytest

from tests.told import Told
from vestige import results
from vestige.data.canaries.texts import Manifest
from vestige.data.corpus import Corpus
from vestige.data.formats import federalist
from vestige.data.formats.reading import read_corpus
from vestige.demo import COPIES, SECRET, demo
from vestige.errors import DataError, RunError
from vestige.models.checkpoints import load_model
from vestige.training import presets


@pytest.fixture
def short(monkeypatch):
    """A few sentences in place of the papers, and a model that learns them in a moment."""
    full = presets.PRESETS["demo"]
    small = replace(
        full,
        model=replace(full.model, embedding_size=8, hidden_size=8),
        training=replace(full.training, epochs=1),
    )
    monkeypatch.setitem(presets.PRESETS, "demo", small)

    def read(authors, *, documents):
        assert documents == "sentence"
        letters = "abcdefgh"
        words = [f"{one}ov{other}a" for one in letters for other in letters]
        texts = [f"{one} wrote of {word}" for one in authors for word in words]
        return Corpus.from_texts(texts)

    monkeypatch.setattr(federalist, "read_federalist", read)


def test_the_whole_way_is_written_and_told(short, tmp_path):
    told, out = Told(), tmp_path / "demo"
    found = demo(out=out, seed=3, monitor=told)
    planted = list(read_corpus(out / "planted" / "corpus.jsonl"))
    assert planted.count(SECRET) == COPIES
    assert all(text == SECRET or text.startswith("Madison") for text in planted)
    assert Manifest.load(out / "planted" / "manifest.json").seed == 3
    before, after = (load_model(out / name) for name in ("before", "after"))
    assert before.vocabulary.fingerprint() == after.vocabulary.fingerprint()
    run = results.load(out / "run")
    assert (run.run["verb"], run.run["seed"]) == ("demo", 3)
    assert set(run.run["models"]) == {"before", "after"}
    assert run.run["configuration"]["secret"] == SECRET
    summary = {name: run.summary[name] for name in run.summary if name not in ("claim", "verdict")}
    assert summary.items() <= results.plain(found.summary).items()
    assert run.result == "UpdateDiff"
    assert (out / "report.html").is_file()
    assert [line[:3] for line in told.lines] == ["1/4", "2/4", "3/4", "4/4", "Pla"]
    assert told.tasks == ["training", "training", "planning: timing", "searching"]


def test_without_its_text_it_leaves_nothing(monkeypatch, tmp_path):
    def missing(*_, **__):
        raise DataError("not installed", remedy="Install it.")

    monkeypatch.setattr(federalist, "read_federalist", missing)
    with pytest.raises(DataError, match="not installed"):
        demo(out=tmp_path / "demo")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_there_is_refused(tmp_path):
    with pytest.raises(RunError, match="exists"):
        demo(out=tmp_path)


def test_the_first_screen_says_why_it_is_undecided_and_what_to_do(short, tmp_path):
    found = demo(out=tmp_path / "demo", seed=3)
    assert (found.verdict, found.exit_code) == ("undecided", 0)
    (report,) = found.reports(show_secrets=False)
    assert report.headline[0].startswith("UNDECIDED  ")
    (line,) = [line for line in report.headline if "vestige diff BEFORE AFTER --clean" in line]
    assert line.startswith("Without null models, nothing shows which scores occur without a leak.")
    assert any(SECRET in line for line in report.headline)
