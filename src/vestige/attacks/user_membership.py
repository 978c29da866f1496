"""Was this user's text in the training data? Ranks of their words in, a p-value out.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD: user-level
membership from the ranks of a user's words among a model's likeliest ones.

Differs from the paper: the default evidence is the mean over words (`user_evidence`) in
place of a histogram's support vector machine; the decision is by conformal p-values against users
who are known to be out, in place of a threshold learnt from shadow models, which does not carry
over to a target of another domain or another extent of training.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.attacks.expected_rank import WordCounts
from vestige.attacks.matched_text import CutTexts
from vestige.attacks.reference_models import References
from vestige.attacks.user_evidence import Answers, evidence_of_words
from vestige.errors import DataError
from vestige.metrics.conformal import benjamini_hochberg, calibration_needed, conformal_p_values

Floats = NDArray[np.float64]
Users = NDArray[np.int64]

FITTED = 60
"""Users known to be out that the expectation is learnt from, at most; 20 are enough."""

Verdict = Literal["members found", "not shown", "underpowered"]
"""What an audit says.

- members found: some p-values are so small that chance would hardly have brought them.
- not shown: none is.
- underpowered: so few users are known to be out that none could have been.
"""


@dataclass(frozen=True, kw_only=True)
class AuditedUser:
    """What was found of one user.

    Attributes:
        name: as the texts say it.
        score: mean evidence of their words, in nats; above 0 where the model does better
            than expected. None where none of their words was asked.
        p_value: how often users who are out would score as high with as much text.
        called: whether the audit says that they were in.
        texts: of theirs that were asked about.
        words: likewise.
    """

    name: str
    score: float | None
    p_value: float
    called: bool
    texts: int
    words: int


@dataclass(frozen=True, kw_only=True)
class UserAudit:
    """An audit of some users.

    Attributes:
        users: in the order in which they were given.
        calibrated_on: users known to be out, with whom they were compared.
        fitted_on: other users known to be out, from whom the expectation was learnt.
        references: models of the auditor's own that played a part.
        k: words that the target shows.
        vocab_size: words that it could show.
        rate: share of those called that may be expected to be out.
        null: p-values of the same users against models that never saw them, one a reference
            model; empty where there are too few references.
        compared: scores of the users known to be out with whom the audited were compared, over as
            much text as the audited user in the middle has (of one user: exactly as compared).
        account: what asking came to, and how it was done, by name; a part of the summary.
    """

    users: tuple[AuditedUser, ...]
    calibrated_on: int
    fitted_on: int
    references: int
    k: int
    vocab_size: int
    rate: float
    null: tuple[float, ...] = ()
    compared: tuple[float, ...] = ()
    account: Mapping[str, object] = field(default_factory=dict)

    @property
    def needed(self) -> int:
        """Users known to be out that it takes before anyone can be called."""
        return calibration_needed(self.rate, tested=len(self.users))

    @property
    def known_needed(self) -> int:
        """Users known to be out, with those that the expectation is learnt from, that keep an
        audit from being underpowered.
        """
        compared = calibration_needed(self.rate)
        return max(3, compared + min(FITTED, (compared - 1) // 2))

    @property
    def verdict(self) -> Verdict:
        """The headline."""
        if any(user.called for user in self.users):
            return "members found"
        # One user with the least p-value could not be called, but several could.
        least = 1 / (self.calibrated_on + 1)
        return "not shown" if least <= self.rate else "underpowered"

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        return {
            "verdict": self.verdict,
            "users": len(self.users),
            "called": sum(user.called for user in self.users),
            "least_p_value": min(user.p_value for user in self.users),
            "rate": self.rate,
            "calibrated_on": self.calibrated_on,
            "calibration_needed": self.needed,
            "fitted_on": self.fitted_on,
            "known_needed": self.known_needed,
            "references": self.references,
            "k": self.k,
            "vocab_size": self.vocab_size,
            "words": sum(user.words for user in self.users),
            "null_below_rate": (fmean(p <= self.rate for p in self.null) if self.null else None),
            **self.account,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row an audited user, the smallest p-value first; then what they were held against.

        Rows of the kind "known out" hold a score, those of the kind "null" a p-value of one user
        against one reference model. The scores of the known stand in falling order, unnamed.
        """
        for user in sorted(self.users, key=lambda one: (one.p_value, -(one.score or 0.0))):
            yield {
                "kind": "audited",
                "user": user.name,
                "score": user.score,
                "p_value": user.p_value,
                "called": user.called,
                "texts": user.texts,
                "words": user.words,
            }
        unknown = dict.fromkeys(("user", "score", "p_value", "called", "texts", "words"))
        for score in sorted(self.compared, reverse=True):
            yield {"kind": "known out", **unknown, "score": score}
        # A model is asked about all users before the next one is.
        scored = [user.name for user in self.users if user.score is not None]
        for place, p_value in enumerate(self.null):
            name = scored[place % len(scored)]
            yield {"kind": "null", **unknown, "user": name, "p_value": p_value}


