"""Keep freed memory for the next tensor, where the C library would hand it back.

glibc returns every large block to the kernel and faults its pages in again, one by one, for
the next tensor: up to half the time of a search or a training on a CPU. Programs that own
their process (the command line, the benchmarks) turn that off; a library must not.
"""

import ctypes
import sys

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
