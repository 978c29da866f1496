"""Results of verbs, and the run folders that hold them.

A run folder holds `run.json` (command, options, seed, versions, models and data with hashes),
`summary.json` (scalars and the claim) and `rows.parquet` (one row per phrase, canary, text or
user). Reports are made from run folders alone, never from models.
"""

import hashlib
import json
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.data import writing
from vestige.data.files import Excerpt, Name, conform, read_object
from vestige.data.files import plain as plain
from vestige.data.files import to_json as to_json
from vestige.errors import RunError
from vestige.new_files import new_directory, require_new

if TYPE_CHECKING:
    import altair
    import pandas  # type: ignore[import-untyped]
    import pyarrow as pa

    from vestige.claims import Claim
    from vestige.reports.notebook import Html
    from vestige.reports.report import Report

FORMAT = 1
_SEALED = ("summary.json", "rows.parquet")
"""`run.json` holds the SHA-256 of these files, so that a changed result is noticed."""

_FILES = ("run.json", *_SEALED)
_REPEAT = "The run folder is damaged; repeat the run."
_PACKAGES = (
    *("vestige", "torch", "numpy", "scipy", "transformers", "tokenizers", "peft", "pyarrow"),
    *("dp-accounting", "scikit-learn", "cryptography"),
)
"""Packages that can change a number; `run.json` holds their versions."""


class _Record(Excerpt):
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


@dataclass(frozen=True)
class _Recorded:
    """Base of results and measurements, which can be printed, shown in a notebook and saved.

    Attributes:
        record: provenance, the contents of `run.json`.
    """

    record: Mapping[str, Any] = field(default_factory=dict, kw_only=True, compare=False, repr=False)

    def save(self, directory: "str | PathLike[str]") -> Path:
        """Write a run folder for `vestige report`.

        Raises:
            RunError: the folder exists or cannot be written.
        """
        return save(self, Path(directory), run=self.record)

    def __str__(self) -> str:
        from vestige.reports.notebook import text

        return text(result_of(self))

    def _repr_html_(self) -> str:
        from vestige.reports.notebook import html

        return html(result_of(self))

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """The redacted text, because `repr` contains unredacted texts."""
        return {"text/plain": str(self)}


@dataclass(frozen=True)
class Measurement(_Recorded, ABC):
    """The outcome of an attack or a training: a frozen dataclass with scalars and rows."""

    @abstractmethod
    def summary(self) -> Mapping[str, object]:
        """Scalars by name."""

    @abstractmethod
    def rows(self) -> Iterable[Mapping[str, object]]:
        """One mapping per phrase, canary, position or user."""


