"""The demo's whole way, on a hundredth of its text."""

import json
from dataclasses import replace

import pytest

from vestige import demo, results
from vestige.data.corpus import Corpus
from vestige.training import presets


@pytest.fixture
def small(monkeypatch):
    """Two invented authors, and a training of one short epoch."""

    def federalist(authors, *, documents):
        names = [f"p{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(60)]
        texts = [f"{who} writes a letter to {name}" for who in authors for name in names]
        return Corpus.from_texts(texts, users=["one"] * len(texts))

    plan = presets.PRESETS["demo"]
    quick = replace(plan.training, epochs=1, batch_size=4, sequence_length=8)
    shape = replace(plan.model, embedding_size=8, hidden_size=8)
    monkeypatch.setattr("vestige.data.formats.federalist.read_federalist", federalist)
    monkeypatch.setitem(presets.PRESETS, "demo", replace(plan, training=quick, model=shape))
    monkeypatch.setattr(demo, "VOCABULARY", 300)


@pytest.mark.usefixtures("small")
def test_the_demo_leaves_snapshots_a_run_and_a_page(shell, tmp_path):
    done = shell("demo", "--out", tmp_path / "demo", "--json")
    assert done.exit_code == 0, (done.stderr, done.exception)
    summary = json.loads(done.stdout)
    assert summary["page"] == str(tmp_path / "demo" / "report.html")
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "This page shows secrets" in page
    run = results.load(tmp_path / "demo" / "run")
    assert set(run.run["models"]) == {"before", "after"}
    assert shell("plant", tmp_path / "demo" / "planted", "--verify").exit_code == 0
    for path in (tmp_path / "demo", *(tmp_path / "demo").rglob("*")):  # the page shows a secret
        released = "model" in path.relative_to(tmp_path).parts
        assert released or path.stat().st_mode & 0o077 == 0, path


@pytest.mark.usefixtures("small")
def test_the_demo_prints_the_secret_and_where_the_page_is(shell, tmp_path):
    done = shell("demo", "--out", tmp_path / "demo")
    assert demo.SECRET in done.stdout
    assert f"{tmp_path / 'demo' / 'report.html'}\n" in done.stdout


def test_without_its_text_the_demo_says_how_to_get_it(shell, tmp_path, monkeypatch):
    monkeypatch.setattr("vestige.data.formats.federalist.find_spec", lambda _: None)
    done = shell("demo", "--out", tmp_path / "demo")
    assert done.exit_code == 2
    assert "pip install 'vestige[demo]'" in done.stderr
    assert list(tmp_path.iterdir()) == []
