"""Tables of papers, and any result without a report of its own: its rows as a table."""

from collections.abc import Sequence
from dataclasses import replace

from vestige.reports.disclosure import printable
from vestige.reports.numbers import Row
from vestige.reports.paper_charts import table_figures
from vestige.reports.report import Report, lines
from vestige.reports.tables import Table
from vestige.reports.words import pairs, shown, words_of
from vestige.results import Run


def paper_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a paper's table, under its title."""
    extracted = all("hamming" in row for row in run.rows)  # then a canary is a pattern's name
    names = {"canary": "pattern"} if extracted else {}
    rows = [{names.get(n, n): row.get(n) for n in run.summary["columns"]} for row in run.rows]
    first, _, rest = printable(run.summary["note"]).partition(". ")
    facts = {"name": run.summary["name"], "rows": run.summary["rows"]}
    return Report(
        kind="table",
        title=printable(run.summary["title"]),
        evidence=lines(f"{first}." if rest else first, rest),
        blocks=(*table_figures(run.rows), *((_table(rows, show_secrets),) if rows else ())),
        facts=pairs(facts, show_secrets=show_secrets),
    )


def plain_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a result of any other kind."""
    table = replace(_table(run.rows, show_secrets), title="Rows")
    return Report(
        kind="table",
        title=printable(run.result),
        evidence=(f"{len(run.rows):,} rows.",),
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
