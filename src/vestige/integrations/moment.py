"""What is measured at one moment of a training, and the limits that can be set on it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige import claims
from vestige.claims import Check, Claim
from vestige.reports.quantities import QUANTITIES, Measured

if TYPE_CHECKING:
    from vestige.audits.exposure.canary_result import CanaryExposure
    from vestige.audits.exposure.epsilon import CanaryAudit
    from vestige.audits.extraction.canaries import Completion
    from vestige.integrations.training_texts import TextGap


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What was measured at a step.

    Attributes:
        step: of the optimizer.
        found: as `vestige exposure` finds it.
        completion: as `vestige extract` finds it.
        audit: lower bounds of epsilon; None where no coins were flipped.
        texts: what is known of the training's texts; None where nobody asked.
        unchanged: whether steps were taken, and the model answers as before the first one.
        seconds: that it took.
        whole: whether canaries were compared with other orders of their words, and the models
            and arguments recorded, as the verbs do.
    """

    step: int
    found: "CanaryExposure"
    completion: "Completion"
    audit: "CanaryAudit | None" = None
    texts: "TextGap | None" = None
    unchanged: bool = False
    seconds: float = 0.0
    whole: bool = True
    _summaries: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def logs(self) -> dict[str, float]:
        """Numbers for a tracker; what was not measured is left out."""
        exposure = self._summary("found")
        named = {
            "exposure": exposure["exposure_planted"],
            "exposure_controls": exposure["exposure_controls"],
            **{name: self.measured(name).value for name in LIMITS if name != "exposure"},
            "seconds": self.seconds,
        }
        return {f"vestige/{name}": value for name, value in named.items() if value is not None}

    def measured(self, name: str) -> Measured:
        """A number on which a limit can be set."""
        return LIMITS[name].of(self)

    def above(self, limits: Mapping[str, float]) -> str:
        """What is above a limit, in words; "" where nothing is."""
        for name, limit in limits.items():
            found = self.measured(name)
            if found.value is not None and found.value > limit:
                return f"{name} {found.amount(LIMITS[name].unit)}: more than {limit:g}"
        return ""

    @property
    def claim(self) -> Claim:
        """The verdict: that of exposure, of a model that the training has changed.

        "No leak shown" takes that nothing else that was measured shows one.

        Raises:
            ValueError: the moment is not `whole`, so that no verb has made its checks.
        """
        own = self.found.claim
        return Claim("callback", own.test, (*own.checks, *self._beside()), own.estimate)

    def _beside(self) -> Iterator[Check]:
        """Failed checks that stand against "no leak shown"."""
        if self.completion.verdict == claims.LEAK:
            done = self.measured("completed").value
            yield _against(f"{done:,} planted canaries are completed verbatim.")
        epsilon = self.measured("epsilon")
        if epsilon.value:
            yield _against(f"Measured ε is at least {epsilon.value:.2g}.")
        auc = self.measured("auc")
        if auc.low is not None and auc.low > 0.5:
            yield _against(
                "Losses of the training texts fell more than those of the evaluation texts (AUC "
                f"{auc.value:.2f}, {auc.low:.2f} to {auc.high:.2f})."
            )

    def save(self, out: Path) -> None:
        """Write run folders, `exposure` and `completion`, for a report and a gate."""
        self.found.save(out / "exposure")
        self.completion.save(out / "completion")

    def _summary(self, part: str) -> Any:
        """A part's summary, which takes statistics, once."""
        if part not in self._summaries:
            own = getattr(self, part)
            told = getattr(own, "figures", None) or getattr(own, "summary", None)
            self._summaries[part] = told and told()
        return self._summaries[part]


def _against(sentence: str) -> Check:
    return Check("other evidence", "failed", sentence, (claims.NO_LEAK,))


@dataclass(frozen=True)
class Limit:
    """A number of a moment.

    Attributes:
        unit: of it, for a reader.
        of: how it is read.
    """

    unit: str
    of: Callable[[Moment], Measured]


def _quantity(name: str, kind: str, part: str) -> Limit:
    """A quantity that `vestige report` can limit, too."""
    quantity = QUANTITIES[name]
    return Limit(quantity.unit, lambda moment: quantity.of[kind](moment._summary(part)))


def _of_texts(name: str, unit: str) -> Limit:
    def read(moment: Moment) -> Measured:
        found = moment._summary("texts") or {}
        return Measured(found.get(name), found.get(f"{name}_low"), found.get(f"{name}_high"))

    return Limit(unit, read)


def _epsilon(moment: Moment) -> Measured:
    found = moment._summary("audit")
    least = None if found is None else found["empirical_epsilon"]
    return Measured(least, least, None)


LIMITS: Mapping[str, Limit] = {
    "exposure": _quantity("exposure", "CanaryExposure", "found"),
    "completed": _quantity("completed", "Completion", "completion"),
    "epsilon": Limit("", _epsilon),
    "loss_gap": _of_texts("loss_gap", "nats a token"),
    "auc": _of_texts("auc", ""),
}
"""By name, as `fail_above` and `stop_above` have it."""
