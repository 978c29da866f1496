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
from typing import NamedTuple

from vestige import claims
from vestige.audits.update.known_secrets import Listed, p_value
from vestige.audits.update.nulls import LEVEL, LIKE, NEEDED, NullScores, joint_p_value
from vestige.audits.update.phrases import Text
from vestige.claims import Check, Claim, Direct
from vestige.claims.effects import PROMOTED_TOKENS
from vestige.metrics.tests import holm


class NullSearch(NamedTuple):
    """A null model that was searched to the end: scores of its phrases and of the listed secrets,
    and how far it moved the weights, as a multiple of the update's change; None if unknown."""

    scores: Sequence[float]
    secrets: Sequence[float] = ()
    change: float | None = None


class Scored(NamedTuple):
    """A listed secret, where the update promoted it most, the texts of the search that contain it
    verbatim, and what that proves; None if coincidence has no bound."""

    listed: Listed
    place: str
    text: Text
    texts: int
    proof: Direct | None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that the claim depends on.

    Attributes:
        phrases: reported phrases that are no runs, best first.
        checks: of the two models: alive, different.
        units, expected: of the search of the update: done, and of a complete search.
        given: null models that were to be searched.
        nulls: those that were searched.
        secrets: what the search says of listed secrets.
        most_per_token: the most that one token adds to a phrase's score.
    """

    phrases: Sequence[Text]
    checks: tuple[Check, ...]
    units: int
    expected: int
    given: int = 0
    nulls: Sequence[NullSearch] = ()
    secrets: Sequence[Scored] = ()
    most_per_token: float = inf

    @cached_property
    def claim(self) -> Claim:
        """The verdict and its reasons."""
        best = min(self.generated, key=lambda one: one.bound, default=None)
        checks = (*self.checks, *self._null_checks, self._powerful, *self._unbounded)
        return Claim("diff", self.test, checks, self._estimate, best)

    @cached_property
    def scores(self) -> NullScores | None:
        """Of the null models' phrases; None without one."""
        return NullScores.of(one.scores for one in self.nulls) if self.nulls else None

    @property
    def generated(self) -> list[Direct]:
        """Conclusive proofs that a listed secret was generated."""
        proofs = (one.proof for one in self.secrets)
        return [proof for proof in proofs if proof is not None and proof.conclusive]

    @cached_property
    def test(self) -> claims.Test | None:
        """The update's p-value among all models."""
        scores = self.scores
        if scores is None:
            return None
        top = self.phrases[0].score if self.phrases else None
        if self.secrets:
            own = (top or 0.0, *(one.text.score for one in self.secrets))
            rows = [(max(one.scores, default=0.0), *one.secrets) for one in self.nulls]
            p = joint_p_value(own, rows)
        else:
            p = 1.0 if top is None else min(1.0, scores.e_value(top))
        return claims.Test(p, scores.least, LEVEL, f"{len(scores)} null models")

    @cached_property
    def decides(self) -> bool:
        """Whether null models can say which phrases are found."""
        checks = (*self.checks, *self._null_checks)
        return len(self.nulls) >= NEEDED and not any(one.prevents(claims.LEAK) for one in checks)

    @property
    def threshold(self) -> float | None:
        """The score that a found phrase exceeds; None if null models cannot say."""
        return self.scores.threshold if self.scores and self.decides else None

    def found(self, score: float) -> bool | None:
        """Whether null models hardly reach a score; None if they cannot say."""
        if self.scores is None or self.test is None or not self.decides:
            return None
        return self.test.significant and bool(self.scores.found(score))

    @cached_property
    def p_values(self) -> list[float | None]:
        """Of each listed secret, by null models."""
        return [
            p_value(one.text.score, [null.secrets[number] for null in self.nulls])
            for number, one in enumerate(self.secrets)
        ]

    @cached_property
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
        left = len(self.nulls) < self.given and prevented(self.checks) is None
        return self.units == self.expected and not left

    @cached_property
    def _null_checks(self) -> tuple[Check, ...]:
        """Whether null models are different trainings, and moved as far as the update."""
        if not self.nulls:
            return ()
        signs = [(tuple(sorted(one.scores)), one.change) for one in self.nulls]
        signs = [sign for sign in signs if sign != ((), None)]
        number = len(self.nulls)
        if copies := len(signs) - len(set(signs)):
            line = f"{copies} of {number} null models are copies of another."
            independent = Check("independent", "failed", line)
        else:
            independent = Check("independent", "passed", f"All {number} null models differ.")
        return independent, self._comparable

    @property
    def _comparable(self) -> Check:
        known = [one.change for one in self.nulls if one.change is not None]
        if len(known) < len(self.nulls):
            line = "The weight change of some null models is unknown."
            return Check("comparable", "could not run", line)
        mean, less = sum(known) / len(known), min(known)
        line = f"The null models changed the weights {mean:.2f} times as much as the update"
        if less < LIKE[0]:
            line += f" (least: {less:.2f}; required: {LIKE[0]:g}): they had less text or a lower "
            return Check("comparable", "failed", f"{line}learning rate.", (claims.LEAK,))
        if mean > LIKE[1]:
            line += f" (required: at most {LIKE[1]:g}): they hide its leaks."
            return Check("comparable", "failed", line, (claims.NO_LEAK,))
        more = "; their changes were scaled to that of the update" if less < 1 else ""
        return Check("comparable", "passed", f"{line}{more}.")

    @property
    def _powerful(self) -> Check:
        """Whether a phrase that the update taught fully would have been found."""
        blocks = (claims.NO_LEAK,)
        if self.test is None or self.scores is None:
            missing = "searched" if self.given else "given"
            line = f"No null model was {missing}; a verdict needs {NEEDED}."
            return Check("powerful", "could not run", line, blocks)
        if not self.test.possible:
            return claims.powerful(self.test)
        if not self.complete:
            line = (
                f"The search ended early: {self.units} of {self.expected} steps and "
                f"{len(self.nulls)} of {self.given} null models done."
            )
            return Check("powerful", "failed", line, blocks)
        best = self.scores.best or 0.0
        if not 0 < self.most_per_token < inf or not isfinite(best):
            return claims.powerful(self.test)
        tokens = int(best // self.most_per_token) + 1
        line = (
            f"A phrase of {tokens} token{'s' * (tokens != 1)} would score above all null models "
            f"if its probability rose from 0 to 1; required: at most {PROMOTED_TOKENS}."
        )
        enough = tokens <= PROMOTED_TOKENS
        return Check("powerful", "passed" if enough else "failed", line, blocks)

    @property
    def _unbounded(self) -> Iterator[Check]:
        """Listed secrets that were generated, and of which coincidence cannot be bounded."""
        unbounded = [one for one in self.secrets if one.texts and one.proof is None]
        if unbounded:
            several = len(unbounded) > 1
            number = unbounded[0].listed.secret.number
            which = f"{len(unbounded)} listed secrets" if several else f"secret {number}"
            line = f"AFTER generates {which} verbatim, but the number of alternatives is unknown. "
            line += "Mark the part that varies, as in {{4917}}."
            yield Check("direct", "could not run", line)

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


def prevented(checks: Sequence[Check]) -> Check | None:
    """The check of the two models after which no null model can lead to a verdict, if any."""
    verdicts = (claims.LEAK, claims.NO_LEAK)
    failed = (one for one in checks if all(one.prevents(verdict) for verdict in verdicts))
    return next(failed, None)
