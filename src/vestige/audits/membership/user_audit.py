"""From scores of users' words to p-values, flags and the claim.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD: membership of
users from the ranks of their words among a model's most probable ones.

Differs from the paper: a user's score is the mean over words (`word_scores`), instead of a support
vector machine's of a histogram; the decision is by p-values against non-members who have no other
part (`groups`), over equally many words (`equal_words`), instead of a threshold learned from shadow
models, which does not hold for a target of another domain or another extent of training.

Two tests share one level: a permutation test of whole users on -ln of each one's rank among all,
and Simes' test (1986) of the conformal p-values of single users. Users are flagged (Benjamini and
Hochberg) only if the smaller of both p-values, doubled, is at most the rate. A single user has one
p-value, which is not doubled. The procedure is proved for p-values against one set of non-members;
here users with little text are compared with more of them: `benchmarks/claims_of_users.py` measures
the false discovery rate.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import comb
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vestige.audits.membership.equal_words import compare_users, list_p_value, sides_of
from vestige.audits.membership.features import Floats, RankedWords, Whole
from vestige.audits.membership.groups import NonMembers, users_needed
from vestige.audits.membership.user_checks import alike_for_shadows, alive_by_ranks, powerful
from vestige.audits.membership.word_scores import score_words
from vestige.claims import Check, Claim, Estimate, Test
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError
from vestige.metrics import estimates
from vestige.metrics.tests import calibration_needed, discoveries, simes
from vestige.results import Result

FEWEST_MODELS = 3
"""Shadow models needed to audit one in the target's place: it and its pair cannot be references."""
COLUMNS = (
    "user", "score", "p_value", "called", "texts", "words", "compared_with", "compared_words"
)  # fmt: skip