@dataclass(frozen=True, kw_only=True)
class Result(_Recorded):
    """The result of a verb: a summary, one table, and the claim.

    Attributes:
        kind: of the report, such as "CanaryExposure".
        summary: scalars by name; with a claim, also "verdict" and "claim".
        rows: the table, one mapping per row.
        claim: the verdict with its test and checks; None for results without a verdict.
    """

    kind: str
    summary: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    claim: "Claim | None" = None

    def __post_init__(self) -> None:
        if self.claim is not None:
            object.__setattr__(self, "summary", {**self.summary, **self.claim.summary()})

    @classmethod
    def of(cls, measurement: Any) -> "Result":
        """Convert a measurement; its class name becomes the kind."""
        return cls(
            kind=type(measurement).__name__,
            summary=measurement.summary(),
            rows=tuple(plain(row) for row in measurement.rows()),
            claim=getattr(measurement, "claim", None),
            record=getattr(measurement, "record", {}),
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
        """Exit code of the command line: 0 no leak shown or no verdict, 1 a leak, 3 undecided."""
        from vestige.claims.claim import LEAK, UNDECIDED

        if self.verdict == LEAK:
            return 1
        return 3 if self.verdict == UNDECIDED else 0

    def reports(self, *, show_secrets: bool) -> "Sequence[Report]":
        """The reports that a terminal shows."""
        from vestige.reports.report import report_of

        return [report_of(run_of(self), show_secrets=show_secrets)]

    def next_step(self, out: object) -> str:
        """Message after the result on a terminal: the run folder and the next command."""
        return f"Run folder: {out}. For a page: vestige report {out} --out page.html"

    def plot(self, *, show_secrets: bool = False) -> "altair.Chart":
        """The main chart.

        Raises:
            ValueError: this kind of result has no chart.
        """
        from vestige.reports.notebook import plot

        return plot(self, show_secrets=show_secrets)

    def show(self, *, show_secrets: bool = True) -> "Html":
        """The report for a notebook, unredacted by default."""
        from vestige.reports.notebook import Html, html

        return Html(html(self, show_secrets=show_secrets))


def result_of(measurement: Any) -> Result:
    """A result as it is; a measurement converted to a result."""
    return measurement if isinstance(measurement, Result) else Result.of(measurement)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run folder, read.

    Attributes:
        directory: the run folder.
        run: the contents of `run.json`; "result" is the kind of the result.
        summary: scalars by name.
        rows: plain dicts in the saved order.
        folder: the folder that the caller named, if the run folder is inside it; else None.
        sealed: whether `run.json` has checksums; they match the other files.
    """

    directory: Path
    run: dict[str, Any]
    summary: dict[str, Any]
    rows: list[dict[str, Any]]
    folder: Path | None = None
    sealed: bool = True

    @property
    def name(self) -> str:
        """Name of the folder that the caller named; it distinguishes runs."""
        return (self.folder or self.directory).resolve().name

    @property
    def result(self) -> str:
        """Kind of the result, such as "UpdateDiff"."""
        return str(self.run["result"])


def save(
    result: Any,
    directory: str | Path,
    *,
    run: Mapping[str, object],
    extra_files: "Callable[[Run], Mapping[str, str]] | None" = None,
) -> Path:
    """Write a run folder atomically.

    Args:
        result: a `Result`, or a measurement with `summary` and `rows`.
        directory: new path; its parents are made.
        run: command, configuration, seed, models and data with hashes.
        extra_files: makes further files of the folder, text by name, from the run.

    Returns:
        The directory.

    Raises:
        RunError: the directory exists, or cannot be written.
    """
    directory = require_new(directory)
    import pyarrow.parquet as pq

    result = result_of(result)
    record, table = _run_json(result, run), _table(result)
    with new_directory(directory) as staging:
        writing.write_text(staging / "summary.json", to_json(result.summary) + "\n")
        with writing.replacing(staging / "rows.parquet") as file:
            pq.write_table(table, file)
        record["files"] = {name: _sha256(staging / name) for name in _SEALED}
        texts = {} if extra_files is None else extra_files(_as_run(result, record, directory))
        for name, text in texts.items():
            writing.write_text(staging / name, text)
        writing.write_text(staging / "run.json", to_json(record) + "\n")
    return directory


def run_of(result: Any) -> Run:
    """The run of a result or measurement in memory, equal to one read from its folder."""
    result = result_of(result)
    return _as_run(result, _run_json(result, result.record), Path())


def _as_run(result: Result, record: Mapping[str, object], directory: Path) -> Run:
    return Run(
        directory=directory,
        run=json.loads(to_json(record)),
        summary=json.loads(to_json(result.summary)),
        rows=_table(result).to_pylist(),
    )


def _run_json(result: Result, provenance: Mapping[str, object]) -> dict[str, object]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "format": FORMAT,
        "result": result.kind,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions,
        **provenance,
    }


def _table(result: Result) -> "pa.Table":
    """All columns of all rows in order of first appearance; missing values are null.

    Columns with whole numbers beyond 64 bits become floats.
    """
    import pyarrow as pa

    rows = [plain(row) for row in result.rows]
    columns = {n: [row.get(n) for row in rows] for n in dict.fromkeys(n for r in rows for n in r)}
    for name, values in columns.items():
        if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
            columns[name] = [float(value) if isinstance(value, int) else value for value in values]
    return pa.table(columns)


def load(directory: str | Path) -> Run:
    """Read a run folder.

    Raises:
        RunError: it is not a run folder; a file in it is missing, changed, cut off or malformed;
            its checks forbid its verdict; or a later version of Vestige wrote it.
    """
    from vestige.data.files import read_rows

    directory = Path(directory)
    missing = [name for name in _FILES if not (directory / name).is_file()]
    if missing:
        raise RunError(
            f"{directory} is not a run folder: it has no {', '.join(missing)}",
            remedy="Pass a finished run, such as the --out folder of `vestige diff`.",
        )
    file = directory / "run.json"
    run = read_object(file, error=RunError, remedy=_REPEAT)
    if run.get("format") != FORMAT or not isinstance(run.get("result"), str):
        raise RunError(
            f"{file} has format {run.get('format')!r}, this reads {FORMAT}",
            remedy="Read it with the version of Vestige that wrote it, or repeat the run.",
        )
    conform(run, _Record, file, error=RunError, remedy=_REPEAT)
    summary = read_object(directory / "summary.json", error=RunError, remedy=_REPEAT)
    rows = read_rows(directory / "rows.parquet", error=RunError, remedy=_REPEAT)
    sealed = _is_sealed(directory, run.get("files"))
    if "claim" in summary:
        from vestige.claims import Claim  # imports SciPy, which other results do not need

        try:
            Claim.from_summary(summary)
        except ValueError as error:
            raise RunError(
                f"the verdict in {directory / 'summary.json'} is not valid: {error}",
                remedy="It was changed or is damaged; repeat the run.",
            ) from error
    return Run(directory=directory, run=run, summary=summary, rows=rows, sealed=sealed)


def _is_sealed(directory: Path, hashes: Mapping[str, str] | None) -> bool:
    """Whether a run has checksums. Raises RunError if one does not match."""
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
    """Read a run folder, or the only run folder inside a folder, such as that of a training.

    Raises:
        RunError: the folder contains no run or several; or see `load`.
    """
    folder = Path(folder)
    if any((folder / name).exists() for name in _FILES):
        return load(folder)
    runs = run_folders_in(folder)
    if len(runs) == 1:
        return replace(load(runs[0]), folder=folder)
    if not runs:
        return load(folder)  # its error names what is missing
    names = [str(run.relative_to(folder)) for run in runs]
    others = f" and {len(names) - 3} more" if len(names) > 3 else ""
    raise RunError(
        f"{folder} is not a run folder and contains {len(names)}: {', '.join(names[:3])}{others}",
        remedy="Pass the run folders that you mean.",
    )


def run_folders_in(folder: Path) -> list[Path]:
    """Sorted run folders in a folder; if it has none, those one level deeper."""
    for depth in ("*", "*/*"):
        if runs := sorted(file.parent for file in folder.glob(f"{depth}/run.json")):
            return runs
    return []
