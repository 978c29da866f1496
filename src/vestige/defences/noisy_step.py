"""Steps whose gradient is a sum of clipped contributions and Gaussian noise over expected units."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from vestige import _validate
from vestige.defences.adaptive_clipping import AdaptiveClipping, check_quantile
from vestige.defences.banded_noise import BandedNoise
from vestige.defences.clipping import measured_norms, trainable
from vestige.defences.noise import GaussianNoise
from vestige.defences.noise_schedule import Noise, NoiseSchedule, noise_at
from vestige.defences.row_masks import StepChance
from vestige.models.protocols import LanguageModel
from vestige.training.secret import Secret


class NoisyStep:
    """What DP-SGD and DP-FedAvg share: noise from a secret, and norms for the log.

    Args:
        noise_multiplier: standard deviation of the noise over the clipping norm; 0 proves nothing.
            Where a count takes noise as well, that of both together (`adaptive_clipping`). A
            `NoiseSchedule` falls with the steps' numbers, and needs noise that is independent.
        max_grad_norm: the clipping norm, or the first one.
        expected_units: how many a batch samples on average.
        bands: steps over which the noise is correlated (`banded_noise`).
        clip_quantile: share of norms that the clipping norm is to be above; None: it is fixed.

    Attributes:
        clip: the clipping norm of the next call.

    Raises:
        ValueError: a value is out of range.
    """

    def __init__(
        self,
        noise_multiplier: Noise,
        max_grad_norm: float,
        expected_units: int,
        *,
        bands: int = 1,
        clip_quantile: float | None = None,
    ) -> None:
        if not isinstance(noise_multiplier, NoiseSchedule):
            _validate.at_least(0, noise_multiplier=noise_multiplier)
            _validate.finite(noise_multiplier=noise_multiplier)
        elif bands > 1:
            raise ValueError(f"bands must be 1 where the noise falls, got {bands}")
        _validate.positive(max_grad_norm=max_grad_norm)
        _validate.at_least(1, expected_units=expected_units, bands=bands)
        self.noise_multiplier, self.max_grad_norm = noise_multiplier, max_grad_norm
        self.expected_units, self.bands, self.clip_quantile = expected_units, bands, clip_quantile
        self.clip = max_grad_norm
        if clip_quantile is not None:
            check_quantile(clip_quantile)
        self.norms: list[Tensor] = []
        self._clipped: list[Tensor] = []
        self._secret: Secret | None = None
        self.draw_from(Secret.fresh(), 0)

    def draw_from(self, secret: Secret, step: int) -> None:
        """Take the noise of the next call, and of those after it, from a secret."""
        if secret != self._secret:
            self._secret = secret
            self._noise = BandedNoise(secret.key("noise"), self.bands)
        self._step = step

    def chance(self, device: torch.device) -> StepChance:
        """What the next call draws besides noise and lots."""
        assert self._secret is not None
        return StepChance(self._secret.key("masks", self._step), device)

    @property
    def _adaptive(self) -> AdaptiveClipping | None:
        """Of the next call, whose noise gradients and count share."""
        if self.clip_quantile is None:
            return None
        noise = noise_at(self.noise_multiplier, self._step)
        return AdaptiveClipping(self.clip_quantile, noise, self.expected_units)

    @property
    def mechanism(self) -> dict[str, object]:
        """The settings of the noise."""
        noise = self.noise_multiplier
        falls = {}
        if isinstance(noise, NoiseSchedule):
            falls = {"noise_decay": noise.decay, "noise_steps": noise.steps}
        return {
            "noise_multiplier": noise_at(noise, 0),
            "max_grad_norm": self.max_grad_norm,
            "expected_units": self.expected_units,
            **({"bands": self.bands} if self.bands > 1 else {}),
            **({} if self.clip_quantile is None else {"clip_quantile": self.clip_quantile}),
            **falls,
        }

    def measured(self) -> dict[str, float]:
        """Median norm and share of units clipped since last asked; not private, for the log."""
        norms, self.norms = self.norms, []
        clipped, self._clipped = self._clipped, []
        found = measured_norms(norms, clipped)
        return found if self.clip_quantile is None or not found else {**found, "clip": self.clip}

    def tensors(self) -> dict[str, Tensor]:
        """The clipping norm, where it learns."""
        if self.clip_quantile is None:
            return {}
        return {"clip": torch.tensor(self.clip, dtype=torch.float64)}

    def restore(self, kept: Mapping[str, Tensor]) -> None:
        """Go on with the clipping norm that `tensors` gave."""
        if self.clip_quantile is not None:
            self.clip = kept["clip"].item()

    def begin(self, model: LanguageModel, state: object, *, noised: bool = True) -> None:
        """Fill the gradients with the noise of this call.

        Args:
            model: whose gradients.
            state: None.
            noised: whether this process adds the noise: one of those that train together does.

        Raises:
            ValueError: a state is carried on, or the noise was planned for fewer steps.
        """
        if state is not None:
            raise ValueError("state must be None: state between steps is not protected")
        adaptive = self._adaptive
        multiplier = noise_at(self.noise_multiplier, self._step)
        if adaptive is not None:
            multiplier = adaptive.of_gradients
        deviation = multiplier * self.clip / self.expected_units if noised else 0.0
        begin_with_noise(model, self._noise, step=self._step, deviation=deviation)

    def end(self, norms: list[Tensor], total: Callable[[Tensor], None] | None = None) -> None:
        """Keep the norms of a call's units for the log, and adapt the clipping norm to them.

        Args:
            norms: each (units,), of this process.
            total: makes a number that of all processes, in place.
        """
        every = torch.cat(norms) if norms else torch.empty(0)
        self.norms.append(every)
        self._clipped.append(every > self.clip)
        adaptive = self._adaptive
        if adaptive is not None:
            assert self._secret is not None
            count = adaptive.count(every, self.clip)
            if total is not None:
                total(count)
            noise = GaussianNoise(self._secret.key("count"))
            self.clip = adaptive.moved(self.clip, count, noise, step=self._step)
        self._step += 1


@torch.no_grad()
def begin_with_noise(
    model: LanguageModel, noise: BandedNoise, *, step: int, deviation: float
) -> None:
    """Fill every trainable parameter's gradient with noise, to which the sum is then added.

    One pass less over memory than adding the noise at the end.
    """
    learning = trainable(model)
    for parameter in learning:
        if parameter.grad is None or not parameter.grad.is_contiguous():
            parameter.grad = torch.empty_like(parameter, memory_format=torch.contiguous_format)
    gradients = [parameter.grad for parameter in learning]
    if deviation:
        noise.fill(gradients, step=step, deviation=deviation)
    else:
        torch._foreach_zero_(gradients)