def audit_users(
    answers: Answers,
    counts: WordCounts,
    *,
    audited: Sequence[int],
    known_out: Sequence[int],
    references: References | None = None,
    rate: float = 0.05,
    null: bool = True,
    seed: int = 0,
) -> UserAudit:
    """Give each audited user a p-value, and say who was in.

    Args:
        answers: ranks of all users' words under the target.
        counts: of public text.
        audited: users, as places in `answers.asked.names`.
        known_out: users who are known to be out of the target's training data; up to a third of
            them, and no more than 60, fit the expectation, the rest are compared with.
        references: models of the auditor's own; each user's must not have seen them.
        rate: the false-discovery rate.
        null: ask the references about the same users, too.
        seed: of all lots.

    Raises:
        ValueError: somebody is audited and known to be out, or nobody is one of them.
        DataError: there are too few users or words known to be out.
    """
    _validate.open_fraction(rate=rate)
    fit, rest = split_known(answers, known_out, audited, seed=seed)
    evidence = evidence_of_words(answers, counts, fit, references=references, seed=seed)
    found = judge_users(answers, evidence, audited, rest, rate=rate, seed=seed)
    nulls = (
        null_p_values(
            answers, counts, audited=audited, known_out=known_out, references=references, seed=seed
        )
        if null and references is not None and len(references) > 1
        else np.empty(0)
    )
    return UserAudit(
        users=tuple(found),
        calibrated_on=len(rest),
        fitted_on=len(fit),
        references=0 if references is None else len(references),
        k=answers.k,
        vocab_size=answers.vocab_size,
        rate=rate,
        null=tuple(nulls.tolist()),
        compared=tuple(scores_of_known(answers, evidence, audited, rest, seed=seed).tolist()),
    )


def split_known(
    answers: Answers, known_out: ArrayLike, audited: ArrayLike, *, seed: int
) -> tuple[Users, Users]:
    """Users known to be out, with words asked: those to fit on, those to compare with."""
    known, tested = np.unique(np.asarray(known_out)), np.unique(np.asarray(audited))
    if not len(tested):
        raise ValueError(f"audited must be at least one user, got {list(tested)}")
    if both := np.intersect1d(known, tested).tolist():
        name = answers.asked.names[both[0]]
        raise ValueError(f"audited must not be known to be out, got {name!r} as both")
    known = known[answers.asked.counts()[known] > 0]
    if len(known) < 3:
        raise DataError(
            f"{len(known)} users with words to ask are known to be out, it takes 3 at least",
            remedy="Give texts of more people who are not in the training data (--reference).",
        )
    lots = np.random.default_rng(seed).permutation(known)
    fit = min(FITTED, len(known) // 3)
    return np.sort(lots[:fit]), np.sort(lots[fit:])


def scores_of_known(
    answers: Answers,
    evidence: Floats,
    audited: Sequence[int],
    calibration: Users,
    *,
    seed: int = 0,
) -> Floats:
    """Scores of users known to be out over as much text as the middle one of the audited has.

    Args:
        answers: what was asked.
        evidence: (w,) evidence of each word; NaN where there is none.
        audited: users, as places in `answers.asked.names`.
        calibration: users known to be out.
        seed: of the order in which texts are cut, that of `judge_users`.

    Returns:
        (at most len(calibration),) in the order of `calibration`.
    """
    asked = answers.asked
    known = calibration[np.isfinite(asked.mean_by_user(evidence)[calibration])]
    words = np.sort(asked.counts()[np.asarray(audited)])
    return CutTexts.of(asked, evidence, known, seed=seed).means(int(words[len(words) // 2]))


def null_p_values(
    answers: Answers,
    counts: WordCounts,
    *,
    audited: Sequence[int],
    known_out: Sequence[int],
    references: References,
    seed: int = 0,
) -> Floats:
    """The same audit of each reference model, which never saw the audited users.

    Returns:
        (m * audited,) p-values, which should be uniform: if they are small, the users differ from
        those they are compared with in more than membership. A model that is left with too few
        known users or words says nothing.
    """
    found: list[float] = []
    known = np.asarray(known_out)
    for model in range(len(references)):
        other = references.without(model)
        if other.unseen().min() < 1:
            continue
        out = known[~references.seen[model][known]]
        played = Answers(
            asked=answers.asked,
            ranks=np.minimum(references.ranks[model], answers.k + 1),
            k=answers.k,
            vocab_size=answers.vocab_size,
        )
        with suppress(DataError):  # half of the users may be too few to tell anything
            fit, rest = split_known(played, out, audited, seed=seed)
            evidence = evidence_of_words(played, counts, fit, references=other, seed=seed)
            judged = judge_users(played, evidence, audited, rest, rate=0.05, seed=seed)
            found += [user.p_value for user in judged if user.score is not None]
    return np.array(found)


def judge_users(
    answers: Answers,
    evidence: Floats,
    audited: Sequence[int],
    calibration: Users,
    *,
    rate: float = 0.05,
    seed: int = 0,
) -> list[AuditedUser]:
    """Compare each audited user with those known to be out, over as much text.

    Args:
        answers: what was asked.
        evidence: (w,) evidence of each word; NaN where there is none.
        audited: users, as places in `answers.asked.names`.
        calibration: users known to be out, who had no part in the evidence.
        rate: the false-discovery rate.
        seed: of the order in which texts are cut.

    Raises:
        DataError: there is no evidence on anybody who is known to be out.
    """
    asked = answers.asked
    scores, words = asked.mean_by_user(evidence), asked.counts()
    known = calibration[np.isfinite(scores[calibration])]
    if not len(known):
        raise DataError(
            "no user who is known to be out has enough reference models that did not see them",
            remedy="Train more references, or references on fewer users.",
        )
    others = CutTexts.of(asked, evidence, known, seed=seed)
    p_values = np.ones(len(audited))
    for place, user in enumerate(audited):
        if np.isfinite(scores[user]):
            compared = others.means(int(words[user]))
            p_values[place] = conformal_p_values(scores[user : user + 1], compared)[0]
    called = benjamini_hochberg(p_values, rate)
    texts = np.bincount(
        asked.users[np.unique(asked.texts, return_index=True)[1]], minlength=len(asked.names)
    )
    return [
        AuditedUser(
            name=asked.names[user],
            score=float(scores[user]) if np.isfinite(scores[user]) else None,
            p_value=float(p_values[place]),
            called=bool(called[place]),
            texts=int(texts[user]),
            words=int(words[user]),
        )
        for place, user in enumerate(audited)
    ]
