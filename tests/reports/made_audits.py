"""Audits of users with invented outcomes."""

import numpy as np

from vestige.audits.membership.user_audit import COLUMNS, JudgedUsers
from vestige.claims import REQUIRED, Check, Estimate, Test
from vestige.metrics.tests import discoveries

KNOWN = tuple(np.random.default_rng(0).normal(0, 0.03, 134).tolist())
"""Scores of known non-members; the highest is 0.09."""


def checks_of(**failed):
    """All checks of the verb; those with a sentence fail."""
    return tuple(
        Check(name, "failed" if name in failed else "passed", failed.get(name, "Fine."))
        for name in REQUIRED["membership"]
    )


def audit_of(
    scores,
    *,
    known=KNOWN,
    null=(),
    names=None,
    rate=0.05,
    checks=None,
    p=None,
    compared=240,
    **more,
):
    """An audit of users with these scores; None for a user without queries.

    Args:
        scores: scores of the audited users.
        known: scores of known non-members.
        null: p-values of models that never saw the users, by model.
        names: names of the users.
        rate: false discovery rate.
        checks: checks of the claim; all pass by default.
        p: p-value of the test.
        compared: number of compared words of each user.
        more: other facts of the audit.
    """
    names = names or [f"Rosalind {n}" for n in range(len(scores))]
    above = [0 if s is None else sum(score >= s for score in known) for s in scores]
    p_values = [
        1.0 if s is None else (1 + n) / (1 + len(known)) for s, n in zip(scores, above, strict=True)
    ]
    flagged = discoveries(p_values, rate)
    is_list = len(scores) > 1
    simes = min(p * len(scores) / n for n, p in enumerate(sorted(p_values), 1))
    p_value = min(1.0, 2 * simes) if is_list else simes
    flagged = flagged & (p_value <= rate)
    is_empty = all(score is None for score in scores)
    columns = zip(names, scores, p_values, flagged, strict=True)
    users = JudgedUsers(
        list_p_value=simes if is_list else None,
        test=None if is_empty else Test(p or p_value, 1 / (1 + len(known)), rate, "non-members"),
        auc=None if is_empty else Estimate("AUC over users", 0.7, 0.6, 0.8),
        users=tuple(
            dict(zip(COLUMNS, (name, score, p_value, bool(is_flagged), 12, *counts), strict=True))
            for name, score, p_value, is_flagged in columns
            for counts in [(0, 0, 0) if score is None else (240, len(known), compared)]
        ),
        compared_users=len(known),
        rate=rate,
        compared_scores=tuple(known),
    )
    fitted = min(60, (len(known) + 1) // 2)
    facts = {
        "fitted_on": fitted,
        "counted_on": len(known) - fitted,
        "references": 4 if null else 0,
        "k": 50,
        "vocab_size": 5000,
    }
    return users.result(checks or checks_of(), facts | more, null_p_values=null)


def uniform_p_values(count):
    """Evenly spaced p-values."""
    return ((np.arange(count) + 0.5) / count).tolist()
