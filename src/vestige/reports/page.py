"""Several runs on one page without scripts or network access, or in a section of a model card.

The card (Mitchell et al., 2019, "Model Cards for Model Reporting") contains no text of a corpus or
model and no path.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path, PurePath

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vestige import __version__, new_files, results
from vestige.reports.blocks import Cell, Table
from vestige.reports.disclosure import markdown_text, printable
from vestige.reports.quantities import QUANTITIES, measured
from vestige.reports.report import REDACTION, Block, Evidence, Report, guarded, report_of
from vestige.reports.verdicts import same_model, verdict_word
from vestige.reports.words import NOTHING
from vestige.results import Run

KEY = (
    "One row per run, with its directory and models. Estimates with 95% intervals; a number "
    "without one is a count, or its section says why."
)


def render(
    runs: Sequence[Run],
    *,
    show_secrets: bool,
    first: Sequence[Block] = (),
    above: Report | None = None,
) -> str:
    """The page as HTML.

    Args:
        runs: the runs in the order of the page.
        show_secrets: show texts and names unredacted.
        first: blocks above the runs, such as changes since earlier runs.
        above: a report about all runs.

    Raises:
        ValueError: there are no runs.
        RunError: a run is damaged.
    """
    reports = [drawn_report(run, show_secrets=show_secrets) for run in _require_runs(runs)]
    return fill_template(
        "page.html",
        reports=reports,
        overview=overview(runs, reports) if len(runs) > 1 else None,
        models=models_notice(runs),
        first=first,
        above=above,
        show_secrets=show_secrets,
        style=style("components.css", "page.css"),
        version=__version__,
        written=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC"),
    )


def write_page(
    runs: Sequence[str | Path | Run],
    path: str | Path,
    *,
    show_secrets: bool,
    first: Sequence[Block] = (),
    above: Report | None = None,
) -> Path:
    """Write the page of run folders or runs, see `render`; one with secrets is private (0600).

    Raises:
        RunError: a folder is not a run, or the page exists or cannot be written.
    """

    def page(read: Sequence[Run]) -> str:
        return render(read, show_secrets=show_secrets, first=first, above=above)

    return _write(runs, path, page, shared=not show_secrets)


def card(runs: Sequence[Run], *, first: Sequence[Block] = ()) -> str:
    """The section of a model card as Markdown; `first` are tables above the runs.

    Raises:
        ValueError: there are no runs.
        RunError: a run is damaged.
    """
    reports = [report_of(run, show_secrets=False) for run in _require_runs(runs)]
    lines = ["## Privacy", "", f"Measured with Vestige {__version__}.", ""]
    lines += _markdown_table(overview(runs, reports))
    if notice := models_notice(runs):
        lines += ["", markdown_text(notice)]
    for block in first:
        if isinstance(block, Table):
            lines += ["", f"### {block.title}", "", block.key, "", *_markdown_table(block)]
    for report in reports:
        lines += _card_section(report)
    return "\n".join(lines) + "\n"


def write_card(
    runs: Sequence[str | Path | Run], path: str | Path, *, first: Sequence[Block] = ()
) -> Path:
    """Write the card of run folders, or of runs in memory. All users can read it.

    Raises:
        RunError: a folder is not a run, or the file exists or cannot be written.
    """
    return _write(runs, path, lambda read: card(read, first=first), shared=True)


def _require_runs(runs: Sequence[Run]) -> Sequence[Run]:
    if not runs:
        raise ValueError("runs must hold at least one run folder, got none")
    return runs


def _write(
    runs: Sequence[str | Path | Run],
    path: str | Path,
    render_text: Callable[[Sequence[Run]], str],
    *,
    shared: bool,
) -> Path:
    path = new_files.require_outside_runs(new_files.require_new(path))
    text = render_text([run if isinstance(run, Run) else results.find(run) for run in runs])
    with new_files.new_file(path, shared=shared) as file:
        file.write(text.encode())
    return path


def overview(runs: Sequence[Run], reports: Sequence[Report]) -> Table:
    """A table with the question, verdict and estimate of each run, linked to its section."""
    rows = []
    for number, (run, report) in enumerate(zip(runs, reports, strict=True), start=1):
        with guarded(run):
            names = tuple(filter(None, (printable(run.name), _model_names(run))))
            question = Cell(text=report.title, notes=names, href=f"#section-{number}")
            verdict = verdict_word(run) or NOTHING
            rows.append((question, verdict, _estimate_cell(run)))
    columns = ("question", "verdict", "measured")
    return Table(title="At a glance", columns=columns, texts=2, rows=tuple(rows), key=KEY)


def models_notice(runs: Sequence[Run]) -> str:
    """A sentence on whether all runs audited one model; "" for fewer than two audits."""
    check = same_model(runs)
    if check is None:
        return ""
    return check.sentence + " There is no joint verdict." * (check.state != "passed")


def _estimate_cell(run: Run) -> str | Cell:
    for name, quantity in QUANTITIES.items():
        if run.result in quantity.of:
            number = measured(name, run)
            amount = number.amount(quantity.unit)
            text = amount if quantity.unit else f"{name} {amount}"
            return Cell(text=text, notes=(number.interval,) if number.interval else ())
    return NOTHING


def _model_names(run: Run) -> str:
    """Folder names of the models of a run."""
    names: dict[str, None] = {}  # an ordered set
    for model in (run.run.get("models") or {}).values():
        recorded = model.get("path") if isinstance(model, dict) else None
        paths = recorded if isinstance(recorded, list) else [recorded]
        names |= {PurePath(str(path)).name: None for path in paths if path}
    return printable(", ".join(names))


def drawn_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a run with its charts drawn, so that templates cannot fail.

    Raises:
        RunError: the run is damaged.
    """
    report = report_of(run, show_secrets=show_secrets)
    with guarded(run):
        for figure in report.figures:
            if figure.worth_it:
                _ = figure.svg
    return report


