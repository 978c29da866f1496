"""From scores of users' words to p-values, flags and the claim.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD: membership of
users from the ranks of their words among a model's most probable ones.

Differs from the paper: a user's score is the mean over words (`ranked_words`). The decision is by
p-values against non-members who have no other part in the audit (`user_texts`), over equally many
words. The paper's threshold is learned from shadow models, and does not hold for a target of
another domain or with longer or shorter training.

A mean over few words varies more than one over many: compared with users with more text, a
non-member would seem to be a member too often; compared with users with less text, too seldom. So
an audited user and all users compared with them are cut to the same number of words: texts in
random order, words in their order, and of the last text the first ones. The number depends on
amounts of text alone, not on scores.

Two tests share one level: a permutation test of whole users on -ln of each one's rank among all,
and Simes' test (1986) of the conformal p-values of single users. Users are flagged (Benjamini and
Hochberg) only if the smaller of both p-values, doubled, is at most the rate. A single user has one
p-value, which is not doubled. The procedure is proved for p-values against one set of non-members;
here users with little text are compared with more of them. The false discovery rate is measured by
`benchmarks/error_rates_membership.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import comb
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vestige import claims
from vestige.audits.membership.ranked_words import Floats, Ints
from vestige.audits.membership.text_audit import joint_test
from vestige.audits.membership.user_texts import users_needed
from vestige.claims import Check, Claim, Estimate, Test
from vestige.claims.effects import USER_AUC
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError
from vestige.metrics import estimates
from vestige.metrics.listed import Compared, CutScores, compare
from vestige.metrics.tests import calibration_needed, discoveries, unit_permutation_test
from vestige.results import Result

MIN_MODELS = 3
"""Shadow models needed to audit one of them: it and the other of its pair are no references."""
MAX_CUTS = 256
"""Most numbers of words that users are cut to; if there are fewer users, each has its tested."""
MANY_USERS = 5_000
"""Users of both sides above which a tenth as many permutations are computed."""
COLUMNS = (
    "user", "score", "p_value", "called", "texts", "words", "compared_with", "compared_words"
)  # fmt: skip


class JudgedUsers(NamedTuple):
    """Users with their p-values, and the test of all users together.

    Attributes:
        users: a row for each, in the order in which they were given, with `COLUMNS`: the mean score
            of the compared words in nats, above 0 if the model does better than expected, None if
            no word was queried; how often non-members score as high; whether the user is flagged;
            texts and words that were queried; non-members with enough words, and words compared.
        compared_scores: of the non-members, over as many words as the audited user with the median
            amount of text was compared over.
        list_p_value: of all users together; None for one user.
        test: joint test of the list and of single users; None if no user has a score.
        auc: how often an audited user outranks a non-member.
        compared_users: number of non-members that the users are compared with.
        rate: false discovery rate, and level of the test.
    """

    users: tuple[Mapping[str, Any], ...]
    compared_scores: tuple[float, ...]
    list_p_value: float | None
    test: Test | None
    auc: Estimate | None
    compared_users: int
    rate: float

    def column(self, name: str) -> list[Any]:
        """A column of `users`."""
        return [row[name] for row in self.users]

    @property
    def powerful(self) -> Check:
        """The check "powerful": whether the test would detect `USER_AUC`."""
        if self.test is None:
            return claims.powerful(None)
        users = len(self.users)
        level = self.rate / 2 if users > 1 else self.rate
        detectable = claims.detectable_auc(users, self.compared_users, alpha=level)
        effect = "an AUC of {} over users"
        return claims.powerful(self.test, detectable=detectable, wanted=USER_AUC, effect=effect)

    def result(
        self,
        checks: tuple[Check, ...],
        facts: Mapping[str, object],
        *,
        null_p_values: Sequence[float] = (),
        has_base: bool = False,
    ) -> Result:
        """The claim, with a row for each user, compared score and null p-value.

        Rows of kind "audited" are users, the smallest p-value first. Rows of kind "known out" have
        the score of a non-member, the highest first. Rows of kind "null" have the p-value of one
        user under one shadow model; `null_p_values` has them model by model.
        """
        claim = Claim(f"membership{' --base' * has_base}", self.test, checks, self.auc)
        empty = dict.fromkeys(COLUMNS)
        names = [row["user"] for row in self.users if row["score"] is not None]
        ordered = sorted(self.users, key=lambda row: (row["p_value"], -(row["score"] or 0.0)))
        rows = [
            *({"kind": "audited", **row} for row in ordered),
            *(
                {"kind": "known out", **empty, "score": score}
                for score in sorted(self.compared_scores, reverse=True)
            ),
            *(
                {"kind": "null", **empty, "user": names[n % len(names)], "p_value": p_value}
                for n, p_value in enumerate(null_p_values)
            ),
        ]
        has_fitted = bool(facts.get("fitted_on", 0))
        summary = {
            **claim.summary(),
            "users": len(self.users),
            "called": sum(self.column("called")),
            "p_value": None if self.test is None else self.test.p,
            "list_p_value": self.list_p_value,
            "least_p_value": min(self.column("p_value")),
            "rate": self.rate,
            "calibrated_on": self.compared_users,
            "calibration_needed": calibration_needed(self.rate, tested=len(self.users)),
            "fitted_on": 0,
            "counted_on": 0,
            "known_needed": (users_needed if has_fitted else calibration_needed)(self.rate),
            "references": 0,
            "references_needed": MIN_MODELS,
            "k": None,
            "vocab_size": None,
            "words": sum(self.column("words")),
            "null_below_rate": (
                fmean(p <= self.rate for p in null_p_values) if null_p_values else None
            ),
        }
        return Result(kind="UserAudit", summary={**summary, **facts}, rows=rows, claim=claim)


def judge_users(
    queries: TokenQueries,
    word_scores: Floats,
    audited: Sequence[int],
    compared: Sequence[int],
    *,
    rate: float = 0.05,
    seed: int = 0,
) -> JudgedUsers:
    """Compare each audited user with non-members, over as much text, and all users together.

    Args:
        queries: w words.
        word_scores: (w,) finite score of each word.
        audited: audited users, as indices of `queries.names`.
        compared: non-members with no part in the scores, likewise.
        rate: false discovery rate, and level of the list's test.
        seed: of the order of each user's texts, and of permutations.

    Raises:
        DataError: no compared user has a word.
    """
    users, words = list(audited), queries.counts()
    tested, reference = score_sides(queries, word_scores, audited, compared, seed=seed)
    has_words = words[users] > 0
    scores, p_values = np.full(len(users), np.nan), np.ones(len(users))
    compared_words, compared_with = np.zeros((2, len(users)), dtype=np.int64)
    list_p = test = area = None
    reference_scores: Floats = np.empty(0)
    if len(tested):
        result = compare_users(tested, reference, rate=rate)
        p_values[has_words], scores[has_words] = result.p_values, result.scores
        compared_words[has_words], compared_with[has_words] = result.tokens, result.others
        list_p = _list_p_value(tested, reference, seed=seed) if len(tested) > 1 else None
        divisions = min(10_000, comb(len(reference) + len(tested), len(reference)))
        test = joint_test(
            list_p, result.p_values, divisions, int(compared_with.max()),
            rate=rate, against="non-members",
        )  # fmt: skip
        median_words = np.sort(result.tokens)[len(tested) // 2]
        rung = int(np.searchsorted(tested.rungs, median_words))
        tested_scores, reference_scores = (
            side.scores[side.lengths >= median_words, rung] for side in (tested, reference)
        )
        area = replace(estimates.auc(tested_scores, reference_scores), name="AUC over users")
    flagged = discoveries(p_values, rate) & (test is not None and test.significant)
    _, first = np.unique(queries.texts, return_index=True)
    texts = np.bincount(queries.users[first], minlength=len(queries.names))
    columns = (
        [queries.names[user] for user in users],
        [score if has else None for score, has in zip(scores.tolist(), has_words, strict=True)],
        p_values.tolist(),
        flagged.tolist(),
        texts[users].tolist(),
        words[users].tolist(),
        compared_with.tolist(),
        compared_words.tolist(),
    )
    return JudgedUsers(
        users=tuple(dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)),
        compared_scores=tuple(reference_scores.tolist()),
        list_p_value=list_p,
        test=test,
        auc=area,
        compared_users=len(compared),
        rate=rate,
    )


def cut_users(
    queries: TokenQueries, word_scores: ArrayLike, sides: tuple[ArrayLike, ...], *, seed: int
) -> tuple[CutScores, ...]:
    """Mean scores of users over their first words, on each side, for the same numbers of words.

    Args:
        queries: w words.
        word_scores: (w,) finite for these users.
        sides: users with words, as indices of `queries.names`.
        seed: of the order of each user's texts, which does not depend on the other users.
    """
    values = np.asarray(word_scores, dtype=np.float64)
    users_of_sides = [np.asarray(side, dtype=np.int64) for side in sides]
    lengths = queries.counts()[np.concatenate(users_of_sides)]
    shares = np.linspace(0, 1, MAX_CUTS + 1)
    rungs = np.unique(np.quantile(lengths, shares, method="lower")).astype(np.int64)
    by_user = np.argsort(queries.users, kind="stable")
    bounds = np.searchsorted(queries.users[by_user], np.arange(len(queries.names) + 1))

    def cumulative_scores(user: int) -> Floats:
        words = by_user[bounds[user] : bounds[user + 1]]
        texts, text = np.unique(queries.texts[words], return_inverse=True)
        shuffled = np.random.default_rng([seed, user]).permutation(len(texts))
        order = np.lexsort((queries.positions[words], shuffled[text]))
        return np.cumsum(values[words[order]])

    def cut(users: Ints) -> CutScores:
        sums = [cumulative_scores(user) for user in users.tolist()]

        def mean_over_first(indices: Ints, words: int) -> Floats:
            return np.array([sums[index][words - 1] / words for index in indices.tolist()])

        return CutScores.of(mean_over_first, [len(sums_of_user) for sums_of_user in sums], rungs)

    return tuple(cut(users) for users in users_of_sides)


def min_compared(non_members: int, rate: float) -> int:
    """Least number of non-members to compare a user with: half of them, and enough for a p-value
    of `rate` if there are that many.

    A comparison over more words has less noise, but fewer non-members have enough words. With
    less than half of them, coarse p-values lose more power than more words gain.

    Example:
        >>> min_compared(100, 0.05), min_compared(24, 0.05), min_compared(10, 0.05)
        (50, 19, 10)
    """
    return min(non_members, max(calibration_needed(rate), (non_members + 1) // 2))


def score_sides(
    queries: TokenQueries,
    word_scores: Floats,
    audited: Sequence[int],
    compared: Sequence[int],
    *,
    seed: int,
) -> tuple[CutScores, CutScores]:
    """Scores of the audited and of the compared users that have words.

    Raises:
        DataError: no compared user has a word.
    """
    words = queries.counts()
    with_words = [[user for user in side if words[user]] for side in (audited, compared)]
    if not with_words[1]:
        raise DataError(
            "no non-member has enough words and reference models",
            remedy="Train more reference models, or pass more --reference text of these users.",
        )
    tested, reference = cut_users(queries, word_scores, tuple(with_words), seed=seed)
    return tested, reference


def compare_users(tested: CutScores, reference: CutScores, *, rate: float) -> Compared:
    """Conformal p-values of users, each over as many words as enough reference users have."""
    last_rung = reference.last_rung(min_compared(len(reference), rate))
    return compare(tested, reference, most=last_rung)


def _list_p_value(tested: CutScores, reference: CutScores, *, seed: int) -> float:
    """A permutation test of whole users on their ranks among all users."""
    pool = tested + reference
    last_rung = pool.last_rung((len(pool) + 1) // 2)
    values = -np.log(compare(pool, pool, most=last_rung, among=True).p_values)
    permutations = 9999 if len(pool) <= MANY_USERS else 999
    return unit_permutation_test(
        values[: len(tested)], values[len(tested) :], seed=seed, permutations=permutations
    )
