"""What a stage of the check returns, and how the error rate is divided among the stages."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

State = Literal["leak", "clear", "open", "not run"]

ALPHA = 0.05
"""Probability that any stage reports a leak where there is none."""

SHARES: Mapping[str, float] = {"secrets": 0.6, "unprompted": 0.2, "passages": 0.2}
"""Of `ALPHA`, by stage (Bonferroni with weights). Most belongs to secrets: on the development
corpora of the calibration they found most leaks, and passages none that the others had missed."""

CONTROL_LEVEL = 0.01
"""Level at which the control half of the reference must not look like a leak."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What one stage found. It is stored as JSON, so that a stopped check resumes.

    Attributes:
        name: a key of `SHARES`.
        state: a leak, none (clear), undecided (open), or not run.
        sentence: the finding; it quotes no text.
        p: p-value of the stage's own test; None where nothing could be tested.
        least: the smallest that could have come out.
        negative: the same measurement on texts that the model never saw, in one sentence.
        passed: whether it looks as it should; None where it could not run.
        direct: a sentence and the bound on coincidence of verbatim evidence; None without any.
        estimate: name, value, low, high and unit of the stage's headline.
        needs: the option that could decide an open stage; "" for none.
        rows: evidence.
        facts: further numbers by name.
    """

    name: str
    state: State
    sentence: str
    p: float | None = None
    least: float = 1.0
    negative: str = ""
    passed: bool | None = None
    direct: Sequence[Any] | None = None
    estimate: Sequence[Any] | None = None
    needs: str = ""
    rows: Sequence[Mapping[str, Any]] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def level(self) -> float:
        """At which the stage's test is significant."""
        return ALPHA * SHARES[self.name]

    def stored(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)


def clopper_pearson(found: int, of: int) -> tuple[float, float]:
    """The 95% interval of a share; (0, 1) of nothing."""
    if not of:
        return 0.0, 1.0
    from vestige.metrics import rates

    return rates.clopper_pearson(found, of)
