"""Blocks of reports: tables, phrases, prose, and lists of names and values. See also `charts`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from vestige.reports.disclosure import are_words, disclose, printable, running_text
from vestige.reports.words import NOTHING, Facts, Row, whole

LONG_TEXT = 28
"""Length above which the text of a cell is broken into lines."""

FILE_NOTE_PURPOSE = (
    "For the record of processing. Opinion 28/2024 of the European Data Protection Board names "
    "documented tests such as this one as evidence on whether personal data can be extracted from "
    "a model. This is one such test. It does not show that the model is anonymous or that its use "
    "is lawful."
)


@dataclass(frozen=True, kw_only=True)
class Bar:
    """An interval, its value, a reference line and a band, in percent of the bar's width."""

    low: float
    middle: float
    high: float
    reference: float | None = None
    band: tuple[float, float] | None = None


def bar(
    row: Row,
    name: str,
    axis: tuple[float, float],
    *,
    reference: float | None = None,
    band: tuple[float, float] | None = None,
) -> Bar | None:
    """The bar of the columns NAME, NAME_low and NAME_high of a row; None without an interval."""
    if row[f"{name}_low"] is None:
        return None
    low, high = axis

    def percent(x: float) -> float:
        return round(100 * min(1.0, max(0.0, (x - low) / (high - low))), 1)

    return Bar(
        low=percent(row[f"{name}_low"]),
        middle=percent(row[name]),
        high=percent(row[f"{name}_high"]),
        reference=None if reference is None else percent(reference),
        band=None if band is None else (percent(band[0]), percent(band[1])),
    )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A value, or the bold name of a row, with a bar and smaller lines below it.

    `href` links to a section of the same page.
    """

    text: str
    notes: tuple[str, ...] = ()
    bar: Bar | None = None
    name: bool = False
    href: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with its title.

    Attributes:
        title: heading, or "".
        columns: column names; empty for a table without a head.
        texts: number of leading text columns; the others are numbers, aligned right.
        rows: cells in the order of the columns; a row of one cell begins a group.
        key: explanation above the table.
        marked: index of the highlighted row, or None.
        folded: hidden on a terminal.
    """

    template: ClassVar[str] = "table"
    title: str = ""
    columns: tuple[str, ...] = ()
    texts: int = 1
    rows: tuple[tuple[str | Cell, ...], ...]
    key: str = ""
    marked: int | None = None
    folded: bool = False

    def wraps(self, column: int) -> bool:
        """Whether the texts of a column are broken into lines."""
        texts = [row[column] for row in self.rows if 1 < len(row) > column < self.texts]
        return any(isinstance(text, str) and len(text) > LONG_TEXT for text in texts)


Column = Callable[[Any], object]


def table(
    title: str,
    rows: Iterable[Any],
    columns: Mapping[str, Column] | None = None,
    *,
    texts: int = 1,
    key: str = "",
    most: int | None = None,
    drop_empty: bool = False,
    **named: Column,
) -> Table:
    """A table in which each column is a function of a row.

    Args:
        title: heading, or "".
        rows: arguments of the functions.
        columns: functions by column name.
        texts: number of leading text columns.
        key: explanation above the table.
        most: largest number of rows; the title counts the others.
        drop_empty: leave out columns that are None or "" in all rows.
        named: more columns. Underscores become spaces; one at the end distinguishes columns of
            the same name.

    Example:
        >>> example = table("T", [{"n": 1200, "p": None}], name=str, tokens_read=lambda r: r["n"])
        >>> example.columns, example.rows[0][1]
        (('name', 'tokens read'), '1,200')
    """
    functions = [*(columns or {}).items(), *((n.replace("_", " "), f) for n, f in named.items())]
    all_rows = list(rows)
    values = [[function(row) for _, function in functions] for row in all_rows[:most]]
    shown_columns = [
        index
        for index in range(len(functions))
        if not drop_empty or any(row[index] not in (None, "") for row in values)
    ]
    hidden_rows = len(all_rows) - len(values)
    return Table(
        title=f"{title} ({hidden_rows:,} more in the run folder)" if hidden_rows else title,
        columns=tuple(functions[index][0].strip() for index in shown_columns),
        texts=sum(index < texts for index in shown_columns),
        rows=tuple(tuple(_cell(row[index]) for index in shown_columns) for row in values),
        key=key,
    )


def _cell(value: object) -> str | Cell:
    """A value as a cell, with thousands separators and two decimals."""
    if isinstance(value, Cell):
        return value
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.2f}" if isinstance(value, float) else printable(str(value))


