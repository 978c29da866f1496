"""User-level membership inference: ranks of users' words in, p-values out.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD: user-level
membership from the ranks of a user's words among a model's likeliest ones.

Differs from the paper: the default score is the mean over words (`membership_scores`) in place of a
histogram's support vector machine; the decision is by p-values against non-members who have no part
in anything else (`non_members`), over exactly as much text (`equal_words`), in place of a threshold
learnt from shadow models, which does not carry over to a target of another domain or another extent
of training.

Two tests share one level, as for texts: a permutation test of whole users on -ln of each one's rank
among all, and Simes' test (1986) of the conformal p-values of single users. Users are flagged
(Benjamini and Hochberg) only where the smaller of both p-values, doubled, is at most the rate. A
single user has one p-value, which is not doubled.

Benjamini and Hochberg's procedure is proved for conformal p-values against one set of non-members.
Here users with little text are compared with more of them than users with much;
`benchmarks/claims_of_users.py` measures the false-discovery rate with these very sets.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import comb

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.attacks.membership.equal_words import cut_users, fewest_compared
from vestige.attacks.membership.expected_rank import WordCounts
from vestige.attacks.membership.membership_scores import Answers, score_words
from vestige.attacks.membership.non_members import NonMembers
from vestige.attacks.membership.reference_models import References
from vestige.attacks.membership.user_audit import AuditedUser, UserAudit
from vestige.attacks.membership.user_checks import alike_for_shadows, alive_by_ranks, powerful
from vestige.claims import Test
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError
from vestige.metrics import estimates
from vestige.metrics.equal_length import Compared, CutScores, compare
from vestige.metrics.permutation import unit_permutation_test
from vestige.metrics.tests import discoveries, simes

MANY = 5_000
"""Users of both sides above which a tenth as many permutations are drawn, each of which is slow."""

Floats = NDArray[np.float64]


def membership_audit(
    answers: Answers,
    counts: WordCounts,
    *,
    audited: Sequence[int],
    known: NonMembers,
    references: References | None = None,
    rate: float = 0.05,
    null: bool = True,
    seed: int = 0,
) -> UserAudit:
    """Give each audited user a p-value, and flag members.

    Args:
        answers: ranks of users' words under the target.
        counts: of text of nobody who is audited, fitted or compared.
        audited: users, as places in `answers.asked.names`.
        known: non-members of the target's training data, in groups. Those whom
            nothing was asked of are left out.
        references: models of the auditor's own, which have seen nobody of the audited, nor of
            those that they are compared with; and about half of the fitted.
        rate: the false-discovery rate, and the level of the list's test.
        null: ask the references about the same users, too.
        seed: of everything that is drawn at random.

    Returns:
        with the checks that ranks allow; a claim needs those of the texts, too.

    Raises:
        ValueError: nobody is audited, or a non-member; a reference has seen
            somebody who is audited or compared.
        DataError: there are too few non-members, or too few words of them.
    """
    _validate.open_fraction(rate=rate)
    known = _known_asked(answers, audited, known)
    if references is not None:
        _refuse_seen(answers, references, audited, known)
    word_scores = score_words(answers, counts, known.fitted, references=references, seed=seed)
    judged = judge_users(answers, word_scores, audited, known.compared, rate=rate, seed=seed)
    nulls = np.empty((0, 0))
    if null and references is not None:
        nulls = null_p_values(
            answers, counts, audited=audited, known=known, references=references, seed=seed
        )
    fewest = min((one.compared_with for one in judged.users if one.score is not None), default=0)
    return replace(
        judged,
        fitted_on=len(known.fitted),
        counted_on=len(known.counted),
        references=0 if references is None else len(references),
        null=tuple(nulls.ravel().tolist()),
        checks=(
            alive_by_ranks(answers, counts, (*known.fitted, *known.compared)),
            *alike_for_shadows(nulls, rate=rate, compared=fewest),
            *judged.checks,
        ),
    )


def null_p_values(
    answers: Answers,
    counts: WordCounts,
    *,
    audited: Sequence[int],
    known: NonMembers,
    references: References,
    seed: int = 0,
) -> Floats:
    """The same audit of each reference model, which never saw the audited users.

    Returns:
        (s, n) p-values of the n users who have scores, which should be uniform: if they are small,
        the users differ from those they are compared with in more than membership. A model that
        leaves too few others, fitted users or words says nothing; of fewer than 3, each does.
    """
    found: list[Floats] = []
    for model in range(len(references)):
        other = references.without(model)
        if other.unseen().min() < 1:
            continue
        fitted = [user for user in known.fitted if not references.seen[model, user]]
        played = Answers(
            asked=answers.asked,
            ranks=np.minimum(references.ranks[model], answers.k + 1),
            k=answers.k,
            vocab_size=answers.vocab_size,
        )
        with suppress(DataError):  # half of the words may be too few to tell anything
            word_scores = score_words(played, counts, fitted, references=other, seed=seed)
            sides = _sides(answers.asked, word_scores, audited, known.compared, seed=seed)
            found.append(_each(*sides, rate=0.05).p_values)
    return np.array(found) if found else np.empty((0, 0))


def judge_users(
    answers: Answers,
    word_scores: Floats,
    audited: Sequence[int],
    compared: Sequence[int],
    *,
    rate: float = 0.05,
    seed: int = 0,
) -> UserAudit:
    """Compare each audited user with non-members, over as much text, and all users together.

    Args:
        answers: what was asked.
        word_scores: (w,) score of each word; NaN where there is none.
        audited: users, as places in `answers.asked.names`.
        compared: non-members, who had no part in the scores.
        rate: the false-discovery rate, and the level of the list's test.
        seed: of the order of each user's texts, and of permutations.

    Returns:
        with the check "powerful" only.

    Raises:
        DataError: there is no score of anybody among the non-members.
    """
    asked, count = answers.asked, len(audited)
    own, others = _sides(asked, word_scores, audited, compared, seed=seed)
    scored = np.isfinite(asked.mean_by_user(word_scores))[list(audited)]
    words, texts = asked.counts(), _texts_of(asked)
    scores, p_values = np.full(count, np.nan), np.ones(count)
    cut, reach = np.zeros((2, count), dtype=np.int64)
    if len(own):
        p_values[scored], scores[scored], cut[scored], reach[scored] = _each(own, others, rate=rate)
    of_list = _list_p_value(own, others, seed=seed) if len(own) > 1 else None
    test = _test(p_values[scored], of_list, reach, len(others), rate) if len(own) else None
    flagged = discoveries(p_values, rate) & (test is not None and test.significant)
    users = tuple(
        AuditedUser(
            user=asked.names[user],
            score=float(scores[place]) if scored[place] else None,
            p_value=float(p_values[place]),
            called=bool(flagged[place]),
            texts=int(texts[user]),
            words=int(words[user]),
            compared_with=int(reach[place]),
            compared_words=int(cut[place]),
        )
        for place, user in enumerate(audited)
    )
    area, theirs = None, np.empty(0)
    if len(own):
        middle = int(np.searchsorted(own.rungs, np.sort(cut[scored])[int(scored.sum()) // 2]))
        mine, theirs = (
            side.scores[side.lengths >= own.rungs[middle], middle] for side in (own, others)
        )
        area = replace(estimates.auc(mine, theirs), name="AUC over users")
    return UserAudit(
        users=users,
        list_p_value=of_list,
        test=test,
        auc=area,
        compared=tuple(theirs.tolist()),
        calibrated_on=len(compared),
        k=answers.k,
        vocab_size=answers.vocab_size,
        rate=rate,
        checks=(powerful(test, count, len(compared)),),
    )


def _sides(
    asked: TokenQueries,
    word_scores: Floats,
    audited: Sequence[int],
    compared: Sequence[int],
    *,
    seed: int,
) -> tuple[CutScores, CutScores]:
    """Those of the audited and of the compared who have a score."""
    scored = np.isfinite(asked.mean_by_user(word_scores))
    own, known = ([user for user in side if scored[user]] for side in (audited, compared))
    if not known:
        raise DataError(
            "no non-member has enough words and reference models",
            remedy="Train more reference models, or pass more --reference text of these users.",
        )
    one, other = cut_users(asked, word_scores, (own, known), seed=seed)
    return one, other


def _each(own: CutScores, others: CutScores, *, rate: float) -> Compared:
    """Conformal p-values of users, each over as many words as enough of the others have."""
    most = others.last_rung(fewest_compared(len(others), rate))
    return compare(own, others, most=most)


def _list_p_value(own: CutScores, others: CutScores, *, seed: int) -> float:
    """A permutation test of whole users on their ranks among all, both sides alike."""
    pool = own + others
    most = pool.last_rung((len(pool) + 1) // 2)
    values = -np.log(compare(pool, pool, most=most, among=True).p_values)
    draws = 9999 if len(pool) <= MANY else 999
    return unit_permutation_test(
        values[: len(own)], values[len(own) :], seed=seed, permutations=draws
    )


def _test(
    p_values: Floats, of_list: float | None, reach: NDArray[np.int64], known: int, rate: float
) -> Test:
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


def _texts_of(asked: TokenQueries) -> NDArray[np.int64]:
    """(u,) texts of each user that are queried."""
    _, first = np.unique(asked.texts, return_index=True)
    return np.bincount(asked.users[first], minlength=len(asked.names))


def _known_asked(answers: Answers, audited: Sequence[int], known: NonMembers) -> NonMembers:
    """The non-members of whom something was asked."""
    if not len(audited):
        raise ValueError(f"audited must be at least one user, got {list(audited)}")
    everybody = {*known.fitted, *known.compared, *known.counted}
    if both := sorted(everybody & set(audited)):
        raise ValueError(f"audited must be no non-members, got user {both[0]} as both")
    words = answers.asked.counts()
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


def _refuse_seen(
    answers: Answers, references: References, audited: Sequence[int], known: NonMembers
) -> None:
    """Whom references have learnt, they cannot be compared by with those whom they have not."""
    seen: NDArray[np.bool_] = np.any(references.seen, axis=0)
    for name, group in (("audited", audited), ("compared", known.compared)):
        if learnt := [user for user in group if seen[user]]:
            raise ValueError(
                f"{name} must be non-members for every reference model, got user {learnt[0]}"
            )
