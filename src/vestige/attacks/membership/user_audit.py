"""Result of an audit of users: a p-value for each and for all, and the claim that they support."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from statistics import fmean

from vestige.attacks.membership.non_members import users_needed
from vestige.claims import Check, Claim, Estimate, Test
from vestige.metrics.tests import calibration_needed
from vestige.results import Measurement

FEWEST_MODELS = 3
"""Shadow models needed to audit one in the target's place: it and its pair cannot be references."""


@dataclass(frozen=True, kw_only=True)
class AuditedUser:
    """What the audit found about one user.

    Attributes:
        user: their name.
        score: mean score of the compared words, in nats; above 0 if the model does better than
            expected. None if none of their words was queried.
        p_value: how often non-members would score as high with as much text.
        called: whether the audit flags them as a member.
        texts: of theirs that were queried.
        words: likewise.
        compared_with: non-members who have as many words as are compared.
        compared_words: of this user, and of each of those.
    """

    user: str
    score: float | None
    p_value: float
    called: bool
    texts: int
    words: int
    compared_with: int
    compared_words: int


@dataclass(frozen=True, kw_only=True)
class UserAudit(Measurement):
    """An audit of some users.

    Attributes:
        users: in the order in which they were given.
        list_p_value: that non-members score as high, of all users together; None for one user.
        test: the same, with single users; None if nobody has a score.
        auc: how often an audited user outranks a non-member.
        compared: scores of the non-members over as many words as the audited user with the middle
            amount of text was compared over.
        calibrated_on: non-members that the users are compared with: all, or those with enough text.
        fitted_on: other non-members that the expectation was learned from; 0 if it was learned from
            all audited and compared users.
        counted_on: other non-members whose words were counted; 0 if other text was counted.
        references: shadow models that were used.
        k: words that the target shows.
        vocab_size: words that it could show.
        rate: false-discovery rate, and level of the test.
        null: p-values of the same users under shadow models, which never saw them, model by model.
        statistics: of queries, by name; a part of the summary.
        checks: that the claim depends on.
        based: whether there was a base, which saw nobody.
    """

    users: tuple[AuditedUser, ...]
    list_p_value: float | None
    test: Test | None
    auc: Estimate | None
    compared: tuple[float, ...]
    calibrated_on: int
    fitted_on: int = 0
    counted_on: int = 0
    references: int = 0
    k: int
    vocab_size: int
    rate: float
    null: tuple[float, ...] = ()
    statistics: Mapping[str, object] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    based: bool = False

    @property
    def claim(self) -> Claim:
        """Whether somebody was a member, by the test and the checks.

        Raises:
            ValueError: a check is missing; only the verb makes all of them.
        """
        verb = "membership --base" if self.based else "membership"
        return Claim(verb, self.test, self.checks, self.auc)

    def summary(self) -> dict[str, object]:
        """Verdict, users flagged, p-values, and what they depend on."""
        known = users_needed(self.rate) if self.fitted_on else calibration_needed(self.rate)
        return {
            **self.claim.summary(),
            "users": len(self.users),
            "called": sum(user.called for user in self.users),
            "p_value": None if self.test is None else self.test.p,
            "list_p_value": self.list_p_value,
            "least_p_value": min(user.p_value for user in self.users),
            "rate": self.rate,
            "calibrated_on": self.calibrated_on,
            "calibration_needed": calibration_needed(self.rate, tested=len(self.users)),
            "fitted_on": self.fitted_on,
            "counted_on": self.counted_on,
            "known_needed": known,
            "references": self.references,
            "references_needed": FEWEST_MODELS,
            "k": self.k,
            "vocab_size": self.vocab_size,
            "words": sum(user.words for user in self.users),
            "null_below_rate": (fmean(p <= self.rate for p in self.null) if self.null else None),
            **self.statistics,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """Audited users, the smallest p-value first; then unnamed non-members and null p-values.

        Rows of kind "known out" hold the score of a non-member in falling order, those of kind
        "null" the p-value of one user under one shadow model.
        """
        for user in sorted(self.users, key=lambda one: (one.p_value, -(one.score or 0.0))):
            yield {"kind": "audited", **asdict(user)}
        unknown = dict.fromkeys(one.name for one in fields(AuditedUser))
        for score in sorted(self.compared, reverse=True):
            yield {"kind": "known out", **unknown, "score": score}
        scored = [user.user for user in self.users if user.score is not None]
        for place, p_value in enumerate(self.null):
            name = scored[place % len(scored)]
            yield {"kind": "null", **unknown, "user": name, "p_value": p_value}