class Token(NamedTuple):
    """A token of a phrase: text, score, and shade from 0 to 100."""

    text: str
    score: float
    shade: int


@dataclass(frozen=True, kw_only=True)
class Phrase:
    """A phrase that a search returned, as tokens and as one line.

    Attributes:
        spaced: the tokens are words, separated by spaces.
        notes: smaller lines below the phrase.
        verdict: "found", or the number of null searches that reached its score; "" without null
            models.
        lead: the text that the model reads before the phrase.
    """

    rank: int
    score: float
    tokens: tuple[Token, ...]
    text: str
    spaced: bool
    notes: tuple[str, ...]
    verdict: str
    lead: str = ""


def phrase(
    row: Row, *, strongest: float, verdict: str, notes: tuple[str, ...], show_secrets: bool
) -> Phrase:
    """The phrase of a row with rank, score, pieces, token_scores and phrase; see `Phrase`."""
    pieces, text = [str(piece) for piece in row["pieces"]], str(row["phrase"])
    shown_pieces = disclose(pieces, show_secrets=show_secrets)
    scores = [float(score) for score in row["token_scores"]]
    strengths = [max(0.0, min(1.0, s / strongest)) if strongest > 0 else 0.0 for s in scores]
    shades = [round(100 * strength) for strength in strengths]
    return Phrase(
        rank=int(row["rank"]),
        score=float(row["score"]),
        tokens=tuple(map(Token._make, zip(shown_pieces, scores, shades, strict=True))),
        text=running_text(pieces, text, show_secrets=show_secrets),
        spaced=are_words(pieces, text),
        notes=notes,
        verdict=verdict,
        lead=disclose([str(row.get("lead") or "").lstrip()], show_secrets=show_secrets)[0],
    )


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Groups of phrases below a heading; pages fold all but the first phrase of a group."""

    template: ClassVar[str] = "findings"
    title: str
    key: str
    groups: tuple[tuple[Phrase, ...], ...]
    folded: bool = False


@dataclass(frozen=True, kw_only=True)
class Prose:
    """Sentences below a heading, as paragraphs or a list, and a command to run."""

    template: ClassVar[str] = "prose"
    title: str
    lines: tuple[str, ...]
    listed: bool = False
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Names and values below a heading; a file note also has its purpose and its limits."""

    template: ClassVar[str] = "listing"
    title: str
    facts: Facts
    key: str = ""
    limits: tuple[str, ...] = ()


def audit_note(
    run: Mapping[str, Any],
    *,
    question: str,
    models: Mapping[str, str],
    data: Mapping[str, str],
    finding: str,
    limits: Iterable[str],
) -> Listing:
    """A note for a data-protection officer, with the full hashes of models and texts.

    Args:
        run: record of the run.
        question: of the audit.
        models: descriptions of the models by role in the record.
        data: descriptions of the texts by role in the record.
        finding: the answer.
        limits: limits of the answer.
    """
    versions = run.get("versions") or {}
    provenance = (f"on {str(run['created'])[:10]}" if run.get("created") else "") + (
        f" by Vestige {versions['vestige']}" if versions.get("vestige") else ""
    )
    model_records, text_records = run.get("models") or {}, run.get("data") or {}
    facts = (
        ("Question", question),
        *((f"About {name}", _model_text(model_records.get(role))) for role, name in models.items()),
        *((f"With {name}", _corpus_text(text_records.get(role))) for role, name in data.items()),
        ("Made", provenance.strip()),
        ("Finding", finding),
    )
    return Listing(
        title="For a data-protection officer",
        key=FILE_NOTE_PURPOSE,
        facts=tuple((name, printable(text)) for name, text in facts if text),
        limits=tuple(limits),
    )


def _model_text(record: Any) -> str:
    """Folder name of a model, and the hash of its weights."""
    if not isinstance(record, Mapping):
        return ""
    path, base = record.get("path"), record.get("base")
    parts = [
        str(path).rstrip("/").rpartition("/")[2] if path else "a model in memory",
        f"{whole(record['parameters'])} weights" if record.get("parameters") else "",
        f"SHA-256 {record.get('sha256') or NOTHING}",
        f"on a base of SHA-256 {base.get('sha256')}" if isinstance(base, Mapping) else "",
    ]
    return ", ".join(filter(None, parts))


def _corpus_text(record: Any) -> str:
    """Number of texts and their hash."""
    if not isinstance(record, Mapping):
        return ""
    return f"{whole(record['documents'])} texts, SHA-256 {record.get('sha256') or NOTHING}"
