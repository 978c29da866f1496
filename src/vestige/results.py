"""Run directories: the one place where results touch disk.

A run directory holds `run.json` (what was asked, of what, when, by which versions),
`summary.json` (scalars: a row of a table) and `rows.parquet` (one row per phrase, canary,
position or user). Reports are built from run directories alone, never from live models.
"""

import errno
import hashlib
import json
import math
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from vestige.data import atomic_write
from vestige.data.json_file import Excerpt, Name, conform, read_object
from vestige.errors import RunError

if TYPE_CHECKING:
    import altair
    import pandas  # type: ignore[import-untyped]
    import pyarrow as pa

    from vestige.claims import Claim
    from vestige.reports.notebook import Shown
    from vestige.reports.report import Report

FORMAT = 1
_SEALED = ("summary.json", "rows.parquet")
"""Files whose SHA-256 `run.json` holds, so that a changed result is noticed."""

_FILES = ("run.json", *_SEALED)
_REPEAT = "The run directory is damaged; repeat the run."
_RECORDED = (
    *("vestige", "torch", "numpy", "scipy", "transformers", "tokenizers", "peft", "pyarrow"),
    *("opacus", "dp-accounting", "scikit-learn", "cryptography"),
)


class _Asked(Excerpt):
    """Schema of run.json; verbs add further fields."""

    result: Name
    created: str | None = None
    seed: int | None = None
    command: list[str] | None = None
    versions: dict[str, str] | None = None
    models: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    configuration: dict[str, Any] | None = None
    files: dict[str, str] | None = None


class Measured(Protocol):
    """An attack's own result: a frozen dataclass with these two views."""

    def summary(self) -> Mapping[str, object]: ...

    def rows(self) -> Iterable[Mapping[str, object]]: ...


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a verb returns: a summary, one table, and the claim.

    Attributes:
        kind: of the report, such as "CanaryExposure".
        summary: scalars by name, "verdict" and "claim" among them where there is a claim.
        rows: the table, one mapping per row.
        claim: the verdict with its test and checks; None for results without a verdict.
        record: provenance, the contents of `run.json`.
    """

    kind: str
    summary: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    claim: "Claim | None" = None
    record: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.claim is not None:
            object.__setattr__(self, "summary", {**self.summary, **self.claim.summary()})

    @classmethod
    def of(cls, measured: Any) -> "Result":
        """The result of an attack, under the name of its class."""
        return cls(
            kind=type(measured).__name__,
            summary=measured.summary(),
            rows=tuple(plain(row) for row in measured.rows()),
            claim=getattr(measured, "claim", None),
        )

    @property
    def table(self) -> "pandas.DataFrame":
        """One row per phrase, canary, text or user, unredacted."""
        import pandas

        return pandas.DataFrame.from_records([dict(row) for row in self.rows])

    @property
    def verdict(self) -> str:
        """The verdict in words; "" for results without a verdict."""
        return "" if self.claim is None else self.claim.verdict

    @property
    def exit_code(self) -> int:
        """Of the command line: 0 for no leak shown or no verdict, 1 for a leak, 3 undecided."""
        from vestige.claims import LEAK, UNDECIDED  # pulls in SciPy

        return {LEAK: 1, UNDECIDED: 3}.get(self.verdict, 0) if self.claim else 0

    def reports(self, *, show_secrets: bool) -> "Sequence[Report]":
        """What a terminal shows."""
        from vestige.reports.report import report_of

        return [report_of(run_of(self), show_secrets=show_secrets)]

    def next_step(self, out: object) -> str:
        """A line for the terminal about the run folder."""
        return f"Run folder: {out}. For a page: vestige report {out} --out page.html"

    def save(self, directory: "str | PathLike[str]") -> Path:
        """Write a run folder, which `vestige report` reads.

        Raises:
            RunError: it exists, or cannot be written.
        """
        return save(self, Path(directory), run=self.record)

    def plot(self, *, show_secrets: bool = False) -> "altair.Chart":
        """The main chart.

        Raises:
            ValueError: this kind of result has no chart.
        """
        from vestige.reports.notebook import plot

        return plot(self, show_secrets=show_secrets)

    def show(self, *, show_secrets: bool = True) -> "Shown":
        """The report for a notebook, unredacted by default."""
        from vestige.reports.notebook import Shown, html

        return Shown(html(self, show_secrets=show_secrets))

    def _repr_html_(self) -> str:
        from vestige.reports.notebook import html

        return html(self)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """The redacted text; `repr` would hold unredacted texts."""
        return {"text/plain": str(self)}

    def __str__(self) -> str:
        from vestige.reports.notebook import text

        return text(self)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run directory, read.

    Attributes:
        directory: where it lies.
        run: what was asked; always has `result`, the name of the result's class.
        summary: scalars by name.
        rows: plain dicts, in the order in which they were saved.
        folder: in which it was found, where not its own directory was given; else None.
        sealed: the checksums in `run.json` match its other files; False of a run of an older
            version, which has none.
    """

    directory: Path
    run: dict[str, Any]
    summary: dict[str, Any]
    rows: list[dict[str, Any]]
    folder: Path | None = None
    sealed: bool = True

    @property
    def name(self) -> str:
        """By which runs are told apart: of its directory, or of the folder that was given."""
        return (self.folder or self.directory).resolve().name

    @property
    def result(self) -> str:
        """The name of the result's class, such as "UpdateDiff"."""
        return str(self.run["result"])


