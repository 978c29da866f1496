"""Rows of tables from made-up trials: which are there, and the paper's numbers beside them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reproduction.provenance import audit_tables, memory_rows
from reproduction.provenance import paper_numbers as paper
from reproduction.provenance.audit_tables import TableRunner, _each
from reproduction.provenance.paper_tables import SMALL, SMOKE, parts_of, run
from vestige.data.corpus import Corpus


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> TableRunner:
    """The small scale, with audits that only say what they were asked for."""
    trial = SimpleNamespace(
        observe=lambda: SimpleNamespace(members=(1, 2)),
        target=SimpleNamespace(),
        setting=SimpleNamespace(text=SimpleNamespace(task="next-word")),
    )
    monkeypatch.setattr(TableRunner, "ready", lambda _, some: [(one, trial) for one in some])
    monkeypatch.setattr(
        audit_tables, "audit_row", lambda _, method, *, k, **labels: {**labels, "k": k, "a": method}
    )
    nothing: Any = None
    return TableRunner(SMALL, Path("nowhere"), nothing, map, nothing)


def test_table3_has_every_output_size_in_both_domains_for_both_audits(runner: TableRunner) -> None:
    rows = list(runner.table3())
    told = {(row["dataset"], row["domain"], row["k"], row["a"]) for row in rows}
    assert len(told) == len(rows) == (len(SMALL.targets) + len(SMALL.crossed)) * 7 * 2


def test_table3_has_the_papers_auc_of_the_same_domain_size_and_corpus(runner: TableRunner) -> None:
    found = {(row["dataset"], row["domain"], row["k"]): row["paper_auc"] for row in runner.table3()}
    assert found["reddit", "same", 100] == 0.788
    assert found["reddit", "cross", 100] == 0.714
    assert found["sated", "same", 5] == 0.838
    assert found["cornell", "cross", 50] == 0.610
    assert found["reddit, early", "same", 100] == 0.788  # the same corpus


def test_table2_has_the_papers_auc_of_each_corpus(runner: TableRunner) -> None:
    found = {row["dataset"]: row["paper_auc"] for row in runner.table2()}
    assert found == {"reddit": 0.993, "sated": 0.981, "cornell": 0.998}


def test_figure2_shows_the_whole_vocabulary_and_fifty_words(runner: TableRunner) -> None:
    rows = list(runner.figure2())
    assert len(rows) == len(SMALL.crowds) * 2 * 2
    assert {row["k"] for row in rows} == {audit_tables.WHOLE, 50}
    assert {row["users"] for row in rows} == {2}


def test_table1_divides_perplexity_out_by_perplexity_in(
    runner: TableRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = SimpleNamespace(
        members=("ann", "bob"),
        inside=SimpleNamespace(accuracy=0.4, perplexity=50.0),
        outside=SimpleNamespace(accuracy=0.3, perplexity=80.0),
    )
    monkeypatch.setattr(audit_tables, "train_shadow", lambda _: target)
    row = next(iter(runner.table1()))
    assert (row["users"], row["ratio"]) == (2, 1.6)
    assert (row["paper_accuracy_in"], row["paper_accuracy_out"]) == (0.184, 0.206)
    assert (row["paper_perplexity_in"], row["paper_perplexity_out"]) == (102.22, 113.14)


def test_a_setting_is_tried_once_whatever_it_is_called(tmp_path: Path) -> None:
    nothing: Any = None
    made = TableRunner(SMOKE, tmp_path, None, map, nothing)
    assert made.trial(SMOKE.targets[0]) is made.trial(SMOKE.crowds[0])
    assert made.trial(SMOKE.targets[0]) is not made.trial(SMOKE.targets[1])


def test_a_changed_text_keeps_its_user_and_its_source() -> None:
    corpus = Corpus.from_texts(["a", "b"], users=["ann", "bob"], sources=["x", "y"])
    changed = _each(corpus, change=str.upper)
    assert list(changed) == ["A", "B"]
    assert (changed.users, changed.sources) == (corpus.users, corpus.sources)


def test_every_table_with_a_text_has_a_way_to_fill_it(runner: TableRunner) -> None:
    parts = parts_of(SMALL, runner)
    assert list(parts) == list(paper.TABLES)
    for name, part in parts.items():
        assert part.title == paper.TABLES[name].title
        assert part.columns[-len(paper.SHOWN) :] == (paper.SHOWN if part.columns else ())


def test_an_unknown_table_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"table must be one of.*figures5-7"):
        run(SMOKE, tmp_path, tables=["table9"])
    assert not list(tmp_path.iterdir())


def test_memory_rows_are_what_is_drawn_of_members_and_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    audited = Corpus.from_texts(["a", "b", "c", "d"], users=["ann", "bob", "ann", "cy"])
    texts = SimpleNamespace(members=("ann",), others=("bob", "cy"), audited=audited)
    rows = [
        {"figure": "means", "measure": "share", "value": 1},
        {"figure": "ranks", "measure": "share", "value": 2},
        {"figure": "histogram", "measure": "rank", "value": 3},
        {"figure": "ranks", "measure": "rank", "value": 4},
    ]
    given = []

    def anatomy(model: object, seen: Corpus, unseen: Corpus, *, orders: int) -> Any:
        given.append((model, list(seen), list(unseen), orders))
        return SimpleNamespace(rows=rows)

    monkeypatch.setattr(memory_rows, "_target", lambda _: "target")
    monkeypatch.setattr(memory_rows, "anatomy", anatomy)
    trial: Any = SimpleNamespace(texts=texts)
    found = list(memory_rows.memory_rows(trial, orders=3, dataset="made"))
    assert given == [("target", ["a", "c"], ["b", "d"], 3)]
    assert found == [{"dataset": "made", **rows[0]}, {"dataset": "made", **rows[3]}]
