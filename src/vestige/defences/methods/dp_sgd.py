"""DP-SGD as a defence: see `vestige.defences.dp_sgd` for the step and its paper."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt

from vestige.defences.private import PrivateDefence
from vestige.defences.registry import Given, register, with_batches

if TYPE_CHECKING:
    from vestige.data.encoded import EncodedCorpus
    from vestige.defences.accounting import Unit
    from vestige.defences.noise_schedule import Noise
    from vestige.models.protocols import LanguageModel
    from vestige.training.config import Batching, TrainingConfig
    from vestige.training.steps import StepFn

ADAM_RATE = 1e-3


@register
@dataclass(frozen=True, kw_only=True)
class DPSGD(PrivateDefence):
    """Clipped, noised gradients, with a guarantee of differential privacy.

    Attributes:
        unit: Protected unit: a sequence (a document, or each piece of a document that is longer
            than --sequence-length), or a user with all their documents. Default: sequence.
        physical_batch_size: Sequences computed at once, if a batch does not fit in memory.
        bands: Correlate the noise of this many steps, so that later noise cancels some of the
            earlier (DP-FTRL with a banded matrix). Needs --bands times --batch-size units. It helps
            with a large --epsilon or few epochs, and --optimizer sgd. 1 turns it off.
        clip_quantile: Adapt the clipping norm to this quantile of the norms, with a noisy count;
            --clip is then the first norm. 0.5 is usual. Default: a constant norm.
        noise_decay: Lower the noise in eight stages, to this share of the first stage's, at the
            same --epsilon. --noise-multiplier is that of the first stage. Not with --bands. 1 keeps
            it constant.

    Example:
        >>> DPSGD(epsilon=8, max_grad_norm=0.5).unit is None
        True
    """

    name: ClassVar[str] = "dp-sgd"

    unit: Literal["sequence", "user"] | None = None
    physical_batch_size: Annotated[int | None, Ge(1)] = None
    bands: Annotated[int, Ge(1)] = 1
    clip_quantile: Annotated[float | None, Gt(0), Lt(1)] = None
    noise_decay: Annotated[float, Gt(0), Le(1)] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bands < 1:
            raise ValueError(f"`bands` must be at least 1, got {self.bands}")
        if self.clip_quantile is not None and not 0 < self.clip_quantile < 1:
            raise ValueError(f"`clip_quantile` must lie in (0, 1), got {self.clip_quantile}")
        if not 0 < self.noise_decay <= 1:
            raise ValueError(f"`noise_decay` must lie in (0, 1], got {self.noise_decay}")
        if self.noise_decay < 1 and self.bands > 1:
            raise ValueError(
                f"`noise_decay` must be 1 with `bands` {self.bands}, got {self.noise_decay}: noise "
                "that is correlated over steps has one multiplier; leave out one of the two"
            )

    def turns(self, sample_rate: float, steps: int) -> tuple[float, int]:
        """See `PrivateDefence.turns`: one step in `bands` is a unit's turn."""
        return min(1.0, self.bands * sample_rate), -(-steps // self.bands)

    def noise_from(self, first: float, steps: int) -> "Noise":
        """See `PrivateDefence.noise_from`."""
        from vestige.defences.noise_schedule import falling

        return falling(first, self.noise_decay, steps)

    @property
    def protected(self) -> "Unit":
        """A sequence by default, or a user."""
        return self.unit or "sequence"

    def suited(self, config: "TrainingConfig", given: Given | None = None) -> "TrainingConfig":
        """See `Defence`: Adam in place of sgd, whose long steps carry more noise than text."""
        usual: Batching = "poisson-users" if self.unit == "user" else "poisson"
        chosen = given is not None and given.get("batching") is not None
        if self.unit == "user" and given is not None and not chosen:
            config = replace(config, batching=usual)
        config = with_batches(self, config, given, usual)
        self._check(config)
        if given is None:
            return config
        drawn = "user" if config.batching == "poisson-users" else "sequence"
        if drawn != self.protected:
            raise ValueError(
                f"`unit` {self.protected} must not come with `batching` "
                f"{config.batching}, whose lots are drawn for a {drawn}"
            )
        if config.optimizer == "adam" or given.get("optimizer") is not None:
            return config
        rate = given.get("learning_rate") or ADAM_RATE
        return replace(config, optimizer="adam", learning_rate=rate)  # type: ignore[arg-type]

    def step(
        self, model: "LanguageModel", data: "EncodedCorpus", config: "TrainingConfig"
    ) -> "StepFn":
        """The step; its unit is that of the Poisson sampling."""
        from vestige.defences.dp_sgd import DPSGDStep

        self._check(config)
        steps = 0 if self.noise_decay == 1 else config.epochs * len(self.batches(data, config))
        return DPSGDStep(
            noise_multiplier=self.noise_from(self.noise, steps),
            max_grad_norm=self.max_grad_norm,
            expected_units=config.batch_size,
            sequence_length=config.sequence_length,
            unit="user" if config.batching == "poisson-users" else "sequence",
            physical_batch_size=self.physical_batch_size,
            bands=self.bands,
            clip_quantile=self.clip_quantile,
        )

    def _check(self, config: "TrainingConfig") -> None:
        if "poisson" not in config.batching:
            raise ValueError(
                "batching must be poisson or poisson-users with dp-sgd, whose guarantee counts on "
                f"lots, got {config.batching!r}"
            )
