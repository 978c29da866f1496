"""The tokens of texts of which a server, and its base, tell something."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from vestige.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vestige.attacks.texts.token_statistics import TokenStatistics


def told_by_all(said: "Mapping[str, TokenStatistics]") -> "NDArray[np.bool_]":
    """(t,) of which tokens every side tells a log-probability."""
    import numpy as np

    known: NDArray[np.bool_] = np.all([np.isfinite(one.log_probs) for one in said.values()], axis=0)
    return known


def only(said: "TokenStatistics", told: "NDArray[np.bool_]") -> "TokenStatistics":
    """What is said of some tokens; one that is not among the likeliest has the rank behind them."""
    import numpy as np

    ranks = np.where(said.ranks < 0, said.likeliest.shape[1], said.ranks)
    own = {each.name: getattr(said, each.name) for each in fields(said)} | {"ranks": ranks}
    offsets = np.concatenate([[0], np.cumsum(told)])[own.pop("offsets")].astype(np.int64)
    return replace(said, offsets=offsets, **{name: one[told] for name, one in own.items()})


def by_role(
    counts: Mapping[str, int], said: "Mapping[str, TokenStatistics]"
) -> "dict[str, dict[str, TokenStatistics]]":
    """What each side says of the texts of each list.

    Args:
        counts: of the texts of a list, in the order of `said`.
        said: of all texts, by side.
    """
    import numpy as np

    from vestige.attacks.texts.statistics_of_parts import first_tokens

    found, first = {}, 0
    for role, count in counts.items():
        places = np.arange(first, first + count)
        found[role] = {name: first_tokens(one, places) for name, one in said.items()}
        first += count
    return found


def require_told(role: str, said: "TokenStatistics") -> None:
    """Refuse a list with a text of which no token is told.

    Raises:
        DataError: there is one.
    """
    import numpy as np

    nothing: Iterable[int] = np.flatnonzero(np.diff(said.offsets) == 0).tolist()
    if numbers := list(nothing):
        raise DataError(
            f"the server shows no log-probability of any token of {len(numbers)} texts of "
            f"`{role}`, such as text {numbers[0] + 1}",
            remedy="Leave such texts out of every list, or give longer ones.",
        )