class Judged(NamedTuple):
    """What the scores show about some users.

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
        """The check of that name."""
        return powerful(self.test, len(self.users), self.known)

    def result(
        self,
        checks: tuple[Check, ...],
        facts: Mapping[str, object],
        *,
        null: Sequence[float] = (),
        based: bool = False,
    ) -> Result:
        """Whether somebody was a member, by the test and the checks.

        Rows of kind "audited" are users, the smallest p-value first; those of kind "known out" hold
        the score of a non-member in falling order; those of kind "null" the p-value of one user
        under one shadow model.

        Args:
            checks: all that the claim requires.
            facts: entries of the summary, such as k.
            null: p-values of the users with scores under shadow models, model by model.
            based: whether there was a base, which saw nobody.

        Raises:
            ValueError: a check is missing.
        """
        claim = Claim("membership --base" if based else "membership", self.test, checks, self.auc)
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


def membership_audit(
    words: RankedWords,
    *,
    audited: Sequence[int],
    known: NonMembers[int],
    checks: Sequence[Check],
    facts: Mapping[str, object] | None = None,
    rate: float = 0.05,
    seed: int = 0,
) -> Result:
    """Audit a target that shows ranks, and shadow models in its place.

    Args:
        words: of all users; their counts are of text of nobody audited, fitted or compared, and
            their shadow models were trained on nobody audited or compared, and on about half of
            the fitted.
        audited: users, as indices of `words.queries.names`.
        known: groups of non-members, likewise. Those without a queried word are left out.
        checks: of the texts: all that the claim requires beside those of ranks.
        facts: further entries of the summary.
        rate: false discovery rate, and level of the list's test.
        seed: of everything random.

    Raises:
        ValueError: nobody is audited, or a non-member is; a shadow model was trained on somebody
            who is audited or compared; a check is missing.
        DataError: there are too few non-members, or too few words of them.
    """
    known = with_words(words.queries, audited, known)
    _refuse_seen(words, audited, known)
    scores = score_words(words, known.fitted, seed=seed)
    judged = judge_users(words.queries, scores, audited, known.compared, rate=rate, seed=seed)
    nulls = null_p_values(words, audited, known, seed=seed)
    fewest = min((n for n in judged.column("compared_with") if n), default=0)
    of_ranks = (
        alive_by_ranks(words, (*known.fitted, *known.compared)),
        *alike_for_shadows(nulls, rate=rate, compared=fewest),
        judged.powerful,
    )
    counts = {
        "fitted_on": len(known.fitted),
        "counted_on": len(known.counted),
        "references": 0 if words.shadows is None else len(words.shadows),
        "k": words.k,
        "vocab_size": words.vocab_size,
    }
    return judged.result(
        (*of_ranks, *checks), {**counts, **(facts or {})}, null=nulls.ravel().tolist()
    )


def null_p_values(
    words: RankedWords, audited: Sequence[int], known: NonMembers[int], *, seed: int = 0
) -> Floats:
    """The same audit of each shadow model, which was not trained on the audited users.

    Returns:
        (s, n) p-values of the n users who have scores, uniform unless the users differ from those
        they are compared with in more than membership. A model that leaves too few references,
        fitted users or words has none; of fewer than 3 models, each does.
    """
    found: list[Floats] = []
    for model in range(len(words.shadows or ())):
        played = words.played_by(model)
        assert words.shadows is not None
        assert played.shadows is not None
        if played.shadows.each < 1:
            continue
        fitted = [user for user in known.fitted if not words.shadows.seen[model, user]]
        with suppress(DataError):  # half of the words may be too few
            word_scores = score_words(played, fitted, seed=seed)
            sides = sides_of(words.queries, word_scores, audited, known.compared, seed=seed)
            found.append(compare_users(*sides, rate=0.05).p_values)
    return np.array(found) if found else np.empty((0, 0))


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
        compared: non-members, who had no part in the scores.
        rate: false discovery rate, and level of the list's test.
        seed: of the order of each user's texts, and of permutations.

    Raises:
        DataError: no non-member has a word.
    """
    places, words = list(audited), queries.counts()
    own, others = sides_of(queries, word_scores, audited, compared, seed=seed)
    scored = words[places] > 0
    scores, p_values = np.full(len(places), np.nan), np.ones(len(places))
    cut, reach = np.zeros((2, len(places)), dtype=np.int64)
    if len(own):
        p_values[scored], scores[scored], cut[scored], reach[scored] = compare_users(
            own, others, rate=rate
        )
    of_list = list_p_value(own, others, seed=seed) if len(own) > 1 else None
    test = _test(p_values[scored], of_list, reach, len(others), rate) if len(own) else None
    flagged = discoveries(p_values, rate) & (test is not None and test.significant)
    columns = (
        [queries.names[place] for place in places],
        [score if has else None for score, has in zip(scores.tolist(), scored, strict=True)],
        p_values.tolist(),
        flagged.tolist(),
        _texts_of(queries)[places].tolist(),
        words[places].tolist(),
        reach.tolist(),
        cut.tolist(),
    )
    area, theirs = None, np.empty(0)
    if len(own):
        middle = int(np.searchsorted(own.rungs, np.sort(cut[scored])[int(scored.sum()) // 2]))
        mine, theirs = (
            side.scores[side.lengths >= own.rungs[middle], middle] for side in (own, others)
        )
        area = replace(estimates.auc(mine, theirs), name="AUC over users")
    return Judged(
        users=tuple(dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)),
        compared=tuple(theirs.tolist()),
        list_p_value=of_list,
        test=test,
        auc=area,
        known=len(compared),
        rate=rate,
    )


def _test(p_values: Floats, of_list: float | None, reach: Whole, known: int, rate: float) -> Test:
    """The list's and Simes' p-value together, and the smallest that could have come out."""
    of_each = simes(p_values)
    least = 1 / (1 + int(reach.max()))
    if of_list is None:
        return Test(of_each, least, rate, "non-members")
    divisions = 1 / min(10_000, comb(known + p_values.size, known))
    together, possible = (
        min(1.0, 2 * min(pair)) for pair in ((of_list, of_each), (divisions, least))
    )
    return Test(together, possible, rate, "non-members")


def _texts_of(queries: TokenQueries) -> NDArray[np.int64]:
    """(u,) texts of each user that are queried."""
    _, first = np.unique(queries.texts, return_index=True)
    return np.bincount(queries.users[first], minlength=len(queries.names))


def with_words(
    queries: TokenQueries, audited: Sequence[int], known: NonMembers[int]
) -> NonMembers[int]:
    """The non-members of whom a word was queried.

    Raises:
        ValueError: nobody is audited, or a non-member is.
        DataError: no word of theirs was queried.
    """
    if not len(audited):
        raise ValueError(f"audited must be at least one user, got {list(audited)}")
    everybody = {*known.fitted, *known.compared, *known.counted}
    if both := sorted(everybody & set(audited)):
        raise ValueError(f"audited must be no non-members, got user {both[0]} as both")
    words = queries.counts()
    fitted, compared = (
        tuple(user for user in group if words[user]) for group in (known.fitted, known.compared)
    )
    if not (fitted and compared):
        raise DataError(
            f"{len(fitted)} non-members with words to fit on and {len(compared)} to compare with; "
            "each needs one or more",
            remedy="Pass more users with --reference.",
        )
    return replace(known, fitted=fitted, compared=compared)


def _refuse_seen(words: RankedWords, audited: Sequence[int], known: NonMembers[int]) -> None:
    """A shadow model cannot be a reference for users that it was trained on."""
    if words.shadows is None:
        return
    seen: NDArray[np.bool_] = np.any(words.shadows.seen, axis=0)
    for name, group in (("audited", audited), ("compared", known.compared)):
        if learned := [user for user in group if seen[user]]:
            raise ValueError(
                f"{name} must be non-members for every reference model, got user {learned[0]}"
            )