def save(result: "Result | Measured", directory: str | Path, *, run: Mapping[str, object]) -> Path:
    """Write a run directory, whole or not at all.

    Args:
        result: of a verb, or what an attack or experiment returned.
        directory: a path that does not exist yet; its parents are made.
        run: what was asked: command, configuration, seed, models and data with hashes.

    Returns:
        The directory.

    Raises:
        RunError: the directory exists, or cannot be written.
    """
    directory = require_new(directory)
    import pyarrow.parquet as pq

    result = _viewed(result)
    asked, table = _asked(result, run), _table(result)
    with new_directory(directory) as partial:
        atomic_write.write_text(partial / "summary.json", to_json(result.summary) + "\n")
        with atomic_write.replacing(partial / "rows.parquet") as file:
            pq.write_table(table, file)
        asked["files"] = {name: _sha256(partial / name) for name in _SEALED}
        atomic_write.write_text(partial / "run.json", to_json(asked) + "\n")
    return directory


def run_of(result: Any) -> Run:
    """A result in memory as its run directory would be read, without writing it.

    Args:
        result: with `summary`, `rows` and perhaps `record`, the provenance for `run.json`.
    """
    asked = _asked(viewed := _viewed(result), getattr(result, "record", {}))
    return Run(
        directory=Path(),
        run=json.loads(to_json(asked)),
        summary=json.loads(to_json(viewed.summary)),
        rows=_table(viewed).to_pylist(),
    )


def _viewed(result: "Result | Measured") -> Result:
    return result if isinstance(result, Result) else Result.of(result)


def _asked(result: Result, run: Mapping[str, object]) -> dict[str, object]:
    return {
        "format": FORMAT,
        "result": result.kind,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        **run,
    }


def _table(result: Result) -> "pa.Table":
    import pyarrow as pa

    return pa.Table.from_pylist(_storable(plain(row) for row in result.rows))


def load(directory: str | Path) -> Run:
    """Read a run directory.

    Raises:
        RunError: it is not a run directory, a file in it is missing, changed, cut off or malformed,
            its checks forbid its verdict, or a later version of Vestige wrote it.
    """
    from vestige.data.rows_file import read_rows

    directory = Path(directory)
    missing = [name for name in _FILES if not (directory / name).is_file()]
    if missing:
        raise RunError(
            f"{directory} is not a run directory: it has no {', '.join(missing)}",
            remedy="Give the --out directory of `vestige diff`, `rank` or `reproduce`.",
        )
    file = directory / "run.json"
    run = read_object(file, error=RunError, remedy=_REPEAT)
    if run.get("format") != FORMAT or not isinstance(run.get("result"), str):
        raise RunError(
            f"{file} has format {run.get('format')!r}, this reads {FORMAT}",
            remedy="Read it with the version of Vestige that wrote it, or repeat the run.",
        )
    conform(run, _Asked, file, error=RunError, remedy=_REPEAT)
    summary = read_object(directory / "summary.json", error=RunError, remedy=_REPEAT)
    rows = read_rows(directory / "rows.parquet", error=RunError, remedy=_REPEAT)
    sealed = _is_sealed(directory, run.get("files"))
    if "claim" in summary:
        from vestige.claims import Claim  # pulls in SciPy, which other results do without

        try:
            Claim.from_summary(summary)
        except ValueError as error:
            raise RunError(
                f"the verdict in {directory / 'summary.json'} is not valid: {error}",
                remedy="It was changed or is damaged; repeat the run.",
            ) from error
    return Run(directory=directory, run=run, summary=summary, rows=rows, sealed=sealed)


