"""Result of an audit of users: a p-value for each and for all, and the claim that they support."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from vestige.attacks.membership.non_members import users_needed
from vestige.claims import Check, Claim, Estimate, Test, Verdict
from vestige.metrics.conformal import calibration_needed
from vestige.results import Measurement

FEWEST_MODELS = 3
"""Reference models below which none can be audited in the target's place: it and its pair, which
has learnt from whomever it has not, leave no other to refer to."""


@dataclass(frozen=True, kw_only=True)
class AuditedUser:
    """What was found of one user.

    Attributes:
        name: as the texts say it.
        score: mean score of their words that are compared, in nats; above 0 where the model
            does better than expected. None where none of their words was asked.
        p_value: how often users who are out would score as high with as much text.
        called: whether the audit flags them as a member.
        texts: of theirs that were asked about.
        words: likewise.
        compared_with: non-members who have as many words as are compared.
        compared_words: of this user, and of each of those.
    """

    name: str
    score: float | None
    p_value: float
    called: bool
    texts: int
    words: int
    compared_with: int
    compared_words: int

    def row(self) -> dict[str, object]:
        """A row of a table."""
        return {
            "user": self.name,
            "score": self.score,
            "p_value": self.p_value,
            "called": self.called,
            "texts": self.texts,
            "words": self.words,
            "compared_with": self.compared_with,
            "compared_words": self.compared_words,
        }


@dataclass(frozen=True, kw_only=True)
class UserAudit(Measurement):
    """An audit of some users.

    Attributes:
        users: in the order in which they were given.
        list_p_value: that non-members score as high, of all users together; None for one user.
        test: the same, with single users; None where nobody has a score.
        auc: how often an audited user outranks a non-member.
        calibrated_on: non-members, with whom they were compared: with all of them, or
            with those who have text enough, see `AuditedUser.compared_with`.
        fitted_on: other non-members, from whom the expectation was learnt; 0 where it was learnt
            from all who are audited or compared.
        counted_on: yet others, whose words were counted; 0 where the counts are of other text.
        references: models of the auditor's own that played a part.
        k: words that the target shows.
        vocab_size: words that it could show.
        rate: share of those flagged that may be expected to be out.
        null: p-values of the same users against models that never saw them, one a reference
            model; empty where there are too few references.
        compared: scores of the non-members with whom the audited user was compared who
            has the middle amount of text; of one user: all that decides the p-value.
        statistics: of queries, and how they were chosen, by name; a part of the summary.
        checks: that the claim rests on.
        based: whether there was a model that saw nobody, the base.
    """

    users: tuple[AuditedUser, ...]
    list_p_value: float | None
    test: Test | None
    auc: Estimate | None
    calibrated_on: int
    fitted_on: int
    counted_on: int
    references: int
    k: int
    vocab_size: int
    rate: float
    null: tuple[float, ...] = ()
    compared: tuple[float, ...] = ()
    statistics: Mapping[str, object] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    based: bool = False

    @property
    def needed(self) -> int:
        """Non-members that it takes before anyone can be called."""
        return calibration_needed(self.rate, tested=len(self.users))

    @property
    def known_needed(self) -> int:
        """Non-members, in all groups, before a p-value can be `rate`."""
        return users_needed(self.rate) if self.fitted_on else calibration_needed(self.rate)

    @property
    def claim(self) -> Claim:
        """Whether somebody of the list was in, by the test and the checks.

        Raises:
            ValueError: a check is missing; only the workflow makes all of them.
        """
        verb = "membership --base" if self.based else "membership"
        return Claim(verb, self.test, self.checks, self.auc)

    @property
    def verdict(self) -> Verdict:
        """The claim's."""
        return self.claim.verdict

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        return {
            **self.claim.summary(),
            "users": len(self.users),
            "called": sum(user.called for user in self.users),
            "p_value": None if self.test is None else self.test.p,
            "list_p_value": self.list_p_value,
            "least_p_value": min(user.p_value for user in self.users),
            "rate": self.rate,
            "calibrated_on": self.calibrated_on,
            "calibration_needed": self.needed,
            "fitted_on": self.fitted_on,
            "counted_on": self.counted_on,
            "known_needed": self.known_needed,
            "references": self.references,
            "references_needed": FEWEST_MODELS,
            "k": self.k,
            "vocab_size": self.vocab_size,
            "words": sum(user.words for user in self.users),
            "null_below_rate": (fmean(p <= self.rate for p in self.null) if self.null else None),
            **self.statistics,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row an audited user, the smallest p-value first; then what they were held against.

        Rows of the kind "known out" hold a score, those of the kind "null" a p-value of one user
        against one reference model. The scores of the known stand in falling order, unnamed.
        """
        for user in sorted(self.users, key=lambda one: (one.p_value, -(one.score or 0.0))):
            yield {"kind": "audited", **user.row()}
        unknown = dict.fromkeys(self.users[0].row())
        for score in sorted(self.compared, reverse=True):
            yield {"kind": "known out", **unknown, "score": score}
        # A model is asked about all users before the next one is.
        scored = [user.name for user in self.users if user.score is not None]
        for place, p_value in enumerate(self.null):
            name = scored[place % len(scored)]
            yield {"kind": "null", **unknown, "user": name, "p_value": p_value}
