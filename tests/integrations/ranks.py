"""What a launcher such as torchrun does, from a process in which everything is imported."""

import os
import socket
import traceback
from collections.abc import Callable


def in_ranks(count: int, work: Callable[[], None]) -> None:
    """Do the work in so many forks of this process, each with its rank in the environment.

    Raises:
        RuntimeError: one of them failed.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    children = [
        _forked(work, {**shared, "RANK": str(n), "LOCAL_RANK": str(n)}) for n in range(count)
    ]
    codes = [os.waitpid(child, 0)[1] for child in children]
    if any(codes):
        raise RuntimeError(f"the ranks left with {codes}")


def _forked(work: Callable[[], None], environment: dict[str, str]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        os.environ.update(environment)
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