def _is_sealed(directory: Path, hashes: Mapping[str, str] | None) -> bool:
    """Whether a run has checksums, which match.

    Raises:
        RunError: one does not match.
    """
    if hashes is None:
        return False
    for name in _SEALED:
        if hashes.get(name) != _sha256(directory / name):
            raise RunError(
                f"{directory / name} was changed after the run: its SHA-256 is not that in "
                "run.json",
                remedy="Repeat the run.",
            )
    return True


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find(folder: str | Path) -> Run:
    """Read a run directory, or the only one in a folder, such as that of a training or an audit.

    Raises:
        RunError: there is none, or there are several; or see `load`.
    """
    folder = Path(folder)
    if any((folder / name).exists() for name in _FILES):
        return load(folder)
    inside = inside_of(folder)
    if len(inside) == 1:
        return replace(load(inside[0]), folder=folder)
    if not inside:
        return load(folder)  # which says what is missing
    names = [str(one.relative_to(folder)) for one in inside]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    raise RunError(
        f"{folder} is not a run directory and holds {len(names)}: {', '.join(names[:3])}{more}",
        remedy="Give those that you mean.",
    )


def inside_of(folder: Path) -> list[Path]:
    """Run directories in a folder, by name; those one level further down where it has none."""
    for depth in ("*", "*/*"):
        if found := sorted(file.parent for file in folder.glob(f"{depth}/run.json")):
            return found
    return []


def require_new(directory: str | Path) -> Path:
    """Directory as a Path; an error if anything is there.

    Call it before long work, so that the refusal comes first.

    Raises:
        RunError: something exists at this path.
    """
    directory = Path(directory)
    if os.path.lexists(directory):
        raise _exists(directory)
    return directory


def require_outside_runs(path: str | Path) -> Path:
    """Path of a file to write as a Path; an error if it lies in a run directory.

    Raises:
        RunError: a run directory holds it.
    """
    for folder in Path(path).resolve().parents:
        if (folder / "run.json").exists():
            raise RunError(
                f"{path} lies in the run directory {folder}, which nothing may change",
                remedy="Choose another file.",
            )
    return Path(path)


def _exists(path: Path) -> RunError:
    return RunError(
        f"{path} exists already, and a run is never overwritten",
        remedy="Choose another --out, or remove it first.",
    )


@contextmanager
def new_directory(directory: Path) -> Iterator[Path]:
    """Hidden directory beside `directory`, which takes its name on success.

    What is written there is private to its owner, see `data.atomic_write`.

    Raises:
        RunError: the directory exists by then, or cannot be written.
    """
    with _written(directory), atomic_write.new_directory(directory) as partial:
        yield partial


@contextmanager
def new_file(path: Path, *, shared: bool) -> Iterator[BinaryIO]:
    """File to write, which appears at `path` once it is whole.

    Args:
        path: where nothing is yet.
        shared: whether others may read it, as far as the umask lets them.

    Raises:
        RunError: something exists there by then, or it cannot be written.
    """
    with _written(path), atomic_write.replacing(path, shared=shared, new=True) as file:
        yield file


@contextmanager
def _written(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into a RunError about `path`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FileExistsError) or error.errno == errno.ENOTEMPTY:
            raise _exists(path) from error
        full = error.errno in atomic_write.FULL
        raise RunError(
            f"{path} cannot be written: {error.strerror or error}",
            remedy="Make room on that disk, or choose an --out on another."
            if full
            else "Choose an --out whose parent is a directory that you may write to.",
        ) from error


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that can change a number."""
    found = {"python": platform.python_version()}
    for package in _RECORDED:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def plain(value: object) -> Any:
    """Value as plain Python: mappings, lists, numbers and strings that UTF-8 can hold.

    NumPy scalars and arrays become numbers and lists, tuples lists, paths strings.

    Example:
        >>> plain({"rank": (1, 2), "where": Path("runs")})
        {'rank': [1, 2], 'where': 'runs'}
    """
    if isinstance(value, str):
        # Half a surrogate pair can stand in a model's text, but in no file.
        return value.encode("utf-8", "replace").decode()
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    return plain(str(value))


def to_json(value: object) -> str:
    """Strict JSON: NaN and infinities, which JSON does not have, become null.

    Example:
        >>> print(to_json({"threshold": float("inf")}))
        {
          "threshold": null
        }
    """
    return json.dumps(_finite(plain(value)), indent=2, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value


def _storable(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with floats in place of whole numbers beyond 64 bits, column by column."""
    rows = list(rows)
    beyond = {
        name
        for row in rows
        for name, value in row.items()
        if isinstance(value, int) and not -(2**63) <= value < 2**63
    }
    for row in rows:
        row.update({n: float(row[n]) for n in beyond if isinstance(row.get(n), int)})
    return rows
