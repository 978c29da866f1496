"""How much memory is available, and what the allocator keeps of freed memory."""

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

# from glibc's malloc.h
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEPT = 1 << 30  # mallopt takes a C int; no tensor of a slice is larger


def keep_freed_pages() -> bool:
    """Ask glibc to keep freed blocks; True where it could be asked, False elsewhere.

    glibc returns every large block to the kernel and faults its pages in again for the next tensor:
    up to half the time of a search or a training on a CPU. Only programs that own their process
    call this, never the library.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_M_MMAP_THRESHOLD, _KEPT), (_M_TRIM_THRESHOLD, _KEPT), (_M_TOP_PAD, 1 << 26))
    return all(mallopt(name, value) == 1 for name, value in settings)


def free_memory() -> int:
    """Bytes that a program can still take: of the machine, or of its control group."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        available = Path("/proc/meminfo").read_text("ascii").partition("MemAvailable:")[2]
        found.append(int(available.split()[0]) << 10)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        found.append(max(0, limit - used))
    if not found:
        with suppress(OSError, ValueError, AttributeError):
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=2**62)


def require_room(size: int, what: str, *, free: int | None = None) -> None:
    """Raise ValueError unless so many bytes are free; call it before anything of a given size.

    Args:
        size: bytes.
        what: needs them, for the message.
        free: bytes that are available; None: `free_memory()`.
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
    """Whether an error of Python, NumPy, Arrow or torch says that there was no memory."""
    if isinstance(error, RuntimeError):  # torch's, by its name on a GPU, by its words on a CPU
        of_gpu = type(error).__name__ == "OutOfMemoryError"
        return of_gpu or "can't allocate memory" in str(error)
    return isinstance(error, MemoryError)
