"""Exposure of secrets that were never planted, as found and as told."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from vestige.metrics.holm import holm
from vestige.result import Result

Verdict = Literal["found", "none found", "not decided"]


@dataclass(frozen=True, kw_only=True)
class ExposedSecret:
    """Exposure of one secret, in bits.

    Attributes:
        text: the secret.
        kind: of what varies in it.
        log_perplexity: -log2 of the probability of what varies and follows.
        space_bits: log2 of the texts that could have stood in its place.
        references: of them that it was compared with.
        whole: whether these are all of them.
        rank: 1 + those that are at least as likely.
        exposure: log2 of references over rank.
        low: the true exposure is no less, with 97.5 % confidence; of a whole space, the same.
        high: it is no more; at the ceiling, the bits of the space.
        at_ceiling: no reference is as likely: all that is known is `low`, a bound.
        p: chance of this for a secret whose pieces the model has never read together.
        least_p: the least that this could have been.
        joint_p: chance of such a rank for a secret of which the model has read no piece; None in
            runs of older versions, where p was this.
    """

    text: str
    kind: str
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
    joint_p: float | None = None


@dataclass(frozen=True, kw_only=True)
class SecretExposure(Result):
    """Exposure of secrets among texts of the same shape.

    Attributes:
        secrets: in the order given.
        adjusted: their p-values for all of them together (Holm).
        level: at which they are found.
        seed: of the alternatives.
    """

    secrets: tuple[ExposedSecret, ...]
    adjusted: tuple[float, ...]
    level: float
    seed: int

    @property
    def found(self) -> int:
        """How many secrets the model knows, with an error of `level` in all."""
        return sum(p <= self.level for p in self.adjusted)

    @property
    def in_part(self) -> tuple[bool, ...]:
        """Of each secret, whether only a piece of it is known, with an error of `level` in all."""
        joint = holm([one.p if one.joint_p is None else one.joint_p for one in self.secrets])
        pairs = zip(joint, self.adjusted, strict=True)
        return tuple(bool(of_pieces <= self.level < p) for of_pieces, p in pairs)

    @property
    def possible(self) -> bool:
        """Whether every secret could have been found by itself."""
        return max(one.least_p for one in self.secrets) * len(self.secrets) <= self.level

    @property
    def verdict(self) -> Verdict:
        """Whether the model knows a secret."""
        if self.found:
            return "found"
        return "none found" if self.possible else "not decided"

    @property
    def sentence(self) -> str:
        """The number, what it means, and what it does not mean."""
        number = len(self.secrets)
        every = "the secret" if number == 1 else f"{number} secrets"
        if self.found:
            return (
                f"{self.found} of {every} found: likelier than texts of the same shape, but for a "
                f"chance of {self.level:g} that any of this is one.{self.of_pieces} It does not "
                "follow that the model says them: `vestige complete` and `vestige diff --secrets` "
                "try that."
            )
        if not self.possible:
            need = int(number / self.level)
            return (
                f"None of {every} found, and not all could have been: it takes {need:,} "
                "alternatives of each. Give more `references`, or fewer secrets."
            )
        return (
            f"None of {every} found.{self.of_pieces} It does not follow that the model has never "
            "read them: what was said once or twice is seldom told from what was not."
        )

    @property
    def of_pieces(self) -> str:
        """How many are known in part; empty where none is."""
        some = sum(self.in_part)
        return f" Of {some} more it knows a piece, as a name that stands elsewhere." if some else ""

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "secrets": len(self.secrets),
            "found": self.found,
            "in_part": sum(self.in_part),
            "possible": self.possible,
            "level": self.level,
            "least_probability": min(self.adjusted),
            "most_exposed": max(one.exposure for one in self.secrets),
            "whole_spaces": sum(one.whole for one in self.secrets),
            "seed": self.seed,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a secret."""
        every = zip(self.secrets, self.adjusted, self.in_part, strict=True)
        for number, (one, p, in_part) in enumerate(every, 1):
            own = asdict(one)
            phrase = own.pop("text")
            yield {
                "secret_number": number,
                "phrase": phrase,
                **own,
                "adjusted_p": p,
                "found": p <= self.level,
                "in_part": in_part,
            }
