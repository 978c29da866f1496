"""What a search keeps while it runs: a directory beside its run, gone once that is whole.

OUT.partial/search.json   what decides the search
OUT.partial/units.jsonl   what each unit of work gave, a line as soon as it is done

A line begins with a checksum of the rest. A killed search goes on from the lines that are whole;
what is damaged is told of and done again.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vestige.data.atomic_write import append_line, replacing, write_text
from vestige.data.file_lock import LOCK, claimed
from vestige.data.json_file import read_object
from vestige.errors import RunError
from vestige.monitor import Monitor
from vestige.result import Result
from vestige.results import load, require_new, save, to_json

IDENTITY, UNITS = "search.json", "units.jsonl"
GO_ON = "What was done is kept: the same command goes on"
LOST = "Nothing was kept: with --out the same command would go on"


@dataclass(frozen=True)
class Kept(MutableMapping[str, Any]):
    """What units of work gave, by key; on disk where there is a file.

    Attributes:
        file: to which lines are added; None keeps them in memory alone.
        found: what was there before and what has come since.
    """

    file: Path | None = None
    found: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, file: Path, monitor: Monitor) -> "Kept":
        """The whole lines of a file; without those that are not, it is written anew."""
        lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
        read = [_read(line) for line in lines]
        whole = [entry for entry in read if entry is not None]
        if len(whole) < len(lines):
            monitor.log(
                f"{file}: {len(lines) - len(whole)} of {len(lines)} units of work are damaged or "
                "cut off; they are done again"
            )
            with replacing(file) as fresh:
                fresh.writelines(
                    line for line, entry in zip(lines, read, strict=True) if entry is not None
                )
        return cls(file, dict(whole))

    def part(self, name: str) -> "Part":
        """What belongs to one of several searches."""
        return Part(self, f"{name}/")

    def __getitem__(self, key: str) -> Any:
        return self.found[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if self.file is not None:
            append_line(self.file, _line(key, value))
        self.found[key] = value

    def __delitem__(self, key: str) -> None:
        raise TypeError("what is kept is not taken back")

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)


@dataclass(frozen=True)
class Part(MutableMapping[str, Any]):
    """The entries whose keys begin alike."""

    whole: Kept
    start: str

    def __getitem__(self, key: str) -> Any:
        return self.whole[self.start + key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.whole[self.start + key] = value

    def __delitem__(self, key: str) -> None:
        del self.whole[self.start + key]

    def __iter__(self) -> Iterator[str]:
        cut = len(self.start)
        return (key[cut:] for key in self.whole if key.startswith(self.start))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Nowhere:
    """A search of which nothing is kept on disk."""

    def opened(self, identity: Mapping[str, object], monitor: Monitor) -> Kept:
        """Memory."""
        return Kept()

    def chosen(self) -> dict[str, Any]:
        """Nothing was chosen before."""
        return {}

    def finished(self, result: Result, *, complete: bool) -> None:
        """Nothing is written."""


@dataclass(frozen=True)
class Place(Nowhere):
    """A run directory that is to be made, and the directory beside it.

    Attributes:
        out: the run directory.
    """

    out: Path

    @property
    def partial(self) -> Path:
        """Where work is kept until the run is whole."""
        return self.out.with_name(f"{self.out.name}.partial")

    def opened(self, identity: Mapping[str, object], monitor: Monitor) -> Kept:
        """What an earlier call kept of the same search.

        Args:
            identity: all that decides what a unit of work gives.

        Raises:
            RunError: it was another search.
        """
        asked = json.loads(to_json(identity))
        known = self.chosen()
        if known and known != asked:
            raise RunError(
                f"{self.partial} keeps what was done of another search: {_other(known, asked)}",
                remedy="Give the models and settings of that search to go on with it, or another "
                f"--out, or remove {self.partial}.",
            )
        write_text(self.partial / IDENTITY, to_json(identity) + "\n")
        kept = Kept.of(self.partial / UNITS, monitor)
        if len(kept):
            monitor.log(f"{len(kept):,} units of work are found again in {self.partial}")
        return kept

    def chosen(self) -> dict[str, Any]:
        """What decided the search that is kept; empty where none is."""
        file = self.partial / IDENTITY
        if not (_holds_work(self.partial) or (file.exists() and _is_partial(self.out))):
            return {}
        return read_object(file, error=RunError, remedy=f"Remove {self.partial}.")

    def finished(self, result: Result, *, complete: bool) -> None:
        """Write the run; what is kept goes once it is whole.

        Raises:
            RunError: it cannot be written.
        """
        if self.out.exists():
            shutil.rmtree(self.out)  # a partial run of the same search
        save(result, self.out, run=result.record)
        if complete:
            for entry in self.partial.iterdir():
                if entry.name != LOCK:
                    entry.unlink()


@contextmanager
def beside(out: Path | None) -> Iterator[Nowhere]:
    """Where a search keeps what it does, for one process alone.

    Args:
        out: the run directory to make; with none nothing is kept.

    Raises:
        RunError: the run is there already and whole, or another process works at it.
    """
    if out is None:
        try:
            yield Nowhere()
        except KeyboardInterrupt as error:
            error.add_note(LOST)
            raise
        return
    place = Place(Path(out))
    with claimed(place.partial, worth=_holds_work):
        if not ((place.partial / IDENTITY).exists() and _is_partial(place.out)):
            require_new(place.out)
        try:
            yield place
        except (OSError, KeyboardInterrupt) as error:
            if _holds_work(place.partial):
                error.add_note(GO_ON)
            raise
    with suppress(OSError):  # what is not empty stays
        place.partial.rmdir()


def _holds_work(partial: Path) -> bool:
    return (partial / UNITS).exists()


def _is_partial(out: Path) -> bool:
    """Whether a run directory says of itself that its search is to go on."""
    return out.is_dir() and load(out).summary.get("complete") is False


def _line(key: str, value: Any) -> str:
    body = json.dumps([key, value], separators=(",", ":"))
    return f"{_digest(body)} {body}"


def _read(line: bytes) -> tuple[str, Any] | None:
    """(key, value) of a line; None where it is damaged or cut off."""
    try:
        digest, _, body = line.decode("utf-8").rstrip("\n").partition(" ")
        if digest != _digest(body) or not line.endswith(b"\n"):
            return None
        key, value = json.loads(body)
    except ValueError:
        return None
    return key, value


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:32]


def _other(known: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """The settings that differ, by name; values only where they are numbers."""
    parts = []
    for name in {**known, **asked}:
        one, other = known.get(name), asked.get(name)
        if one == other:
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            parts.append(f"{name}: {_other(one, other)}")
        elif all(isinstance(each, bool | int | float | None) for each in (one, other)):
            parts.append(f"{name} {one} and not {other}")
        else:
            parts.append(name)
    return ", ".join(parts)
