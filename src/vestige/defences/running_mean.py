"""Running means of a step's measurements between two lines of the log."""

from torch import Tensor


class RunningMeans:
    """Sums on the device, read only when a line of the log is due."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, **values: Tensor) -> None:
        """Count scalars in."""
        for name, value in values.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """The means since last asked."""
        means = {name: total.item() / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means
