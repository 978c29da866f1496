"""A directory of several trainings that one command makes: `null`, `reproduce` and `demo`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """The directory, for one process alone; see `data.locked.claimed`.

    Raises:
        RunError: another process writes there, or it cannot be written.
    """
    from vestige.data.file_lock import claimed, vacant

    with claimed(out, worth=_worth_keeping):
        try:
            yield
        except (OSError, KeyboardInterrupt) as error:
            if not vacant(out):
                error.add_note("The same command goes on: what is finished is found again")
            raise


def _worth_keeping(out: Path) -> bool:
    return any(out.rglob("checkpoint.safetensors")) or any(out.rglob("run.json"))
