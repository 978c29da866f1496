"""The smallest scale of the audit of users fills every table and is read again."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reproduction.papers import compute_tables, paper_numbers, scales_of, settings_of, tables_of
from reproduction.provenance import tables as module
from reproduction.tables import Table
from vestige.data.corpus import Corpus


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("provenance")


@pytest.fixture(scope="module")
def tables(directory: Path) -> dict[str, Table]:
    return {table.name: table for table in compute_tables("provenance", "smoke", directory)}


@pytest.mark.slow
def test_every_table_has_rows_with_intervals_and_both_audits(tables: dict[str, Table]) -> None:
    assert len(tables) == 12
    assert all(len(table.entries) > 1 for table in tables.values())
    rows = [row for table in tables.values() for row in table.entries if "auc" in row]
    assert len(rows) > 50
    for row in rows:
        assert row["auc_low"] <= row["auc"] <= row["auc_high"]
        assert row["ratio"] > 0
    for name in ("audit", "table2", "table3", "figure2", "figure3", "figure4", "table5", "private"):
        observed = [row["audit"] for row in tables[name].entries]
        assert observed.count("paper") == observed.count("ours") > 0


@pytest.mark.slow
def test_only_the_private_model_has_an_epsilon(tables: dict[str, Table]) -> None:
    rows = tables["private"].entries
    assert [(row["epsilon"] is None, row["k"]) for row in rows[::2]] == [
        (plain, k) for plain in (True, False) for k in (120, 120, 50)
    ]
    assert len({row["epsilon"] for row in rows}) == 2
    assert all(row["delta"] == 1e-4 for row in rows if row["epsilon"])
    assert len({row["accuracy_in"] for row in rows}) == 2


@pytest.mark.slow
def test_a_deleted_table_is_recomputed_without_training(directory, tables, listener) -> None:
    before = {file: file.stat().st_mtime_ns for file in directory.rglob("*.safetensors")}
    for name in ("table1", "private"):
        for file in (directory / "results" / name).iterdir():
            file.unlink()
        (directory / "results" / name).rmdir()
    again = compute_tables("provenance", "smoke", directory, monitor=listener)
    assert not [line for line in listener.lines if "trained" in line or "finished" in line]
    assert {file: file.stat().st_mtime_ns for file in directory.rglob("*.safetensors")} == before
    for table in again:
        assert list(table.rows()) == list(tables[table.name].rows())


@pytest.mark.parametrize("scale", ["small", "full"])
def test_larger_scales_have_the_papers_settings(scale: str) -> None:
    """Output sizes, a sampling rate of 0.04, and 300 rounds; p-values of 1% and 5% are exact."""
    settings = {n: table.settings(scale) for n, table in tables_of("provenance").items()}
    assert settings["table3"]["shown"] == (1, 5, 10, 50, 100, 500, 1000)
    training = settings["private"]["dp_training"].training
    users = settings["private"]["crowds"][-1].text.members
    assert training.batch_size / users == 0.04
    assert training.epochs * users // training.batch_size == 300
    targets, crossed = settings["table3"]["targets"], settings["table3"]["crossed"]
    others, crowds = settings["table2"]["others"], settings["figure2"]["crowds"]
    audits = (*targets, *crossed, *others, *crowds)
    assert all((audit.text.compared + 1) % 100 == 0 for audit in audits)
    assert max(settings["figure3"]["queries"]) <= targets[0].text.each
    # audits that are compared differ in one thing
    assert [audit.domain for audit in crossed] == ["wikitext2", "ubuntu-irc"]
    assert {replace(audit, domain=None) for audit in crossed} <= set(targets)
    assert {replace(audit, other_epochs=None) for audit in others} <= set(targets)
    equal = {replace(audit, name="", text=replace(audit.text, members=0)) for audit in crowds}
    assert len(equal) == 1


def test_every_setting_of_a_scale_belongs_to_a_table() -> None:
    for paper in ("provenance", "nlu", "regularization"):
        fields = {name for table in tables_of(paper).values() for name in table.schema.model_fields}
        for scale in ("smoke", "small", "full"):
            assert set(scales_of(paper)[scale]) <= fields


def test_the_papers_aucs_have_corpus_size_and_domain() -> None:
    paper = paper_numbers("provenance", "table3", key=3)
    assert len(paper) == 3 * 7 * 2
    assert paper["reddit", 100, "same"]["paper_auc"] == 0.788
    assert paper["reddit", 100, "cross"]["paper_auc"] == 0.714
    assert paper["cornell", 50, "cross"]["paper_auc"] == 0.610


def test_memory_rows_compare_members_with_others(monkeypatch) -> None:
    audited = Corpus.from_texts(["a", "b", "c", "d"], users=["ann", "bob", "ann", "cy"])
    texts = SimpleNamespace(members=("ann",), others=("bob", "cy"), audited=audited)
    rows = [
        {"figure": "means", "measure": "share", "value": 1},
        {"figure": "ranks", "measure": "share", "value": 2},
        {"figure": "ranks", "measure": "rank", "value": 4},
    ]
    calls = []

    def anatomy(model: object, seen: Corpus, unseen: Corpus, *, orders: int) -> Any:
        calls.append((model, list(seen), list(unseen), orders))
        return SimpleNamespace(rows=rows)

    trial = SimpleNamespace(texts=texts, model=lambda: "target")
    monkeypatch.setattr(module, "trial_of", lambda audit, work: trial)
    monkeypatch.setattr(module, "anatomy", anatomy)
    (audit,) = settings_of("provenance", "figure2", "smoke")["crowds"]
    memory = list(module.memory(None, targets=(replace(audit, name="made"),), ablated=3))
    assert calls == [("target", ["a", "c"], ["b", "d"], 3)]
    assert memory == [{"dataset": "made", **rows[0]}, {"dataset": "made", **rows[2]}]
