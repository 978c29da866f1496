"""User-level membership inference: ranks of users' words in, p-values out.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD: user-level
membership from the ranks of a user's words among a model's likeliest ones.

Differs from the paper: the default score is the mean over words (`membership_scores`) in place of a
histogram's support vector machine; the decision is by conformal p-values against non-members who
have no part in anything else (`non_members`), over exactly as much text (`length_matching`), in
place of a threshold learnt from shadow models, which does not carry over to a target of another
domain or another extent of training.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.attacks.membership.expected_rank import WordCounts
from vestige.attacks.membership.length_matching import LengthMatched, common_words
from vestige.attacks.membership.membership_scores import Answers, score_words
from vestige.attacks.membership.non_members import NonMembers
from vestige.attacks.membership.reference_models import References
from vestige.attacks.membership.user_audit import AuditedUser, UserAudit
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError
from vestige.metrics.conformal import benjamini_hochberg, calibration_needed, conformal_p_values

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
    """Give each audited user a p-value, and say who was in.

    Args:
        answers: ranks of users' words under the target.
        counts: of text of nobody who is audited, fitted or compared.
        audited: users, as places in `answers.asked.names`.
        known: non-members of the target's training data, in groups. Those whom
            nothing was asked of are left out.
        references: models of the auditor's own, which have seen nobody of the audited, nor of
            those that they are compared with; and about half of the fitted.
        rate: the false-discovery rate.
        null: ask the references about the same users, too.
        seed: of everything that is drawn at random.

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
    found, compared = judge_users(
        answers, word_scores, audited, known.compared, rate=rate, seed=seed
    )
    nulls: Floats = np.empty(0)
    if null and references is not None:
        nulls = null_p_values(
            answers, counts, audited=audited, known=known, references=references, seed=seed
        )
    return UserAudit(
        users=tuple(found),
        calibrated_on=len(known.compared),
        fitted_on=len(known.fitted),
        counted_on=len(known.counted),
        references=0 if references is None else len(references),
        k=answers.k,
        vocab_size=answers.vocab_size,
        rate=rate,
        null=tuple(nulls.tolist()),
        compared=tuple(compared.tolist()),
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
        (m * audited,) p-values, which should be uniform: if they are small, the users differ from
        those they are compared with in more than membership. A model that leaves too few others,
        fitted users or words says nothing; of fewer than 3, each does.
    """
    found: list[float] = []
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
            judged, _ = judge_users(played, word_scores, audited, known.compared, seed=seed)
            found += [user.p_value for user in judged if user.score is not None]
    return np.array(found)


def judge_users(
    answers: Answers,
    word_scores: Floats,
    audited: Sequence[int],
    compared: Sequence[int],
    *,
    rate: float = 0.05,
    seed: int = 0,
) -> tuple[list[AuditedUser], Floats]:
    """Compare each audited user with non-members, over as much text.

    Args:
        answers: what was asked.
        word_scores: (w,) score of each word; NaN where there is none.
        audited: users, as places in `answers.asked.names`.
        compared: non-members, who had no part in the scores.
        rate: the false-discovery rate.
        seed: of the order of each user's texts.

    Returns:
        the audited users in their order; and the scores that the one with the middle amount of
        text was compared with.

    Raises:
        DataError: there is no score of anybody among the non-members.
    """
    asked = answers.asked
    scored = np.isfinite(asked.mean_by_user(word_scores))
    known = _comparable(compared, scored)
    others = LengthMatched.of(asked, word_scores, known, seed=seed)
    tested = [user for user in audited if scored[user]]
    own = LengthMatched.of(asked, word_scores, tested, seed=seed).sums
    scores, p_values = np.full(len(audited), np.nan), np.ones(len(audited))
    cut, reach = np.zeros((2, len(audited)), dtype=np.int64)
    fewest = fewest_compared(len(known), rate)
    for place, sums in zip(np.flatnonzero(scored[list(audited)]), own, strict=True):
        cut[place] = common_words(len(sums), others.words, fewest=fewest)
        scores[place] = sums[cut[place] - 1] / cut[place]
        theirs = others.means(cut[place])
        reach[place] = len(theirs)
        p_values[place] = conformal_p_values(scores[place : place + 1], theirs)[0]
    flagged, words, texts = benjamini_hochberg(p_values, rate), asked.counts(), _texts_of(asked)
    found = [
        AuditedUser(
            name=asked.names[user],
            score=float(scores[place]) if np.isfinite(scores[place]) else None,
            p_value=float(p_values[place]),
            called=bool(flagged[place]),
            texts=int(texts[user]),
            words=int(words[user]),
            compared_with=int(reach[place]),
            compared_words=int(cut[place]),
        )
        for place, user in enumerate(audited)
    ]
    middle = int(np.sort(cut)[len(cut) // 2])
    return found, others.means(middle) if middle else np.empty(0)


def _comparable(compared: Sequence[int], scored: NDArray[np.bool_]) -> list[int]:
    """The non-members who have a score."""
    known = [user for user in compared if scored[user]]
    if not known:
        raise DataError(
            "no user among the non-members has words and reference models enough",
            remedy="Train more references, or give more texts of these people (--reference).",
        )
    return known


def _texts_of(asked: TokenQueries) -> NDArray[np.int64]:
    """(u,) texts of each user that are queried."""
    _, first = np.unique(asked.texts, return_index=True)
    return np.bincount(asked.users[first], minlength=len(asked.names))


def fewest_compared(known: int, rate: float) -> int:
    """Users to compare anybody with at least: half of those known, and enough for a p-value of
    `rate` where so many are known.

    Fewer of them have more text, and so less noise; but less than a half of them costs more power
    by coarse p-values than it gains.

    Example:
        >>> fewest_compared(100, 0.05), fewest_compared(24, 0.05), fewest_compared(10, 0.05)
        (50, 19, 10)
    """
    return min(known, max(calibration_needed(rate), (known + 1) // 2))


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
            f"{len(fitted)} users with words to ask are there to learn from and {len(compared)} to "
            "compare with, it takes one of each at least",
            remedy="Give texts of more people who are not in the training data (--reference).",
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
                f"{name} must be users whom no reference has seen, got user {learnt[0]}"
            )
