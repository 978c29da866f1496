"""Token statistics of lists of texts under several models."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from vestige.errors import DataError
from vestige.models.token_statistics import TokenStatistics, first_tokens

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Readings:
    """What models output for lists of texts.

    Attributes:
        statistics: by list, then by model; the model in question is the first.
        read: tokens of the first list that were scored, and all that it has.
        known: by list, (t,) tokens that `statistics` has; None: all.
        shown: most probable tokens that the first model shows; None: it shows everything.
    """

    statistics: Mapping[str, Mapping[str, TokenStatistics]]
    read: tuple[int, int]
    known: Mapping[str, Mask] | None = None
    shown: int | None = None

    def by_model(self, *lists: str) -> dict[str, list[TokenStatistics]]:
        """By model, the statistics of some lists, or of all."""
        chosen = [self.statistics[name] for name in lists or self.statistics]
        return {model: [own[model] for own in chosen] for model in chosen[0]}


def known_by_all(statistics: Mapping[str, TokenStatistics]) -> Mask:
    """(t,) tokens whose log-probability every model shows."""
    known: Mask = np.all([np.isfinite(one.log_probs) for one in statistics.values()], axis=0)
    return known


def only(statistics: TokenStatistics, known: Mask) -> TokenStatistics:
    """Statistics of some tokens; one that is not among the k most probable has rank k."""
    ranks = np.where(statistics.ranks < 0, statistics.likeliest.shape[1], statistics.ranks)
    own = {one.name: getattr(statistics, one.name) for one in fields(statistics)} | {"ranks": ranks}
    offsets = np.concatenate([[0], np.cumsum(known)])[own.pop("offsets")].astype(np.int64)
    return replace(statistics, offsets=offsets, **{name: one[known] for name, one in own.items()})


def by_list(
    counts: Mapping[str, int], statistics: Mapping[str, TokenStatistics]
) -> dict[str, dict[str, TokenStatistics]]:
    """Statistics by list, then by model.

    Args:
        counts: texts of each list, in the order of `statistics`.
        statistics: of all texts, by model.
    """
    found, first = {}, 0
    for name, count in counts.items():
        places = np.arange(first, first + count)
        found[name] = {model: first_tokens(one, places) for model, one in statistics.items()}
        first += count
    return found


def require_shown(name: str, statistics: TokenStatistics) -> None:
    """Refuse a list with a text of which no token is shown.

    Raises:
        DataError: there is one.
    """
    numbers: list[int] = np.flatnonzero(np.diff(statistics.offsets) == 0).tolist()
    if numbers:
        raise DataError(
            f"the server shows no log-probability of any token of {len(numbers):,} texts of "
            f"`{name}`, such as text {numbers[0] + 1}",
            remedy="Remove such texts from every list, or pass longer ones.",
        )
