"""Exposure of secrets that were never planted: rows, summary and claim."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from math import log2
from typing import ClassVar

from vestige.attacks.exposure.secret_checks import list_checks, open_secrets
from vestige.claims import Check, Claim, Estimate, Test, Verdict, powerful
from vestige.metrics.tests import holm
from vestige.results import Measurement


@dataclass(frozen=True, kw_only=True)
class ExposedSecret:
    """Exposure of one secret, in bits.

    Attributes:
        text: the secret, in the form that was read.
        number: of its line or entry.
        kind: of what varies in it.
        form: "as listed", or the case or Unicode form in which the model knows its words.
        drawn: its alternatives are those of a format, not only words of a list.
        log_perplexity: -log2 of the probability of what varies and follows.
        space_bits: log2 of the texts of its format.
        references: of them that it was compared with.
        whole: whether these are all of them.
        rank: 1 + those that are at least as probable.
        exposure: log2 of references over rank.
        low: the true exposure is no less, with 97.5% confidence; of a whole space, the same.
        high: it is no more; at the ceiling, the bits of the space.
        at_ceiling: no reference is as probable, so that only `low` is known, a bound.
        p: how often this happens for a secret whose pieces the model has never read together.
        least_p: the smallest p that could have come out.
        joint_p: how often such a rank happens for a secret of which the model read no piece.
    """

    text: str
    number: int = 1
    kind: str
    form: str = "as listed"
    drawn: bool = True
    log_perplexity: float
    space_bits: float
    references: int
    whole: bool
    rank: int
    exposure: float
    low: float
    high: float
    at_ceiling: bool
    p: float
    least_p: float
    joint_p: float


@dataclass(frozen=True, kw_only=True)
class SecretExposure(Measurement):
    """Exposure of secrets among texts of their format.

    Attributes:
        secrets: those that were read, in the order listed.
        adjusted: their p-values, corrected for the number of secrets (Holm).
        level: of the test, for all secrets together.
        seed: of the alternatives.
        skipped: numbers of secrets that could not be used, with the reason.
        repeated: lines that repeat another secret.
        checks: of the models.
    """

    verb: ClassVar[str] = "exposure secrets"
    known: ClassVar[str] = "more probable than its alternatives"
    finding: ClassVar[str] = "The model knows"

    secrets: tuple[ExposedSecret, ...]
    adjusted: tuple[float, ...]
    level: float
    seed: int
    skipped: tuple[tuple[int, str], ...] = ()
    repeated: int = 0
    checks: tuple[Check, ...] = field(default=(), compare=False)

    @property
    def flagged(self) -> tuple[bool, ...]:
        """Of each secret, whether it is more probable than the texts of its format."""
        pairs = zip(self.secrets, self.adjusted, strict=True)
        return tuple(one.drawn and p <= self.level for one, p in pairs)

    @property
    def found(self) -> int:
        """How many secrets are flagged, with an error of `level` in all."""
        return sum(self.flagged)

    @property
    def in_part(self) -> tuple[bool, ...]:
        """Of each secret, whether only a piece of it is known, with an error of `level` in all."""
        pairs = zip(holm([one.joint_p for one in self.secrets]), self.adjusted, strict=True)
        return tuple(bool(joint <= self.level < p) for joint, p in pairs)

    @property
    def claim(self) -> Claim:
        """Whether the model knows a secret."""
        number = len(self.secrets)
        flagged = [p for p, known in zip(self.adjusted, self.flagged, strict=True) if known]
        words = [
            one.number
            for one, p in zip(self.secrets, self.adjusted, strict=True)
            if p <= self.level and not one.drawn
        ]
        pieces = [one.number for one, part in zip(self.secrets, self.in_part, strict=True) if part]
        others = [p for p in self.adjusted if p > self.level]
        test = Test(
            p=min(flagged or others or [1.0]),
            least=min(1.0, number * max(one.least_p for one in self.secrets)),
            alpha=self.level,
            against="texts of the same format",
        )
        most = max(self.secrets, key=lambda one: one.exposure)
        power = powerful(
            test,
            detectable=log2(number / self.level),
            wanted=-log2(max(one.least_p for one in self.secrets)),
            effect="an exposure of {} bits",
        )
        usable = number + len(self.skipped) + self.repeated
        return Claim(
            self.verb,
            test,
            (
                *self.checks,
                *list_checks(listed=usable, repeated=self.repeated, usable=number),
                *open_secrets(in_part=pieces, words=words, known=self.known),
                power,
            ),
            Estimate("highest exposure of a secret", most.exposure, most.low, most.high, "bits"),
        )  # fmt: skip

    @property
    def verdict(self) -> Verdict:
        """As the claim has it."""
        return self.claim.verdict

    @property
    def sentence(self) -> str:
        """How many secrets leak, and how many are known in part."""
        number = len(self.secrets)
        if self.found:
            finding = f"{self.finding} {self.found} of {_secrets(number)}"
        elif number == 1:
            finding = f"The secret is not {self.known}"
        else:
            finding = f"None of {_secrets(number)} is {self.known}"
        sentence = f"{finding} (FWER {self.level:.0%})."
        if some := sum(self.in_part):
            sentence += f" Known in part: {_secrets(some)}; a part can come from other texts."
        return sentence

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        return {
            **self.claim.summary(),
            "sentence": self.sentence,
            "secrets": len(self.secrets),
            "found": self.found,
            "in_part": sum(self.in_part),
            "skipped": len(self.skipped),
            "repeated": self.repeated,
            "level": self.level,
            "least_probability": min(self.adjusted),
            "most_exposed": max(one.exposure for one in self.secrets),
            "whole_spaces": sum(one.whole for one in self.secrets),
            "seed": self.seed,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a secret."""
        every = zip(self.secrets, self.adjusted, self.flagged, self.in_part, strict=True)
        for one, p, flagged, in_part in every:
            own = asdict(one)
            phrase = own.pop("text")
            yield {
                "secret_number": own.pop("number"),
                "phrase": phrase,
                **own,
                "adjusted_p": p,
                "found": flagged,
                "in_part": in_part,
            }


@dataclass(frozen=True, kw_only=True)
class SecretRank(SecretExposure):
    """Ranks of secrets by what an update changed: a log-perplexity is that after it, less before.

    What the model knew before, of areas, names or usual codes, does not count.
    """

    verb: ClassVar[str] = "exposure --before"
    known: ClassVar[str] = "promoted more than its alternatives"
    finding: ClassVar[str] = "The update reveals"

    def summary(self) -> dict[str, object]:
        """One row of a results table; `exact` ranks were counted in the whole space."""
        return {**super().summary(), "exact": sum(one.whole for one in self.secrets)}

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a secret; ranks in its whole space as log2, 0 the first."""
        for row, one in zip(super().rows(), self.secrets, strict=True):
            del row["log_perplexity"]
            row["gain"] = -one.log_perplexity
            ends = {"": one.exposure, "_low": one.high, "_high": one.low}
            for end, exposure in ends.items():
                row[f"log2_space_rank{end}"] = max(one.space_bits - exposure, 0.0)
            yield row


def _secrets(number: int) -> str:
    return "1 secret" if number == 1 else f"{number} secrets"
