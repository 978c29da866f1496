"""Checks of an audit of users from ranks and p-values: alive, comparable, powerful."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import claims
from vestige.attacks.membership.expected_rank import WordCounts
from vestige.attacks.membership.membership_scores import Answers
from vestige.claims import Check, Test
from vestige.claims.effects import USER_AUC
from vestige.metrics.tests import most_by_chance

LONGEST_LIST = 100
"""Words of the lists that are compared, at most; and no more than a tenth of all words."""

HALF = 0.5
"""Share of shadow models that put one user's p-value at or below the level, from which on the user
differs. However alike the text is, half of them do in twice the level of all audits at most."""


def alive_by_ranks(answers: Answers, counts: WordCounts, users: ArrayLike) -> Check:
    """Whether the words that a model lists predict text better than the most frequent words do.

    Args:
        answers: of the model.
        counts: of text of nobody who is asked about.
        users: known non-members who are asked about.
    """
    asked, known = answers.asked, np.asarray(users)
    k = max(1, min(answers.k, LONGEST_LIST, answers.vocab_size // 10))
    frequent = np.argsort(-counts.words, kind="stable")[:k]
    listed = asked.mean_by_user(answers.ranks <= k)[known]
    by_frequency = asked.mean_by_user(np.isin(asked.tokens, frequent))[known]
    there = np.isfinite(listed)
    if there.sum() < 4:
        return Check("alive", "could not run", "Too few users to test the model; 4 are needed.")
    # A model that lists words at random lists k of all.
    by_frequency = np.maximum(by_frequency, k / answers.vocab_size)
    gains = (listed - by_frequency)[there]
    words = "word" if k == 1 else f"{k} words"
    told = (
        f"The model's top {words} are right for {listed[there].mean():.0%} of the reference, the "
        f"most frequent {words} for {by_frequency[there].mean():.0%}"
    )
    if gains.mean() > 2 * gains.std(ddof=1) / np.sqrt(gains.size):
        return Check("alive", "passed", f"{told}.")
    return Check("alive", "failed", f"{told}: too weak to audit.")


def alike_for_shadows(
    p_values: NDArray[np.float64], *, rate: float, compared: int
) -> tuple[Check, ...]:
    """The check "comparable" by shadow models, which saw nobody; none without p-values.

    Args:
        p_values: (s, n) of n users against s shadow models.
        rate: the level.
        compared: users that each was compared with, at least.
    """
    if not p_values.size:
        return ()
    share = float((p_values <= rate).mean())
    models, users = p_values.shape
    if users == 1:
        unlike = models > 1 and share >= HALF
    else:
        unlike = share > max(rate, most_by_chance(rate, calibration=compared, tested=users))
    told = (
        f"{share:.0%} of the p-values of {models} shadow models, which saw none of the texts, are "
        f"at most {rate:g}"
    )
    if not unlike:
        return (Check("comparable", "passed", f"{told}."),)
    return (
        Check(
            "comparable", "failed",
            f"{told}: audited texts and reference differ without training on them.",
        ),
    )  # fmt: skip


def powerful(test: Test | None, users: int, compared: int) -> Check:
    """Whether the list test would have detected `USER_AUC`.

    Args:
        test: of the list and of single users together, or of one user alone.
        users: audited.
        compared: non-members.
    """
    if test is None:
        return claims.powerful(None)
    level = test.alpha / 2 if users > 1 else test.alpha
    detectable = claims.detectable_auc(users, compared, alpha=level)
    effect = "an AUC of {} over users"
    return claims.powerful(test, detectable=detectable, wanted=USER_AUC, effect=effect)
