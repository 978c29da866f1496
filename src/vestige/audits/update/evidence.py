"""The evidence of a search and its null models: the test, the checks and the claim.

Null models decide by one p-value: that of the update among all m + 1 models, by the score of its
best phrase and, if secrets are listed, by their scores (`nulls.joint_p_value`). Only if that is
significant is a phrase found by its E-value, or a secret by its adjusted p-value: a closed test
(Marcus, Peritz and Gabriel 1976, "On closed testing procedures"), so that the error rate of all
these calls together is the level.

A listed secret that the search generates verbatim is evidence without null models (`verbatim`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite
from typing import NamedTuple

from vestige import claims
from vestige.audits.update.listed_secrets import ListedSecret, p_value
from vestige.audits.update.nulls import CHANGE_LIMITS, LEVEL, NEEDED, NullScores, joint_p_value
from vestige.audits.update.phrases import Text
from vestige.claims import Check, Claim, Direct
from vestige.claims.effects import PROMOTED_TOKENS
from vestige.metrics.tests import holm


class NullSearch(NamedTuple):
    """The complete search of a null model."""

    scores: Sequence[float]  # of its phrases
    secrets: Sequence[float] = ()  # scores of the listed secrets
    change: float | None = None  # of the weights, as a multiple of the update's; None if unknown


class SecretEvidence(NamedTuple):
    """A listed secret and what the search of the update shows about it."""

    secret: ListedSecret
    context: str  # where the update promoted it most
    text: Text  # the secret in that context
    texts: int  # generated texts that contain it verbatim
    proof: Direct | None  # that it was generated; None if coincidence has no bound


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that the claim depends on.

    Attributes:
        phrases: reported phrases that are not repetitive, best first.
        checks: of the two models: alive, different.
        units: units of work done in the search of the update.
        expected: units of the complete search.
        nulls_requested: number of null models to be searched.
        nulls: finished searches of null models.
        secrets: evidence of listed secrets.
        most_per_token: the most that one token adds to a phrase's score.
    """

    phrases: Sequence[Text]
    checks: tuple[Check, ...]
    units: int
    expected: int
    nulls_requested: int = 0
    nulls: Sequence[NullSearch] = ()
    secrets: Sequence[SecretEvidence] = ()
    most_per_token: float = inf

    @cached_property
    def claim(self) -> Claim:
        """The verdict and its reasons."""
        strongest = min(self.generated, key=lambda proof: proof.bound, default=None)
        checks = (*self.checks, *self._null_checks, self._powerful, *self._unbounded)
        return Claim("diff", self.test, checks, self._estimate, strongest)

    @cached_property
    def scores(self) -> NullScores | None:
        """Scores of the null models' phrases; None without null models."""
        return NullScores.of(null.scores for null in self.nulls) if self.nulls else None

    @property
    def generated(self) -> list[Direct]:
        """Conclusive proofs that a listed secret was generated."""
        proofs = (secret.proof for secret in self.secrets)
        return [proof for proof in proofs if proof is not None and proof.conclusive]

    @cached_property
    def test(self) -> claims.Test | None:
        """The update's p-value among all models."""
        scores = self.scores
        if scores is None:
            return None
        best = self.phrases[0].score if self.phrases else None
        if self.secrets:
            update = (best or 0.0, *(secret.text.score for secret in self.secrets))
            nulls = [(max(null.scores, default=0.0), *null.secrets) for null in self.nulls]
            p = joint_p_value(update, nulls)
        else:
            p = 1.0 if best is None else min(1.0, scores.e_value(best))
        return claims.Test(p, scores.least, LEVEL, f"{len(scores)} null models")

    @cached_property
    def decides(self) -> bool:
        """Whether the null models can decide which phrases are found."""
        checks = (*self.checks, *self._null_checks)
        return len(self.nulls) >= NEEDED and not any(c.prevents(claims.LEAK) for c in checks)

    @property
    def threshold(self) -> float | None:
        """The score that a found phrase exceeds; None if null models cannot decide."""
        return self.scores.threshold if self.scores and self.decides else None

    def found(self, score: float) -> bool | None:
        """Whether a phrase of this score is found; None if null models cannot decide."""
        if self.scores is None or self.test is None or not self.decides:
            return None
        return self.test.significant and bool(self.scores.found(score))

    @cached_property
    def p_values(self) -> list[float | None]:
        """Of each listed secret, by null models."""
        return [
            p_value(secret.text.score, [null.secrets[index] for null in self.nulls])
            for index, secret in enumerate(self.secrets)
        ]

    @cached_property
    def adjusted(self) -> list[float | None]:
        """p-value of each listed secret among all of them (Holm)."""
        p_values = [p for p in self.p_values if p is not None]
        return list(holm(p_values).tolist()) if p_values else list(self.p_values)

    @property
    def promoted(self) -> int | None:
        """Listed secrets that the update promoted more than null models do; None if unknown."""
        if self.test is None or not self.decides:
            return None
        return sum(p is not None and p <= LEVEL for p in self.adjusted) * self.test.significant

    @property
    def complete(self) -> bool:
        """Whether the searches of the update and of all relevant null models are complete."""
        missing = len(self.nulls) < self.nulls_requested and blocking_check(self.checks) is None
        return self.units == self.expected and not missing

    @cached_property
    def _null_checks(self) -> tuple[Check, ...]:
        """Whether null models are different trainings, and moved as far as the update."""
        if not self.nulls:
            return ()
        signatures = [(tuple(sorted(null.scores)), null.change) for null in self.nulls]
        signatures = [signature for signature in signatures if signature != ((), None)]
        number = len(self.nulls)
        if copies := len(signatures) - len(set(signatures)):
            sentence = f"{copies} of {number} null models are copies of another."
            independent = Check("independent", "failed", sentence)
        else:
            independent = Check("independent", "passed", f"All {number} null models differ.")
        return independent, self._comparable

    @property
    def _comparable(self) -> Check:
        changes = [null.change for null in self.nulls if null.change is not None]
        if len(changes) < len(self.nulls):
            sentence = "The weight change of some null models is unknown."
            return Check("comparable", "could not run", sentence)
        (low, high), mean, least = CHANGE_LIMITS, sum(changes) / len(changes), min(changes)
        sentence = f"The null models changed the weights {mean:.2f} times as much as the update"
        if least < low:
            sentence += (
                f" (least: {least:.2f}; required: {low:g}): they had less text or a lower "
                "learning rate."
            )
            return Check("comparable", "failed", sentence, (claims.LEAK,))
        if mean > high:
            sentence += f" (required: at most {high:g}): they hide its leaks."
            return Check("comparable", "failed", sentence, (claims.NO_LEAK,))
        scaled = "; their changes were scaled to that of the update" if least < 1 else ""
        return Check("comparable", "passed", f"{sentence}{scaled}.")

    @property
    def _powerful(self) -> Check:
        """Whether a phrase that the update fully taught would have been found."""
        prevented = (claims.NO_LEAK,)
        if self.test is None or self.scores is None:
            missing = "searched" if self.nulls_requested else "given"
            sentence = f"No null model was {missing}; a verdict needs {NEEDED}."
            return Check("powerful", "could not run", sentence, prevented)
        if not self.test.possible:
            return claims.powerful(self.test)
        if not self.complete:
            sentence = (
                f"The search ended early: {self.units} of {self.expected} steps and "
                f"{len(self.nulls)} of {self.nulls_requested} null models done."
            )
            return Check("powerful", "failed", sentence, prevented)
        best = self.scores.best or 0.0
        if not 0 < self.most_per_token < inf or not isfinite(best):
            return claims.powerful(self.test)
        tokens = int(best // self.most_per_token) + 1
        sentence = (
            f"A phrase of {tokens} token{'s' * (tokens != 1)} would score above all null models "
            f"if its probability rose from 0 to 1; required: at most {PROMOTED_TOKENS}."
        )
        enough = tokens <= PROMOTED_TOKENS
        return Check("powerful", "passed" if enough else "failed", sentence, prevented)

    @property
    def _unbounded(self) -> Iterator[Check]:
        """A failed check if secrets were generated whose coincidence has no bound."""
        unbounded = [secret for secret in self.secrets if secret.texts and secret.proof is None]
        if unbounded:
            several = len(unbounded) > 1
            number = unbounded[0].secret.secret.number
            which = f"{len(unbounded)} listed secrets" if several else f"secret {number}"
            sentence = (
                f"AFTER generates {which} verbatim, but the number of alternatives is unknown. "
                "Mark the part that varies, as in {{4917}}."
            )
            yield Check("direct", "could not run", sentence)

    @property
    def _estimate(self) -> claims.Estimate | None:
        if generated := len(self.generated):
            unit = f"of {len(self.secrets)}"
            return claims.Estimate("secrets generated verbatim", generated, unit=unit)
        if self.decides:
            number = sum(bool(self.found(phrase.score)) for phrase in self.phrases)
            return claims.Estimate("phrases revealed", number, unit=f"of {len(self.phrases)}")
        if not self.phrases:
            return None
        return claims.Estimate("best score of a phrase", self.phrases[0].score)


def blocking_check(checks: Sequence[Check]) -> Check | None:
    """The first check of the two models that prevents every verdict, if any."""
    verdicts = (claims.LEAK, claims.NO_LEAK)
    blocking = (check for check in checks if all(check.prevents(v) for v in verdicts))
    return next(blocking, None)
