"""Available memory, and what the allocator keeps of freed memory.

Whoever can name a size can ask for more than a machine has: what a size comes to is compared with
what is free before anything of that size is made.

glibc returns every large block to the kernel and faults its pages in again, one by one, for
the next tensor: up to half the time of a search or a training on a CPU. Programs that own
their process (the command line, the benchmarks) turn that off; a library must not.
"""

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

# from glibc's malloc.h
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEPT = 1 << 30  # mallopt takes a C int; no tensor of a slice is larger


def keep_freed_pages() -> bool:
    """Ask glibc to keep freed blocks; True where it could be asked, False elsewhere."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_M_MMAP_THRESHOLD, _KEPT), (_M_TRIM_THRESHOLD, _KEPT), (_M_TOP_PAD, 1 << 26))
    return all(mallopt(name, value) == 1 for name, value in settings)


def free_memory() -> int:
    """Bytes that a program can still take: what the kernel says, or the limit of its group."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        told = Path("/proc/meminfo").read_text("ascii").partition("MemAvailable:")[2]
        found.append(int(told.split()[0]) << 10)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        most, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        found.append(max(0, most - used))
    if not found:
        with suppress(OSError, ValueError, AttributeError):
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=2**62)


def require_room(size: int, what: str, *, free: int | None = None) -> None:
    """Raise ValueError unless so many bytes are free.

    Args:
        size: bytes that are about to be taken.
        what: needs them, for the message.
        free: bytes that are there; None: what a program can still take here.
    """
    free = free_memory() if free is None else free
    if size > free:
        raise ValueError(
            f"{what} would take {_gibibytes(size)} of memory, and this machine has "
            f"{_gibibytes(free)} free"
        )


def _gibibytes(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size < 2**80 else "more than 2^50 GiB"


def ran_out(error: BaseException) -> bool:
    """Whether an error says that there was no memory, whoever raised it.

    Python, NumPy and Arrow raise a MemoryError; torch a RuntimeError, by its name on a GPU and by
    its words on a CPU.
    """
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and (type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error))
    )
