"""Audits of users with invented outcomes."""

import numpy as np

from vestige.audits.membership.user_audit import COLUMNS, JudgedUsers
from vestige.claims import REQUIRED, Check, Estimate, Test
from vestige.metrics.tests import discoveries

KNOWN = tuple(np.random.default_rng(0).normal(0, 0.03, 134).tolist())
"""Scores of people known to be out; the highest is 0.09."""


def checks_of(**failed):
    """Every check of the verb, passed but for those with a sentence."""
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
    """An audit of users with these scores; None for one of whom nothing was asked.

    Args:
        scores: of the audited users.
        known: of people known to be out.
        null: p-values against models that never saw the users, model by model.
        names: of the users.
        rate: the false-discovery rate.
        checks: of the claim; all passed by default.
        p: of the test.
        compared: words of each user.
        more: what asking came to.
    """
    names = names or [f"Rosalind {n}" for n in range(len(scores))]
    above = [0 if s is None else sum(one >= s for one in known) for s in scores]
    p_values = [
        1.0 if s is None else (1 + n) / (1 + len(known)) for s, n in zip(scores, above, strict=True)
    ]
    called = discoveries(p_values, rate)
    several = len(scores) > 1
    simes = min(p * len(scores) / n for n, p in enumerate(sorted(p_values), 1))
    together = min(1.0, 2 * simes) if several else simes
    called = called & (together <= rate)
    nobody = all(score is None for score in scores)
    given = zip(names, scores, p_values, called, strict=True)
    judged = JudgedUsers(
        list_p_value=simes if several else None,
        test=None if nobody else Test(p or together, 1 / (1 + len(known)), rate, "non-members"),
        auc=None if nobody else Estimate("AUC over users", 0.7, 0.6, 0.8),
        users=tuple(
            dict(zip(COLUMNS, (name, score, p_value, bool(one), 12, *counts), strict=True))
            for name, score, p_value, one in given
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
    return judged.result(checks or checks_of(), facts | more, null_p_values=null)


def uniform(count):
    """P-values as chance gives them."""
    return ((np.arange(count) + 0.5) / count).tolist()
