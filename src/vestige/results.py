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
    from vestige.reports.notebook import Shown
    from vestige.reports.report import Report

FORMAT = 1
_SEALED = ("summary.json", "rows.parquet")
"""Files whose SHA-256 `run.json` holds, so that a changed result is noticed."""

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
    """A base of results and measurements: they can be printed, shown in a notebook and saved.

    Attributes:
        record: provenance, the contents of `run.json`.
    """

    record: Mapping[str, Any] = field(default_factory=dict, kw_only=True, compare=False, repr=False)

    def save(self, directory: "str | PathLike[str]") -> Path:
        """Write a run folder, which `vestige report` reads.

        Raises:
            RunError: it exists, or cannot be written.
        """
        return save(self, Path(directory), run=self.record)

    def __str__(self) -> str:
        from vestige.reports.notebook import text

        return text(result_of(self))

    def _repr_html_(self) -> str:
        from vestige.reports.notebook import html

        return html(result_of(self))

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """The redacted text; `repr` would hold unredacted texts."""
        return {"text/plain": str(self)}


@dataclass(frozen=True)
class Measurement(_Recorded, ABC):
    """What an attack or a training measures: a frozen dataclass with scalars and rows."""

    @abstractmethod
    def summary(self) -> Mapping[str, object]:
        """Scalars by name."""

    @abstractmethod
    def rows(self) -> Iterable[Mapping[str, object]]:
        """One mapping per phrase, canary, position or user."""


@dataclass(frozen=True, kw_only=True)
class Result(_Recorded):
    """What a verb returns: a summary, one table, and the claim.

    Attributes:
        kind: of the report, such as "CanaryExposure".
        summary: scalars by name, "verdict" and "claim" among them where there is a claim.
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
    def of(cls, measured: Any) -> "Result":
        """The result of an attack, under the name of its class."""
        return cls(
            kind=type(measured).__name__,
            summary=measured.summary(),
            rows=tuple(plain(row) for row in measured.rows()),
            claim=getattr(measured, "claim", None),
            record=getattr(measured, "record", {}),
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
        from vestige.claims.claim import LEAK, UNDECIDED

        if self.verdict == LEAK:
            return 1
        return 3 if self.verdict == UNDECIDED else 0

    def reports(self, *, show_secrets: bool) -> "Sequence[Report]":
        """What a terminal shows."""
        from vestige.reports.report import report_of

        return [report_of(run_of(self), show_secrets=show_secrets)]

    def next_step(self, out: object) -> str:
        """A line for the terminal about the run folder."""
        return f"Run folder: {out}. For a page: vestige report {out} --out page.html"

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


def result_of(found: Any) -> Result:
    """A result, or the result of a measurement."""
    return found if isinstance(found, Result) else Result.of(found)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run folder, read.

    Attributes:
        directory: its place.
        run: the contents of `run.json`; "result" is the name of the result's class.
        summary: scalars by name.
        rows: plain dicts, in the order in which they were saved.
        folder: in which it was found, if not its own directory was given; else None.
        sealed: `run.json` has checksums, which match its other files.
    """

    directory: Path
    run: dict[str, Any]
    summary: dict[str, Any]
    rows: list[dict[str, Any]]
    folder: Path | None = None
    sealed: bool = True

    @property
    def name(self) -> str:
        """The name of its directory, or of the folder that was given; it tells runs apart."""
        return (self.folder or self.directory).resolve().name

    @property
    def result(self) -> str:
        """The name of the result's class, such as "UpdateDiff"."""
        return str(self.run["result"])


def save(
    result: Any,
    directory: str | Path,
    *,
    run: Mapping[str, object],
    more: "Callable[[Run], Mapping[str, str]] | None" = None,
) -> Path:
    """Write a run folder, whole or not at all.

    Args:
        result: a `Result`, or what an attack or experiment returned, with `summary` and `rows`.
        directory: a path that does not exist yet; its parents are made.
        run: command, configuration, seed, models and data with hashes.
        more: further files of the folder, text by name, from the run as it will be read.

    Returns:
        The directory.

    Raises:
        RunError: the directory exists, or cannot be written.
    """
    directory = require_new(directory)
    import pyarrow.parquet as pq

    result = result_of(result)
    record, table = _record(result, run), _table(result)
    with new_directory(directory) as partial:
        writing.write_text(partial / "summary.json", to_json(result.summary) + "\n")
        with writing.replacing(partial / "rows.parquet") as file:
            pq.write_table(table, file)
        record["files"] = {name: _sha256(partial / name) for name in _SEALED}
        files = {} if more is None else more(_as_read(result, record, directory))
        for name, text in files.items():
            writing.write_text(partial / name, text)
        writing.write_text(partial / "run.json", to_json(record) + "\n")
    return directory


def run_of(result: Any) -> Run:
    """A result or measurement as its run folder would be read, without writing it."""
    result = result_of(result)
    return _as_read(result, _record(result, result.record), Path())


def _as_read(result: Result, record: Mapping[str, object], directory: Path) -> Run:
    return Run(
        directory=directory,
        run=json.loads(to_json(record)),
        summary=json.loads(to_json(result.summary)),
        rows=_table(result).to_pylist(),
    )


def _record(result: Result, run: Mapping[str, object]) -> dict[str, object]:
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
        **run,
    }


def _table(result: Result) -> "pa.Table":
    """All columns of all rows, in order of first appearance; null where a row has none.

    Columns with whole numbers beyond 64 bits become floats.
    """
    import pyarrow as pa

    rows = [plain(row) for row in result.rows]
    columns = {n: [row.get(n) for row in rows] for n in dict.fromkeys(n for r in rows for n in r)}
    for name, values in columns.items():
        if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
            columns[name] = [float(one) if isinstance(one, int) else one for one in values]
    return pa.table(columns)


def load(directory: str | Path) -> Run:
    """Read a run folder.

    Raises:
        RunError: it is not a run folder, a file in it is missing, changed, cut off or malformed,
            its checks forbid its verdict, or a later version of Vestige wrote it.
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
    """Whether a run has checksums; RunError if one does not match."""
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
    """Read a run folder, or the only one in a folder, such as that of a training or an audit.

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
        f"{folder} is not a run folder and holds {len(names)}: {', '.join(names[:3])}{more}",
        remedy="Give those that you mean.",
    )


def inside_of(folder: Path) -> list[Path]:
    """Run folders in a folder, by name; those one level further down where it has none."""
    for depth in ("*", "*/*"):
        if found := sorted(file.parent for file in folder.glob(f"{depth}/run.json")):
            return found
    return []
