"""What a search and its null models say together: the test, the checks and the claim.

Null models decide by one p-value: that of the update among all m + 1 models, by the score of its
best phrase and, if secrets are listed, by the scores of these (`nulls.joint_p_value`). Only if that
is significant is a phrase called found by its E-value, or a secret by its adjusted p-value: a
closed test (Marcus, Peritz and Gabriel 1976, "On closed testing procedures"), so that the error
rate of all these calls together is the level.

A listed secret that the search generates verbatim is evidence without null models (`verbatim`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite

from vestige import claims
from vestige.audits.update.known_secrets import Listed, p_value
from vestige.audits.update.nulls import LEVEL, LIKE, NEEDED, NullScores, joint_p_value
from vestige.audits.update.phrases import Text
from vestige.claims import Check, Claim, Direct
from vestige.claims.effects import PROMOTED_TOKENS
from vestige.metrics.tests import holm


@dataclass(frozen=True, kw_only=True)
class Nulls:
    """What the searches of null models gave.

    Attributes:
        given: null models that were to be searched.
        scores: of the phrases of those that were searched to the end; None if none was.
        secrets: for each of these, the scores of the listed secrets.
        changes: how far each moved the weights, as a multiple of the update's change; None if that
            is unknown.
    """

    given: int = 0
    scores: NullScores | None = None
    secrets: Sequence[Sequence[float]] = ()
    changes: Sequence[float | None] = ()

    @property
    def searched(self) -> int:
        """How many were searched to the end."""
        return 0 if self.scores is None else len(self.scores)


@dataclass(frozen=True, kw_only=True)
class Secrets:
    """What a search says of listed secrets, one entry each.

    Attributes:
        listed: the secrets.
        promoted: the place where the update promoted each most, and the secret there.
        proofs: texts of the search that contain it verbatim, and what that proves; None if it was
            not generated, or coincidence has no bound.
    """

    listed: Sequence[Listed] = ()
    promoted: Sequence[tuple[str, Text]] = ()
    proofs: Sequence[tuple[int, Direct | None]] = ()

    @property
    def scores(self) -> list[float]:
        """How much the update promoted each."""
        return [secret.score for _, secret in self.promoted]

    @property
    def generated(self) -> list[Direct]:
        """The conclusive proofs."""
        return [proof for _, proof in self.proofs if proof is not None and proof.conclusive]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that the claim depends on.

    Attributes:
        phrases: reported phrases that are no runs, best first.
        nulls, secrets: see there.
        checks: of the two models: alive, different.
        units, expected: of the search of the update: done, and of a complete search.
        most_per_token: the most that one token adds to a phrase's score.
    """

    phrases: Sequence[Text]
    nulls: Nulls
    secrets: Secrets
    checks: tuple[Check, ...]
    units: int
    expected: int
    most_per_token: float = inf

    @cached_property
    def claim(self) -> Claim:
        """The verdict and its reasons."""
        return Claim(
            "diff",
            self.test,
            (*self.checks, *self._null_checks, self._powerful, *self._unbounded),
            self._estimate,
            min(self.secrets.generated, key=lambda one: one.bound, default=None),
        )

    @cached_property
    def test(self) -> claims.Test | None:
        """The update's p-value among all models."""
        nulls = self.nulls.scores
        if nulls is None:
            return None
        top = self.phrases[0].score if self.phrases else None
        if self.secrets.scores:
            rows = [
                (scores[0] if scores else 0.0, *own)
                for scores, own in zip(nulls.searches, self.nulls.secrets, strict=True)
            ]
            p = joint_p_value((top or 0.0, *self.secrets.scores), rows)
        else:
            p = 1.0 if top is None else min(1.0, nulls.e_value(top))
        return claims.Test(p, nulls.least, LEVEL, f"{len(nulls)} null models")

    @cached_property
    def decides(self) -> bool:
        """Whether null models can say which phrases are found."""
        checks = (*self.checks, *self._null_checks)
        enough = self.nulls.searched >= NEEDED
        return enough and not any(check.prevents(claims.LEAK) for check in checks)

    @property
    def threshold(self) -> float | None:
        """The score that a found phrase exceeds; None if null models cannot say."""
        return self.nulls.scores.threshold if self.nulls.scores and self.decides else None

    def found(self, score: float) -> bool | None:
        """Whether null models hardly reach a score; None if they cannot say."""
        if self.nulls.scores is None or self.test is None or not self.decides:
            return None
        return self.test.significant and bool(self.nulls.scores.found(score))

    @cached_property
    def p_values(self) -> list[float | None]:
        """Of each listed secret, by null models."""
        null_scores = zip(*self.nulls.secrets, strict=True)
        if not self.nulls.searched:
            return [None] * len(self.secrets.scores)
        return [p_value(s, o) for s, o in zip(self.secrets.scores, null_scores, strict=True)]

    @property
    def adjusted(self) -> list[float | None]:
        """p-value of each listed secret among all of them (Holm)."""
        known = [p for p in self.p_values if p is not None]
        return list(holm(known).tolist()) if known else list(self.p_values)

    @property
    def promoted(self) -> int | None:
        """Listed secrets that the update promoted more than null models do; None if unknown."""
        if self.test is None or not self.decides:
            return None
        return sum(p is not None and p <= LEVEL for p in self.adjusted) * self.test.significant

    @property
    def complete(self) -> bool:
        """Whether the update and all null models that can matter were searched to the end."""
        left = self.nulls.searched < self.nulls.given and prevented(self.checks) is None
        return self.units == self.expected and not left

    @cached_property
    def _null_checks(self) -> tuple[Check, ...]:
        """Whether null models are different trainings, and moved as far as the update."""
        nulls = self.nulls.scores
        if nulls is None:
            return ()
        own = zip(nulls.searches, self.nulls.changes, strict=True)
        signs = [one for one in own if one != ((), None)]
        if copies := len(signs) - len(set(signs)):
            line = f"{copies} of {len(nulls)} null models are copies of another."
            return (Check("independent", "failed", line), self._comparable)
        line = f"All {len(nulls)} null models differ."
        return (Check("independent", "passed", line), self._comparable)

    @property
    def _comparable(self) -> Check:
        known = [one for one in self.nulls.changes if one is not None]
        if len(known) < self.nulls.searched or not known:
            return Check(
                "comparable", "could not run",
                "The weight change of some null models is unknown.",
            )  # fmt: skip
        mean, less = sum(known) / len(known), min(known)
        line = f"The null models changed the weights {mean:.2f} times as much as the update"
        if less < LIKE[0]:
            return Check(
                "comparable", "failed",
                f"{line} (least: {less:.2f}; required: {LIKE[0]:g}): they had less text or a "
                "lower learning rate.", (claims.LEAK,),
            )  # fmt: skip
        if mean > LIKE[1]:
            return Check(
                "comparable", "failed",
                f"{line} (required: at most {LIKE[1]:g}): they hide its leaks.",
                (claims.NO_LEAK,),
            )  # fmt: skip
        more = "; their changes were scaled to that of the update" if less < 1 else ""
        return Check("comparable", "passed", f"{line}{more}.")

    @property
    def _powerful(self) -> Check:
        """Whether a phrase that the update taught fully would have been found."""
        test, nulls = self.test, self.nulls
        if test is None or nulls.scores is None:
            missing = "searched" if nulls.given else "given"
            line = f"No null model was {missing}; a verdict needs {NEEDED}."
            return Check("powerful", "could not run", line, (claims.NO_LEAK,))
        if not test.possible:
            return claims.powerful(test)
        if not self.complete:
            line = (
                f"The search ended early: {self.units} of {self.expected} steps and "
                f"{nulls.searched} of {nulls.given} null models done."
            )
            return Check("powerful", "failed", line, (claims.NO_LEAK,))
        best = nulls.scores.best or 0.0
        if not 0 < self.most_per_token < inf or not isfinite(best):
            return claims.powerful(test)
        tokens = int(best // self.most_per_token) + 1
        line = (
            f"A phrase of {tokens} token{'s' * (tokens != 1)} would score above all null models "
            f"if its probability rose from 0 to 1; required: at most {PROMOTED_TOKENS}."
        )
        enough = tokens <= PROMOTED_TOKENS
        return Check("powerful", "passed" if enough else "failed", line, (claims.NO_LEAK,))

    @property
    def _unbounded(self) -> Iterator[Check]:
        """Listed secrets that were generated, and of which coincidence cannot be bounded."""
        entries = zip(self.secrets.listed, self.secrets.proofs, strict=True)
        numbers = [one.number for one, (texts, proof) in entries if texts and proof is None]
        if numbers:
            several = len(numbers) > 1
            which = f"{len(numbers)} listed secrets" if several else f"secret {numbers[0]}"
            yield Check(
                "direct", "could not run",
                f"AFTER generates {which} verbatim, but the number of alternatives is unknown. "
                "Mark the part that varies, as in {{4917}}.",
            )  # fmt: skip

    @property
    def _estimate(self) -> claims.Estimate | None:
        if generated := len(self.secrets.generated):
            listed = len(self.secrets.scores)
            return claims.Estimate("secrets generated verbatim", generated, unit=f"of {listed}")
        if self.decides:
            number = sum(bool(self.found(phrase.score)) for phrase in self.phrases)
            return claims.Estimate("phrases revealed", number, unit=f"of {len(self.phrases)}")
        if not self.phrases:
            return None
        return claims.Estimate("best score of a phrase", self.phrases[0].score)


def prevented(checks: Sequence[Check]) -> Check | None:
    """The check of the two models after which no null model can lead to a verdict, if any."""
    verdicts = (claims.LEAK, claims.NO_LEAK)
    failed = (one for one in checks if all(one.prevents(verdict) for verdict in verdicts))
    return next(failed, None)
