"""From scores of users' words to p-values, flags and the claim.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD: membership of
users from the ranks of their words among a model's most probable ones.

Differs from the paper: a user's score is the mean over words (`ranked_words`); the decision is by
p-values against non-members who have no other part (`user_texts`), over equally many words, instead
of a threshold learned from shadow models, which does not hold for a target of another domain or
another extent of training.

A mean over few words varies more than one over many: against users with more text, chance would
look like membership too often, against users with less too seldom. So an audited user and all who
are compared with them are cut to the same number of words by one rule: texts in random order, words
in their order, and of the last text the first ones. The number depends on amounts of text alone,
not on scores.

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
from vestige.audits.membership.ranked_words import Floats, Whole
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

FEWEST_MODELS = 3
"""Shadow models needed to audit one in the target's place: it and its pair cannot be references."""
MOST_CUTS = 256
"""Different numbers of words that users are cut to, at most; fewer users each have their own."""
MANY = 5_000
"""Users of both sides above which a tenth as many permutations are computed."""
COLUMNS = (
    "user", "score", "p_value", "called", "texts", "words", "compared_with", "compared_words"
)  # fmt: skip


class Judged(NamedTuple):
    """The outcome for some users.

    Attributes:
        users: a row for each, in the order in which they were given, with `COLUMNS`: the mean score
            of the compared words in nats, above 0 if the model does better than expected, None if
            no word was queried; how often non-members score as high; whether the user is flagged;
            texts and words that were queried; non-members with enough words, and words compared.
        compared: scores of the non-members over as many words as the audited user with the middle
            amount of text was compared over.
        list_p_value: that non-members score as high, of all users together; None for one user.
        test: the same, with single users; None if nobody has a score.
        auc: how often an audited user outranks a non-member.
        known: non-members that the users are compared with: all, or those with enough text.
        rate: false discovery rate, and level of the test.
    """

    users: tuple[Mapping[str, Any], ...]
    compared: tuple[float, ...]
    list_p_value: float | None
    test: Test | None
    auc: Estimate | None
    known: int
    rate: float

    def column(self, name: str) -> list[Any]:
        """The values of a column, user by user."""
        return [row[name] for row in self.users]

    @property
    def powerful(self) -> Check:
        """Whether the test of the list, or of one user, would have detected `USER_AUC`."""
        if self.test is None:
            return claims.powerful(None)
        users = len(self.users)
        level = self.rate / 2 if users > 1 else self.rate
        detectable = claims.detectable_auc(users, self.known, alpha=level)
        effect = "an AUC of {} over users"
        return claims.powerful(self.test, detectable=detectable, wanted=USER_AUC, effect=effect)

    def result(
        self,
        checks: tuple[Check, ...],
        facts: Mapping[str, object],
        *,
        null: Sequence[float] = (),
        based: bool = False,
    ) -> Result:
        """The claim, with a row for each user and for each score that they are compared with.

        Rows of kind "audited" are users, the smallest p-value first; those of kind "known out" hold
        the score of a non-member in falling order; those of kind "null" the p-value of one user
        under one shadow model: `null` has them model by model.
        """
        claim = Claim(f"membership{' --base' * based}", self.test, checks, self.auc)
        unknown = dict.fromkeys(COLUMNS)
        scored = [row["user"] for row in self.users if row["score"] is not None]
        ordered = sorted(self.users, key=lambda one: (one["p_value"], -(one["score"] or 0.0)))
        rows = [
            *({"kind": "audited", **row} for row in ordered),
            *(
                {"kind": "known out", **unknown, "score": score}
                for score in sorted(self.compared, reverse=True)
            ),
            *(
                {"kind": "null", **unknown, "user": scored[n % len(scored)], "p_value": p_value}
                for n, p_value in enumerate(null)
            ),
        ]
        learned = facts.get("fitted_on", 0)
        summary = {
            **claim.summary(),
            "users": len(self.users),
            "called": sum(self.column("called")),
            "p_value": None if self.test is None else self.test.p,
            "list_p_value": self.list_p_value,
            "least_p_value": min(self.column("p_value")),
            "rate": self.rate,
            "calibrated_on": self.known,
            "calibration_needed": calibration_needed(self.rate, tested=len(self.users)),
            "fitted_on": 0,
            "counted_on": 0,
            "known_needed": (users_needed if learned else calibration_needed)(self.rate),
            "references": 0,
            "references_needed": FEWEST_MODELS,
            "k": None,
            "vocab_size": None,
            "words": sum(self.column("words")),
            "null_below_rate": fmean(p <= self.rate for p in null) if null else None,
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
) -> Judged:
    """Compare each audited user with non-members, over as much text, and all users together.

    Args:
        queries: w words.
        word_scores: (w,) finite score of each word.
        audited: users, as indices of `queries.names`.
        compared: non-members, who had no part in the scores; DataError if none has a word.
        rate: false discovery rate, and level of the list's test.
        seed: of the order of each user's texts, and of permutations.
    """
    places, words = list(audited), queries.counts()
    own, others = sides_of(queries, word_scores, audited, compared, seed=seed)
    scored = words[places] > 0
    scores, p_values = np.full(len(places), np.nan), np.ones(len(places))
    cut, reach = np.zeros((2, len(places)), dtype=np.int64)
    of_list = test = area = None
    theirs: Floats = np.empty(0)
    if len(own):
        p_values[scored], scores[scored], cut[scored], reach[scored] = compare_users(
            own, others, rate=rate
        )
        of_list = _list_p_value(own, others, seed=seed) if len(own) > 1 else None
        divisions = min(10_000, comb(len(others) + len(own), len(others)))
        test = joint_test(
            of_list, p_values[scored], divisions, int(reach.max()), rate=rate, against="non-members"
        )
        middle = int(np.searchsorted(own.rungs, np.sort(cut[scored])[int(scored.sum()) // 2]))
        mine, theirs = (
            side.scores[side.lengths >= own.rungs[middle], middle] for side in (own, others)
        )
        area = replace(estimates.auc(mine, theirs), name="AUC over users")
    flagged = discoveries(p_values, rate) & (test is not None and test.significant)
    _, first = np.unique(queries.texts, return_index=True)
    texts = np.bincount(queries.users[first], minlength=len(queries.names))
    columns = (
        [queries.names[place] for place in places],
        [score if has else None for score, has in zip(scores.tolist(), scored, strict=True)],
        *(one.tolist() for one in (p_values, flagged, texts[places], words[places], reach, cut)),
    )
    return Judged(
        users=tuple(dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)),
        compared=tuple(theirs.tolist()),
        list_p_value=of_list,
        test=test,
        auc=area,
        known=len(compared),
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
        seed: of the order of each user's texts, which does not depend on who else is given.
    """
    values = np.asarray(word_scores, dtype=np.float64)
    users = [np.asarray(side, dtype=np.int64) for side in sides]
    lengths = queries.counts()[np.concatenate(users)]
    shares = np.linspace(0, 1, MOST_CUTS + 1)
    rungs = np.unique(np.quantile(lengths, shares, method="lower")).astype(np.int64)
    order = np.argsort(queries.users, kind="stable")
    bounds = np.searchsorted(queries.users[order], np.arange(len(queries.names) + 1))

    def summed(user: int) -> Floats:
        own = order[bounds[user] : bounds[user + 1]]
        texts, text = np.unique(queries.texts[own], return_inverse=True)
        shuffled = np.random.default_rng([seed, user]).permutation(len(texts))
        return np.cumsum(values[own[np.lexsort((queries.positions[own], shuffled[text]))]])

    def cut(side: Whole) -> CutScores:
        sums = [summed(user) for user in side.tolist()]

        def over(places: Whole, words: int) -> Floats:
            return np.array([sums[place][words - 1] / words for place in places.tolist()])

        return CutScores.of(over, [len(one) for one in sums], rungs)

    return tuple(cut(side) for side in users)


def fewest_compared(known: int, rate: float) -> int:
    """Users to compare anybody with at least: half of those known, and enough for a p-value of
    `rate` if so many are known.

    Fewer of them have more text, and so less noise; but less than a half of them costs more power
    by coarse p-values than it gains.

    Example:
        >>> fewest_compared(100, 0.05), fewest_compared(24, 0.05), fewest_compared(10, 0.05)
        (50, 19, 10)
    """
    return min(known, max(calibration_needed(rate), (known + 1) // 2))


def sides_of(
    queries: TokenQueries,
    word_scores: Floats,
    audited: Sequence[int],
    compared: Sequence[int],
    *,
    seed: int,
) -> tuple[CutScores, CutScores]:
    """Scores of those of the audited and of the compared who have words."""
    words = queries.counts()
    own, known = ([user for user in side if words[user]] for side in (audited, compared))
    if not known:
        raise DataError(
            "no non-member has enough words and reference models",
            remedy="Train more reference models, or pass more --reference text of these users.",
        )
    one, other = cut_users(queries, word_scores, (own, known), seed=seed)
    return one, other


def compare_users(own: CutScores, others: CutScores, *, rate: float) -> Compared:
    """Conformal p-values of users, each over as many words as enough of the others have."""
    return compare(own, others, most=others.last_rung(fewest_compared(len(others), rate)))


def _list_p_value(own: CutScores, others: CutScores, *, seed: int) -> float:
    """A permutation test of whole users on their ranks among all, both sides alike."""
    pool = own + others
    most = pool.last_rung((len(pool) + 1) // 2)
    values = -np.log(compare(pool, pool, most=most, among=True).p_values)
    permutations = 9999 if len(pool) <= MANY else 999
    return unit_permutation_test(
        values[: len(own)], values[len(own) :], seed=seed, permutations=permutations
    )
