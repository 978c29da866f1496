"""The smallest scale of the audit of users fills every table, and is found again."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reproduction.papers import paper_numbers, reproduce, settings_of
from reproduction.provenance import memory_rows
from reproduction.provenance.audited_texts import (
    AuditedText,
    read_audited,
    read_other_domain,
)
from reproduction.provenance.obfuscation import obfuscation
from reproduction.tables import Table
from vestige.data.corpus import Corpus
from vestige.errors import DataError

SMOKE, SMALL, FULL = (
    settings_of("provenance", "table1", scale) for scale in ("smoke", "small", "full")
)
LARGER = pytest.mark.parametrize("scale", [SMALL, FULL], ids=["small", "full"])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("provenance")


@pytest.fixture(scope="module")
def tables(directory: Path) -> dict[str, Table]:
    return {table.name: table for table in reproduce("provenance", "smoke", directory)}


def test_every_table_has_rows(tables: dict[str, Table]) -> None:
    assert len(tables) == 12
    assert all(len(table.entries) > 1 for table in tables.values())


def test_every_auc_has_its_interval_and_its_ratio(tables: dict[str, Table]) -> None:
    rows = [row for table in tables.values() for row in table.entries if "auc" in row]
    assert len(rows) > 50
    for row in rows:
        assert row["auc_low"] <= row["auc"] <= row["auc_high"]
        assert row["ratio"] > 0


def test_both_audits_stand_beside_each_other(tables: dict[str, Table]) -> None:
    for name in ("audit", "table2", "table3", "figure2", "figure3", "figure4", "table5", "private"):
        observed = [row["audit"] for row in tables[name].entries]
        assert observed.count("paper") == observed.count("ours") > 0


def test_privacy_is_stated_beside_the_private_model_only(tables: dict[str, Table]) -> None:
    spent = {row["epsilon"] for row in tables["private"].entries}
    assert None in spent
    assert len(spent) == 2
    assert all(row["delta"] == 1e-4 for row in tables["private"].entries if row["epsilon"])


def test_nothing_is_trained_or_asked_twice(
    directory: Path, tables: dict[str, Table], listener
) -> None:
    kept = sorted((directory / "trials").rglob("*.sqlite"))
    before = [path.stat().st_mtime_ns for path in kept]
    assert kept
    again = reproduce("provenance", "smoke", directory, monitor=listener)
    assert not [line for line in listener.lines if "trained" in line]
    assert sorted((directory / "trials").rglob("*.sqlite")) == kept
    assert [path.stat().st_mtime_ns for path in kept] == before
    assert [len(table.entries) for table in again] == [len(tables[t.name].entries) for t in again]


def test_groups_share_nobody_and_have_as_much_text() -> None:
    read = read_audited(SMOKE.targets[0].text, None)
    reference = set(read.reference.users or ())
    assert not set(read.members) & set(read.others)
    compared = set(read.compared.users or ())
    assert not reference & {*read.members, *read.others}
    assert not compared & {*reference, *read.members, *read.others}
    owners = [read.audited.users, read.reference.users, read.compared.users]
    users, counts = np.unique(
        np.concatenate([np.array(each) for each in owners]), return_counts=True
    )
    assert len(users) == 54
    assert set(counts.tolist()) == {12}


def test_the_vocabulary_is_made_of_nobodys_text_that_is_audited() -> None:
    read = read_audited(replace(SMOKE.targets[0].text, vocabulary_size=1000), None)
    spare = {word for text in read.spare for word in text.lower().split()}
    assert set(read.vocabulary.words[2:]) <= spare
    known = {*(read.reference.users or ()), *(read.compared.users or ())}
    assert not set(read.spare.users or ()) & {*read.members, *read.others, *known}


def test_another_domain_without_users_gets_artificial_ones() -> None:
    corpus = read_other_domain("grammar", 5, 12, None)
    assert len(set(corpus.users or ())) == 5
    assert len(corpus) == 60


def test_a_corpus_that_is_not_there_is_named() -> None:
    text = AuditedText(dataset="reddit", members=2, others=2, reference=2, compared=2, each=2)
    with pytest.raises(DataError, match="needs a folder of corpora"):
        read_audited(text, None)


def test_apertium_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DataError, match="apertium"):
        obfuscation("apertium")


def test_texts_that_are_reversed_keep_their_users() -> None:
    corpus = Corpus.from_texts(["a b c"], users=["ann"])
    assert list(obfuscation("reversed")(corpus)) == ["c b a"]
    assert obfuscation("reversed")(corpus).users == ["ann"]


@LARGER
def test_larger_scales_are_the_papers(scale) -> None:
    """Output sizes, a sampling rate of 0.04 and 300 rounds; p-values of 1 % and 5 % are exact."""
    assert scale.shown == (1, 5, 10, 50, 100, 500, 1000)
    training, users = scale.private.training, scale.crowds[-1].text.members
    assert training.batch_size / users == 0.04
    assert training.epochs * users // training.batch_size == 300
    audits = (*scale.targets, *scale.crossed, *scale.others, *scale.crowds)
    assert all((audit.text.compared + 1) % 100 == 0 for audit in audits)
    assert max(scale.queries) <= scale.targets[0].text.each


@LARGER
def test_audits_that_are_compared_differ_in_one_thing(scale) -> None:
    assert [audit.domain for audit in scale.crossed] == ["wikitext2", "ubuntu-irc"]
    assert {replace(audit, domain=None) for audit in scale.crossed} <= set(scale.targets)
    assert all(replace(audit, other_epochs=None).other is None for audit in scale.others)
    crowds = {
        replace(audit, name="", text=replace(audit.text, members=0)) for audit in scale.crowds
    }
    assert len(crowds) == 1


def test_shadows_of_other_shapes_learn_in_the_other_way() -> None:
    (changed,) = SMOKE.others
    plain = replace(changed, other_epochs=None)
    assert (changed.model, changed.training) == (plain.model, plain.training)
    assert changed.other == replace(
        plain.training, epochs=1, optimizer="sgd", learning_rate=0.1, momentum=0.9
    )


def test_the_papers_auc_are_those_of_the_same_domain_size_and_corpus() -> None:
    paper = paper_numbers("provenance", "table3", key=3)
    assert len(paper) == 3 * 7 * 2
    assert paper["reddit", 100, "same"]["paper_auc"] == 0.788
    assert paper["reddit", 100, "cross"]["paper_auc"] == 0.714
    assert paper["cornell", 50, "cross"]["paper_auc"] == 0.610


def test_memory_rows_are_what_is_drawn_of_members_and_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    audited = Corpus.from_texts(["a", "b", "c", "d"], users=["ann", "bob", "ann", "cy"])
    texts = SimpleNamespace(members=("ann",), others=("bob", "cy"), audited=audited)
    rows = [
        {"figure": "means", "measure": "share", "value": 1},
        {"figure": "ranks", "measure": "share", "value": 2},
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
    assert found == [{"dataset": "made", **rows[0]}, {"dataset": "made", **rows[2]}]
