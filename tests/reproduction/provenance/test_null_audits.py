"""Whole audits of people who were never in: everything is redrawn, and the test can fail."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from reproduction.provenance import null_audits as audit_null
from reproduction.provenance.null_audits import (
    NullAudit,
    NullAudits,
    null_audit,
    null_rows,
    null_trials,
)
from reproduction.runner import run_trials

NULL = NullAudits(
    dataset="grammar", members=8, audited=8, known=40, fewest=6, most=12, epochs=2, repetitions=2
)


def test_everybody_plays_one_part_and_has_their_own_amount_of_text() -> None:
    people = audit_null._drawn(NULL, 3, None)
    known = people.known
    groups = (people.members, people.audited, known.counted, known.fitted, known.compared)
    names = [name for group in groups for name in group]
    assert len(names) == len(set(names)) == 56
    users, counts = np.unique(np.array(people.whole.users), return_counts=True)
    assert set(users) == set(names)
    assert set(counts) == {12}  # in the grammar everybody has 20
    taught = people.of(known.fitted, known.counted)
    assert set(taught.users or ()) == {*known.fitted, *known.counted}


def test_another_repetition_draws_everything_anew(tmp_path: Path) -> None:
    first, second = (audit_null._drawn(NULL, repetition, None) for repetition in (0, 1))
    for part in ("members", "audited"):
        assert set(getattr(first, part)) != set(getattr(second, part))
    for part in ("counted", "fitted", "compared"):
        assert set(getattr(first.known, part)) != set(getattr(second.known, part))
    jobs = [
        audit_null._trained(NULL, repetition, people, tmp_path)
        for repetition, people in enumerate((first, second))
    ]
    digests = [job.digest for target, shadows in jobs for job in (target, *shadows)]
    assert len(set(digests)) == 10
    for people, (target, shadows) in zip((first, second), jobs, strict=True):
        out = {*people.audited, *people.known.compared}
        assert not out & set(target.members)
        assert not out & {name for shadow in shadows for name in shadow.members}


@pytest.mark.slow
def test_people_who_were_learnt_do_not_pass_for_people_who_were_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    null = replace(NULL, epochs=25, shown=(0,))
    honest = null_audit(null, 0, tmp_path, None)
    trained = audit_null._trained

    def leaking(*given: Any) -> Any:
        target, shadows = trained(*given)
        return replace(target, members=tuple(sorted(given[2].audited))), shadows

    monkeypatch.setattr(audit_null, "_trained", leaking)
    leaked = null_audit(null, 0, tmp_path, None)
    for out, learnt in zip(honest, leaked, strict=True):
        assert np.mean(out["p_values"]) > 0.25
        assert np.mean(learnt["p_values"]) < 0.15


@pytest.mark.slow
def test_the_unit_of_an_interval_is_the_audit(tmp_path: Path) -> None:
    planned = null_trials([NULL], tmp_path, None)
    run_trials(planned[NULL])
    rows = list(null_rows(planned))
    assert [row["dataset"] for row in rows] == ["grammar"] * 4 + ["all"] * 4
    trials = [NullAudit.of(NULL, place, tmp_path, None) for place in range(2)]
    done = [trial.result()["outcomes"] for trial in trials]
    shares = [np.mean(np.array(outcomes[0]["p_values"]) <= 0.05) for outcomes in done]
    half = stats.t.ppf(0.975, 1) * abs(shares[0] - shares[1]) / 2
    assert rows[0]["below_0.05"] == pytest.approx(np.mean(shares))
    assert rows[0]["below_0.05_high"] == pytest.approx(np.mean(shares) + half)


def test_quarters_go_by_words_from_the_fewest_on() -> None:
    outcome = {
        "p_values": [0.01, 0.5, 0.5, 0.04, 0.01, 0.5, 0.5, 0.5],
        "words": [9, 1, 8, 2, 7, 3, 6, 4],
    }
    assert audit_null._by_quarter(outcome).tolist() == [0.5, 0.0, 0.5, 0.5]


def test_what_is_attainable_depends_on_the_number_compared() -> None:
    few, more = ({"compared_with": count} for count in (19, 29))
    assert audit_null._attainable([few], 0.05) == 0.05
    assert audit_null._attainable([more], 0.05) == pytest.approx(1 / 30)
    assert audit_null._attainable([few], 0.01) == 0.0
