"""The smallest scale of the audit of users fills every table, and is found again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reproduction.provenance.audit_tables import _obfuscation
from reproduction.provenance.audited_texts import (
    AuditedText,
    read_audited,
    read_other_domain,
)
from reproduction.provenance.paper_tables import FULL, SMALL, SMOKE, run
from reproduction.tables import Table
from vestige.data.corpus import Corpus
from vestige.errors import DataError


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("provenance")


@pytest.fixture(scope="module")
def tables(directory: Path) -> dict[str, Table]:
    return {table.name: table for table in run(SMOKE, directory)}


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
    again = run(SMOKE, directory, monitor=listener)
    assert not [line for line in listener.lines if "trained" in line]
    assert sorted((directory / "trials").rglob("*.sqlite")) == kept
    assert [path.stat().st_mtime_ns for path in kept] == before
    assert [len(table.entries) for table in again] == [len(tables[t.name].entries) for t in again]


def test_groups_share_nobody_and_have_as_much_text() -> None:
    read = read_audited(SMOKE.targets[0].setting.text, None)
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
    read = read_audited(replace(SMOKE.targets[0].setting.text, vocabulary_size=1000), None)
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
        _obfuscation("apertium")


def test_texts_that_are_reversed_keep_their_users() -> None:
    corpus = Corpus.from_texts(["a b c"], users=["ann"])
    assert list(_obfuscation("reversed")(corpus)) == ["c b a"]
    assert _obfuscation("reversed")(corpus).users == ["ann"]


def test_larger_scales_cover_the_papers_output_sizes() -> None:
    assert SMALL.shown == FULL.shown == (1, 5, 10, 50, 100, 500, 1000)
    assert SMALL.queries == (1, 2, 4, 8, 16, 32)
    assert [len(SMALL.targets), len(FULL.targets)] == [4, 4]
