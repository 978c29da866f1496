"""Tables of `vestige reproduce`, and any result that has no section of its own."""

from collections.abc import Sequence
from dataclasses import replace

from vestige.reports.components.disclosure import printable
from vestige.reports.components.facts import pairs, shown, words_of
from vestige.reports.components.numbers import Row
from vestige.reports.components.table import Table
from vestige.reports.extraction.section import table_figures
from vestige.reports.section import KINDS, Section
from vestige.results import Run


@KINDS.register("Table")
def table_section(run: Run, *, show_secrets: bool) -> Section:
    """The section of a paper's table, under its title, or of a result of another kind."""
    if run.result != "Table":
        return _plain(run, show_secrets)
    extracted = all("hamming" in row for row in run.rows)  # then a canary is a pattern's name
    names = {"canary": "pattern"} if extracted else {}
    rows = [{names.get(n, n): row.get(n) for n in run.summary["columns"]} for row in run.rows]
    lede, _, because = printable(run.summary["note"]).partition(". ")
    told = {"name": run.summary["name"], "rows": run.summary["rows"]}
    table = _table(rows, show_secrets)
    return Section(
        kind="table",
        title=printable(run.summary["title"]),
        lede=lede if not because else f"{lede}.",
        because=because,
        blocks=(*table_figures(run.rows), *((table,) if rows else ())),
        numbers=pairs(told, show_secrets=show_secrets),
    )


def _plain(run: Run, show_secrets: bool) -> Section:
    table = replace(_table(run.rows, show_secrets), title="Rows")
    return Section(
        kind="table",
        title=printable(run.result),
        lede=f"{len(run.rows):,} rows.",
        blocks=(table,) if run.rows else (),
    )


def _table(rows: Sequence[Row], show_secrets: bool) -> Table:
    """Texts to the left, numbers to the right."""
    columns = list(dict.fromkeys(key for row in rows for key in row))

    def numeric(key: str) -> bool:
        values = [row.get(key) for row in rows if row.get(key) is not None]
        return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)

    columns.sort(key=numeric)
    return Table(
        columns=tuple(map(words_of, columns)),
        texts=sum(not numeric(key) for key in columns),
        rows=tuple(
            tuple(shown(key, row.get(key), show_secrets=show_secrets) for key in columns)
            for row in rows
        ),
    )
