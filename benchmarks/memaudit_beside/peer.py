"""The installation of memaudit that is measured, which is no dependency of Vestige."""

import contextlib
import io
import logging
import sys
from collections.abc import Iterator
from importlib.util import find_spec

VERSION = "0.2.0"
MISSING = (
    "memaudit is not installed, which these comparisons are made with. "
    f"Install it with `pip install --no-deps memaudit=={VERSION}`: what it needs, Vestige has."
)


def require_memaudit() -> None:
    """Say what to install, and exit with 2, where memaudit cannot be imported."""
    if find_spec("memaudit") is None:
        print(MISSING, file=sys.stderr)
        raise SystemExit(2)
    logging.getLogger("memaudit").setLevel(logging.ERROR)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what is printed meanwhile from the table."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
