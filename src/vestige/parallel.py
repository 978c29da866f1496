"""Parallel maps over processes or over a Ray cluster (Moritz et al., 2018, arXiv:1712.05889)."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from multiprocessing import active_children, get_context, parent_process
from typing import Any, TypeVar

from vestige import __version__, _validate
from vestige.errors import ClusterError
from vestige.memory import keep_freed_pages

T = TypeVar("T")
R = TypeVar("R")

PATIENCE = 10.0
"""Seconds that a cluster may take to answer."""
VERSIONS = ("numpy", "torch")
"""What a node must have at the driver's version, besides Vestige, for the driver's bits."""


def map_processes(
    function: Callable[[T], R], items: Iterable[T], *, processes: int = 2
) -> Iterator[R]:
    """`map(function, items)` over processes of one torch thread each.

    Args:
        function: defined at the top of a module, since it is sent to other processes.
        items: sent there too.
        processes: how many at a time.

    Returns:
        the results in order, each as soon as possible. The first error ends the map, once the calls
        under way are done.

    Raises:
        ValueError: processes is below 1.

    Example:
        >>> list(map_processes(abs, [-1, -2], processes=1))
        [1, 2]
    """
    _validate.at_least(1, processes=processes)
    # Forked threads of torch and Arrow would wait forever for locks of the parent.
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_own_process) as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            for future in futures:
                yield future.result()
        except KeyboardInterrupt:
            for child in active_children():
                child.terminate()  # else the pool waits until their calls have ended
            raise
        finally:
            for future in futures:
                future.cancel()


def map_cluster(
    function: Callable[[T], R],
    items: Iterable[T],
    *,
    address: str,
    receive: Callable[[T, R], Any] | None = None,
    retries: int = 3,
    gpus: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Any]:
    """`map(function, items)` over the nodes of a Ray cluster, a core and a thread for each call.

    Nodes need not share a disk. A call whose worker or node dies is repeated elsewhere; one that
    raises is not.

    Args:
        function: one that the nodes can import, from the same version of Vestige; what is bound to
            it, such as a model, goes to each worker once.
        items: sent to the nodes.
        address: "HOST:PORT" of the cluster's head, "auto" for the one that this machine is part
            of, "ray://HOST:10001" from outside; a program that is connected already stays so.
        receive: called here with an item and its result as soon as that arrives, in any order, so
            that finished work is not lost; what it returns takes the result's place.
        retries: how often a call whose worker died is repeated, for each item.
        gpus: of each call alone.
        progress: called with the number of results so far and of all.

    Returns:
        the results in order, each as soon as possible. The first error ends the map and the calls
        under way.

    Raises:
        ClusterError: Ray is not installed, no cluster answers, its nodes have other versions,
            or a call lost more workers than it had retries.
        ValueError: retries or gpus is below 0.
    """
    _validate.at_least(0, retries=retries, gpus=gpus)
    ray, items = _ray(), list(items)
    with connected(address):
        call = ray.remote(_on_a_node).options(num_cpus=1, num_gpus=gpus, max_retries=retries)
        shared = (ray.put((function, _versions())),)  # in a tuple: Ray would unpack it every time
        places = {call.remote(shared, item): place for place, item in enumerate(items)}
        arrived: dict[int, Any] = {}
        given = 0
        try:
            while places:
                (reference,), _ = ray.wait(list(places), num_returns=1)
                # Ray ends this process if a call is cancelled that ends at that moment.
                place = places.pop(reference)
                result = _fetched(ray, reference, retries)
                arrived[place] = receive(items[place], result) if receive else result
                if progress is not None:
                    progress(len(items) - len(places), len(items))
                while given in arrived:
                    yield arrived.pop(given)
                    given += 1
        finally:
            for reference in places:
                ray.cancel(reference, force=True)


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ClusterError(
            "a cluster needs Ray, which is not installed",
            remedy='Install it with `pip install "vestige[cluster]"`, here and on every node.',
        ) from error
    return ray


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Stay connected to a Ray cluster, so that the workers of one map serve the next.

    Args:
        address: as for `map_cluster`.

    Raises:
        ClusterError: Ray is not installed, or no cluster answers.
    """
    ray = _ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports nothing about an audit
    ours = not ray.is_initialized()
    try:
        _knock(address)
        if ours:
            ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError, OSError, ray.exceptions.RayError) as error:
        raise ClusterError(
            f"no Ray cluster answers at {address!r} ({error})",
            remedy="Start one (`ray start --head` here, `ray start --address HOST:PORT` on every "
            "other machine) and give its address.",
        ) from error
    try:
        yield
    finally:
        if ours:
            ray.shutdown()


def _knock(address: str) -> None:
    """Fail at once where nothing listens; Ray would retry for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()


def _on_a_node(shared: tuple[Any], item: Any) -> Any:
    function, wanted = _unpacked(*shared)
    if (here := _versions()) != wanted:
        raise ClusterError(
            f"a node has {here}, this machine has {wanted}",
            remedy="Install the same versions on every node: others end in other bits.",
        )
    os.environ["OMP_NUM_THREADS"] = "1"
    keep_freed_pages()
    if "torch" in sys.modules:
        _one_thread()
    return function(item)


@lru_cache(maxsize=1)
def _unpacked(shared: Any) -> tuple[Callable[[Any], Any], dict[str, str]]:
    """What the calls of a map share, unpacked once in each worker."""
    function, versions = _ray().get(shared)
    return function, versions


def _versions() -> dict[str, str]:
    return {"vestige": __version__, **{name: version(name) for name in VERSIONS}}


def _fetched(ray: Any, reference: Any, retries: int) -> Any:
    """Result of a call, or the error that it raised."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise ClusterError(
            f"a call was lost with its worker, {retries + 1} times ({error})",
            remedy="Look at the nodes' memory and at Ray's logs, then start again: what is "
            "finished is kept.",
        ) from error


def _own_process() -> None:
    """Set up a worker: it keeps freed memory, ends with its parent, and ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_freed_pages()
    _one_thread()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
