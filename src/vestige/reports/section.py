"""A result as the section of a page or a notebook: plain facts, redacted before any markup.

Each kind of result registers the function that makes its section beside that function, in the
kind's own file; any other kind is shown as a table.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from vestige.errors import RunError
from vestige.registry import Registry
from vestige.reports.components.charts import Figure
from vestige.reports.components.disclosure import SECRET_OPTIONS, printable
from vestige.reports.components.evidence import Evidence
from vestige.reports.components.facts import Facts, pairs, shown, words_of
from vestige.reports.components.findings import Findings, Prose
from vestige.reports.components.table import Table
from vestige.reports.components.verdict import Verdict, verdict_of
from vestige.reports.verdicts import NOT_CHECKED, UNCHECKED, claim_of, is_unchecked
from vestige.results import Run

Block = Table | Figure | Prose | Findings | Evidence

REDACTION = (
    "Blocks on this page only hide texts from somebody who looks at your screen: the run "
    "directories beside it hold every phrase in the clear."
)
"""The limit that every result has."""

_SEVERAL = 3  # models or data sets from which on they are a table


@dataclass(frozen=True, kw_only=True)
class Section:
    """One result, ready for a template.

    Attributes:
        kind: the article's class in the style sheet.
        title: the question.
        lede: what was found, in a sentence or more.
        because: what that rests on.
        verdict: with its test and checks; None of a run without one.
        notices: what to know before reading on.
        blocks: tables, charts, lists and prose in their order.
        limits: what the numbers do not say.
        numbers: the summary in words, with units; of the whole summary where a kind gives none.
        asked: lists, each under its heading, of what was asked and of what.
        several: tables of models and data where there are many.
        command: the command line that repeats the run.
    """

    kind: str
    title: str
    lede: str
    because: str = ""
    verdict: Verdict | None = None
    notices: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    limits: tuple[str, ...] = ()
    numbers: Facts | None = None
    asked: tuple[tuple[str, Facts], ...] = ()
    several: tuple[Table, ...] = ()
    command: str = ""

    @property
    def tables(self) -> list[Table]:
        """The tables among the blocks."""
        return [block for block in self.blocks if isinstance(block, Table)]

    @property
    def figures(self) -> list[Figure]:
        """The charts among the blocks; the first is the headline."""
        return [block for block in self.blocks if isinstance(block, Figure)]


Maker = Callable[..., Section]
KINDS: Registry[Maker] = Registry("result", package="vestige.reports")
"""Functions of a run and of keyword `show_secrets`, by the name of the result's class."""


def section(run: Run, *, show_secrets: bool) -> Section:
    """The section of a run.

    Raises:
        RunError: its rows or summary lack what its kind of result has.
    """
    with whole(run):
        kind = run.result if run.result in KINDS.names() else "Table"
        found: Section = KINDS[kind](run, show_secrets=show_secrets)
        told = found.numbers
        numbers = pairs(run.summary, show_secrets=show_secrets) if told is None else told
        asked, several = _asked(run.run, show_secrets)
        return replace(
            found,
            verdict=_verdict(run),
            numbers=numbers,
            asked=asked,
            several=several,
            command=_command(run.run.get("command"), show_secrets),
            limits=(*found.limits, REDACTION),
        )


def _verdict(run: Run) -> Verdict | None:
    claim = claim_of(run)
    if claim is not None:
        return verdict_of(claim)
    return Verdict(word=NOT_CHECKED.upper(), sentence=UNCHECKED) if is_unchecked(run) else None


@contextmanager
def whole(run: Run) -> Iterator[None]:
    """Errors of a damaged run as a `RunError` that quotes nothing of it."""
    try:
        yield
    except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"{run.directory} is no whole {printable(run.result)} run ({type(error).__name__})",
            remedy="It was changed or is damaged; repeat the run.",
        ) from error


def _asked(
    run: Mapping[str, Any], show_secrets: bool
) -> tuple[tuple[tuple[str, Facts], ...], tuple[Table, ...]]:
    """Lists of what was asked, a heading each, and tables of models and data that are many."""
    lists: list[tuple[str, Facts]] = []
    tables = []
    for key, title in (("models", "Model"), ("data", "Data"), ("configuration", "Settings")):
        given = dict(run.get(key) or {})
        nested = {name: given.pop(name) for name in list(given) if isinstance(given[name], Mapping)}
        if key != "configuration" and len(nested) >= _SEVERAL:
            tables.append(_side_by_side(title, nested, show_secrets))
        else:
            lists += [
                (_heading(title, name), pairs(values, show_secrets=show_secrets))
                for name, values in nested.items()
            ]
        if key == "configuration":
            given.pop("seed", None)
        lists.append((title, pairs(given, show_secrets=show_secrets)))
    made = {key: run.get(key) for key in ("seed", "created")}
    versions = ", ".join(f"{k} {v}" for k, v in (run.get("versions") or {}).items())
    lists.append(("Run", pairs({**made, "versions": versions}, show_secrets=show_secrets)))
    return tuple((title, facts) for title, facts in lists if facts), tuple(tables)


def _heading(title: str, name: str) -> str:
    return title if name == title.lower() else f"{title}: {words_of(name)}"


def _side_by_side(title: str, given: Mapping[str, Mapping[str, Any]], show_secrets: bool) -> Table:
    keys = list(dict.fromkeys(key for values in given.values() for key in values))
    return Table(
        title=title,
        columns=("", *map(words_of, keys)),
        texts=1 + len(keys),
        rows=tuple(
            (printable(name), *(shown(k, v.get(k), show_secrets=show_secrets) for k in keys))
            for name, v in given.items()
        ),
    )


def _command(words: Any, show_secrets: bool) -> str:
    """The command line as one would type it, without the phrase that it may hold."""
    texts, secret = [], False
    for word in map(str, words or ()):
        option, equals, _ = word.partition("=")
        hidden = equals and option in SECRET_OPTIONS
        if show_secrets or not (secret or hidden):
            texts.append(printable(shlex.quote(word)))
        else:
            texts.append(f"{option}=…" if hidden else "…")
        secret = word in SECRET_OPTIONS
    return " ".join(texts)