def fill_template(template: str, **values: object) -> str:
    """Fill a template and escape all invisible characters."""
    page = _templates().get_template(template).render(**values)
    return "\n".join(line if line.isprintable() else printable(line) for line in page.split("\n"))


def style(*files: str) -> Markup:
    """The contents of style sheets."""
    folder = resources.files("vestige.reports")
    return Markup("\n".join(folder.joinpath(file).read_text("utf-8") for file in files))


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("vestige.reports", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _card_section(report: Report) -> list[str]:
    lines = ["", f"### {markdown_text(report.title)}", ""]
    verdict = report.verdict
    if verdict is not None:
        lines += [f"**{markdown_text(verdict.line)}**", ""]
    tests = [item for item in report.evidence if isinstance(item, Evidence)]
    if sentences := [item for item in report.evidence if isinstance(item, str)]:
        lines += [markdown_text(" ".join(sentences)), ""]
    for item in tests:
        lines.append(f"- {markdown_text(' '.join(filter(None, (str(item), item.note))))}")
    for prose in report.below:
        if not prose.command:  # commands contain paths
            lines += ["", f"**{markdown_text(prose.title)}**", ""] if prose.title else [""]
            lines += [f"{'- ' * prose.listed}{markdown_text(line)}" for line in prose.lines]
    lines += [""] * bool(tests or report.below)
    checks = () if verdict is None else (*verdict.against, verdict.all_passed)
    limits = [limit for limit in report.limits if limit != REDACTION]
    return lines + [f"- {markdown_text(line)}" for line in (*checks, *limits) if line]


def _markdown_table(table: Table) -> list[str]:
    head = [f"| {' | '.join(table.columns)} |", f"|{' --- |' * len(table.columns)}"]
    return [*head, *(f"| {' | '.join(map(_markdown_cell, row))} |" for row in table.rows)]


def _markdown_cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return markdown_text(cell)
    notes = f" ({markdown_text(', '.join(cell.notes))})" if cell.notes and not cell.href else ""
    return f"{markdown_text(cell.text)}{notes}"
