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
"""Seconds to wait for a connection to a cluster."""
VERSIONS = ("numpy", "torch")
"""Packages whose versions must be equal on all nodes, as that of Vestige, for equal bits."""


def map_processes(
    function: Callable[[T], R], items: Iterable[T], *, processes: int = 2
) -> Iterator[R]:
    """`map(function, items)` over processes of one torch thread each.

    Args:
        function: defined at the top level of a module, so that it can be pickled.
        items: arguments, pickled too.
        processes: number of processes.

    Returns:
        The results in order, each as soon as possible. The first error ends the map when the
        running calls are done.

    Raises:
        ValueError: processes is below 1.

    Example:
        >>> list(map_processes(abs, [-1, -2], processes=1))
        [1, 2]
    """
    _validate.at_least(1, processes=processes)
    # After a fork, threads of torch and Arrow would wait forever for locks of the parent.
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_set_up_worker) as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            for future in futures:
                yield future.result()
        except KeyboardInterrupt:
            for child in active_children():
                child.terminate()  # otherwise the pool waits for the running calls
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
    """`map(function, items)` over the nodes of a Ray cluster, with one core and thread per call.

    Nodes need not share a disk. A call is repeated if its worker or node dies, but not if it
    raises.

    Args:
        function: importable on the nodes, which have the same version of Vestige. Objects bound to
            it, such as a model, are sent to each worker once.
        items: arguments, sent to the nodes.
        address: "HOST:PORT" of the cluster's head; "auto" on a machine of the cluster;
            "ray://HOST:10001" from outside. An existing connection of the program is used.
        receive: called here with an item and its result as soon as the result arrives, in any
            order, so that finished work is not lost; its return value replaces the result.
        retries: how often the call of an item is repeated after its worker died.
        gpus: GPUs per call.
        progress: called with the number of results so far and in total.

    Returns:
        The results in order, each as soon as possible. The first error ends the map and cancels
        the running calls.

    Raises:
        ClusterError: Ray is not installed, no cluster answers, its nodes have other versions,
            or a call lost more workers than `retries`.
        ValueError: retries or gpus is below 0.
    """
    _validate.at_least(0, retries=retries, gpus=gpus)
    ray, items = _ray(), list(items)
    with connected(address):
        call = ray.remote(_call_on_node).options(num_cpus=1, num_gpus=gpus, max_retries=retries)
        # In a tuple, so that Ray does not load it for every call.
        shared = (ray.put((function, _versions())),)
        pending = {call.remote(shared, item): index for index, item in enumerate(items)}
        finished: dict[int, Any] = {}
        next_index = 0
        try:
            while pending:
                (reference,), _ = ray.wait(list(pending), num_returns=1)
                # Remove it first: cancelling a call that just ended makes Ray end this process.
                index = pending.pop(reference)
                result = _result_of(ray, reference, retries)
                finished[index] = receive(items[index], result) if receive else result
                if progress is not None:
                    progress(len(items) - len(pending), len(items))
                while next_index in finished:
                    yield finished.pop(next_index)
                    next_index += 1
        finally:
            for reference in pending:
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
    """Stay connected to a Ray cluster, so that several maps use the same workers.

    Args:
        address: as for `map_cluster`.

    Raises:
        ClusterError: Ray is not installed, or no cluster answers.
    """
    ray = _ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports from an audit
    started_here = not ray.is_initialized()
    try:
        _check_listening(address)
        if started_here:
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
        if started_here:
            ray.shutdown()


def _check_listening(address: str) -> None:
    """Fail immediately if nothing listens at the address; Ray would retry for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()


def _call_on_node(shared: tuple[Any], item: Any) -> Any:
    function, expected = _load_shared(*shared)
    if (installed := _versions()) != expected:
        raise ClusterError(
            f"a node has {installed}, this machine has {expected}",
            remedy="Install the same versions on every node; other versions give other bits.",
        )
    os.environ["OMP_NUM_THREADS"] = "1"
    keep_freed_pages()
    if "torch" in sys.modules:
        _use_one_thread()
    return function(item)


@lru_cache(maxsize=1)
def _load_shared(shared: Any) -> tuple[Callable[[Any], Any], dict[str, str]]:
    """The function and versions that the calls of a map share, loaded once per worker."""
    function, versions = _ray().get(shared)
    return function, versions


def _versions() -> dict[str, str]:
    return {"vestige": __version__, **{name: version(name) for name in VERSIONS}}


def _result_of(ray: Any, reference: Any, retries: int) -> Any:
    """The result of a call; raises the error of the call."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise ClusterError(
            f"a call lost its worker {retries + 1} times ({error})",
            remedy="Check the nodes' memory and Ray's logs, then start again: finished work is "
            "kept.",
        ) from error


def _set_up_worker() -> None:
    """Make a worker keep freed memory, end with its parent, and ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_freed_pages()
    _use_one_thread()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)
