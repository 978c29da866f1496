"""Checks of an audit of users: alive, read, independent, comparable, powerful."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from vestige import claims
from vestige.audits.membership.features import Floats, RankedWords
from vestige.claims import Check, Test
from vestige.claims.comparable import LEVEL
from vestige.claims.effects import USER_AUC
from vestige.claims.text_lists import comparable_texts
from vestige.metrics.tests import means_by_group, most_by_chance

if TYPE_CHECKING:
    from vestige.audits.membership.user_inputs import UserInputs

LONGEST_LIST = 100
"""Words of the lists that are compared, at most; and no more than a tenth of all words."""
HALF = 0.5
"""Share of shadow models that put one user's p-value at or below the level, from which on the user
differs. However alike the text is, half of them do in twice the level of all audits at most."""


def alive_by_ranks(words: RankedWords, users: ArrayLike) -> Check:
    """Whether the words that a model lists predict text better than the most frequent words do.

    Args:
        words: with counts of text of nobody who is queried.
        users: known non-members who are queried.
    """
    queries, known = words.queries, np.asarray(users)
    k = max(1, min(words.k, LONGEST_LIST, words.vocab_size // 10))
    frequent = np.argsort(-words.counts.words, kind="stable")[:k]
    listed = queries.mean_by_user(words.shown <= k)[known]
    # A model that lists words at random lists k of all.
    by_frequency = np.maximum(
        queries.mean_by_user(np.isin(queries.tokens, frequent))[known], k / words.vocab_size
    )
    there = np.isfinite(listed)
    if there.sum() < 4:
        return Check("alive", "could not run", "Too few users to test the model; 4 are needed.")
    gains = (listed - by_frequency)[there]
    top = "word" if k == 1 else f"{k} words"
    sentence = (
        f"The model's top {top} are right for {listed[there].mean():.0%} of the reference, the "
        f"most frequent {top} for {by_frequency[there].mean():.0%}"
    )
    if gains.mean() > 2 * gains.std(ddof=1) / np.sqrt(gains.size):
        return Check("alive", "passed", f"{sentence}.")
    return Check("alive", "failed", f"{sentence}: too weak to audit.")


def alike_for_shadows(p_values: Floats, *, rate: float, compared: int) -> tuple[Check, ...]:
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
    sentence = (
        f"{share:.0%} of the p-values of {models} shadow models, which saw none of the texts, are "
        f"at most {rate:g}"
    )
    if not unlike:
        return (Check("comparable", "passed", f"{sentence}."),)
    return (
        Check(
            "comparable", "failed",
            f"{sentence}: audited texts and reference differ without training on them.",
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


def checks_of_texts(
    inputs: "UserInputs",
    texts: NDArray[np.integer],
    base: Floats | None = None,
    *,
    longest: int | None = None,
    answered: float = 1.0,
) -> tuple[Check, ...]:
    """The checks of the queried texts: read, independent, comparable.

    Args:
        inputs: of the audit.
        texts: indices of the t texts that were queried.
        base: (t,) scores under a model that saw none of them.
        longest: tokens of a text that are read.
        answered: share of the queries that were answered.
    """
    # Of the side that was read less; words that were not selected do not count as unread.
    there = inputs.queries.positions < (longest or np.inf)
    users = len(inputs.queries.names)
    known = np.bincount(inputs.queries.users[there], minlength=users)
    lengths = np.diff(inputs.targets.offsets) - 1  # without the end of each text
    every = np.bincount(inputs.owners, lengths, minlength=users)
    sides = [list(inputs.audited), list(inputs.known.compared)]
    side = min(sides, key=lambda one: known[one].sum() / max(1, every[one].sum()))
    read = claims.read(round(answered * known[side].sum()), round(every[side].sum()))
    return read, inputs.texts.independent, _comparable(inputs, texts, base)


def _comparable(inputs: "UserInputs", texts: NDArray[np.integer], base: Floats | None) -> Check:
    owners, read = inputs.owners[texts], list(inputs.texts.together())
    sides = [np.isin(owners, users) for users in (inputs.audited, inputs.known.compared)]
    own, rest = ([read[index] for index in texts[side]] for side in sides)
    units = (owners[sides[0]], owners[sides[1]])
    scores = None if base is None else (base[sides[0]], base[sides[1]])
    check = comparable_texts(own, rest, units=units, base=scores, seed=inputs.policy.seed)
    if check.state == "failed" or scores is None or len(inputs.audited) > 1:
        return check
    # One user has too few permutations for the level of a list.
    means = [scores[0].mean(keepdims=True), means_by_group(scores[1], units[1])]
    ranks = rankdata(np.concatenate(means))
    tail = min(ranks[0], ranks.size + 1 - ranks[0]) / ranks.size
    if 2 * tail > LEVEL:
        return check
    sentence = (
        "The base predicts the audited user's texts better or worse than those of nearly all "
        "reference users, without any training on them."
    )
    return Check("comparable", "failed", sentence)
