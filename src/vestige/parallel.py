"""Map a function over processes, where one training leaves cores idle."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

from vestige import _validate

T = TypeVar("T")
R = TypeVar("R")


def map_processes(
    function: Callable[[T], R], items: Iterable[T], *, processes: int = 2
) -> Iterator[R]:
    """`map(function, items)` over processes of one torch thread each.

    Small networks gain little from a second thread; two trainings side by side gain nearly all.

    Args:
        function: defined at the top of a module, since it is sent to other processes.
        items: sent there too.
        processes: how many at a time.

    Returns:
        the results in order, each as soon as it and those before it are there. The first error
        ends the map, once the calls under way are done.

    Raises:
        ValueError: processes is below 1.

    Example:
        >>> list(map_processes(abs, [-1, -2], processes=1))
        [1, 2]
    """
    _validate.at_least(1, processes=processes)
    # Forked threads of torch and Arrow would wait for locks that nobody holds any more.
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_one_thread) as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
