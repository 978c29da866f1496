"""Several runs on one page without scripts or network, or as a section of a model card.

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
        runs: in the order of the page.
        show_secrets: texts and names unredacted.
        first: blocks above all runs, such as the changes since earlier ones.
        above: a report about all runs.

    Raises:
        ValueError: no runs.
        RunError: a run lacks what its kind of result has.
    """
    reports = [drawn(run, show_secrets=show_secrets) for run in _some(runs)]
    return fill(
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
    """Write the page of run folders or read runs. One with secrets is private to its owner.

    Args:
        runs: run folders, or runs that were read.
        path: of the page, which must not exist.
        show_secrets: see `render`, as of `first` and `above`.

    Raises:
        RunError: a directory is not a run, or the page exists or cannot be written.
    """

    def page(read: Sequence[Run]) -> str:
        return render(read, show_secrets=show_secrets, first=first, above=above)

    return _written(runs, path, page, shared=not show_secrets)


def card(runs: Sequence[Run], *, first: Sequence[Block] = ()) -> str:
    """The section of a model card as Markdown.

    Args:
        runs: in the order of the section.
        first: blocks above all runs, of which tables are shown.

    Raises:
        ValueError: no runs.
        RunError: a run lacks what its kind of result has.
    """
    reports = [report_of(run, show_secrets=False) for run in _some(runs)]
    lines = ["## Privacy", "", f"Measured with Vestige {__version__}.", ""]
    lines += _markdown(overview(runs, reports))
    if notice := models_notice(runs):
        lines += ["", markdown_text(notice)]
    for one in first:
        if isinstance(one, Table):
            lines += ["", f"### {one.title}", "", one.key, "", *_markdown(one)]
    for report in reports:
        lines += _section(report)
    return "\n".join(lines) + "\n"


def write_card(
    runs: Sequence[str | Path | Run], path: str | Path, *, first: Sequence[Block] = ()
) -> Path:
    """Write the card of run folders or read runs. Everyone may read it.

    Raises:
        RunError: a directory is not a run, or the file exists or cannot be written.
    """
    return _written(runs, path, lambda read: card(read, first=first), shared=True)


def _some(runs: Sequence[Run]) -> Sequence[Run]:
    if not runs:
        raise ValueError("runs must hold at least one run folder, got none")
    return runs


def _written(
    runs: Sequence[str | Path | Run],
    path: str | Path,
    made: Callable[[Sequence[Run]], str],
    *,
    shared: bool,
) -> Path:
    path = new_files.require_outside_runs(new_files.require_new(path))
    text = made([one if isinstance(one, Run) else results.find(one) for one in runs])
    with new_files.new_file(path, shared=shared) as file:
        file.write(text.encode())
    return path


def overview(runs: Sequence[Run], reports: Sequence[Report]) -> Table:
    """One row per run, linked to its section: question, verdict and estimate."""
    rows = []
    for number, (run, report) in enumerate(zip(runs, reports, strict=True), start=1):
        with guarded(run):
            names = tuple(filter(None, (printable(run.name), _models(run))))
            question = Cell(text=report.title, notes=names, href=f"#section-{number}")
            verdict = verdict_word(run) or NOTHING
            rows.append((question, verdict, _estimate(run)))
    columns = ("question", "verdict", "measured")
    return Table(title="At a glance", columns=columns, texts=2, rows=tuple(rows), key=KEY)


def models_notice(runs: Sequence[Run]) -> str:
    """Whether all runs measured one model; "" if there is nothing to compare."""
    check = same_model(runs)
    if check is None:
        return ""
    return check.sentence + " There is no joint verdict." * (check.state != "passed")


def _estimate(run: Run) -> str | Cell:
    for name, quantity in QUANTITIES.items():
        if run.result in quantity.of:
            found = measured(name, run)
            text = found.amount(quantity.unit) if quantity.unit else f"{name} {found.amount('')}"
            return Cell(text=text, notes=(found.interval,) if found.interval else ())
    return NOTHING


def _models(run: Run) -> str:
    """The folder names of the models."""
    models = run.run.get("models") or {}
    paths = [one.get("path") for one in models.values() if isinstance(one, dict)]
    each = [one for path in paths for one in (path if isinstance(path, list) else [path]) if one]
    return printable(", ".join(dict.fromkeys(PurePath(str(path)).name for path in each)))


def drawn(run: Run, *, show_secrets: bool) -> Report:
    """A report with its charts drawn: a damaged run fails here and not in a template.

    Raises:
        RunError: the run is damaged.
    """
    found = report_of(run, show_secrets=show_secrets)
    with guarded(run):
        for figure in found.figures:
            if figure.worth_it:
                _ = figure.svg
    return found


def fill(template: str, **facts: object) -> str:
    """A filled template without any invisible character, charts and markup included."""
    page = _templates().get_template(template).render(**facts)
    return "\n".join(line if line.isprintable() else printable(line) for line in page.split("\n"))


def style(*files: str) -> Markup:
    """Our style sheets."""
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


def _section(report: Report) -> list[str]:
    lines = ["", f"### {markdown_text(report.title)}", ""]
    verdict = report.verdict
    if verdict is not None:
        lines += [f"**{markdown_text(verdict.line)}**", ""]
    tests = [one for one in report.evidence if isinstance(one, Evidence)]
    if plain := [one for one in report.evidence if isinstance(one, str)]:
        lines += [markdown_text(" ".join(plain)), ""]
    for one in tests:
        lines.append(f"- {markdown_text(' '.join(filter(None, (str(one), one.note))))}")
    for prose in report.below:
        if not prose.command:  # which contains paths
            lines += ["", f"**{markdown_text(prose.title)}**", ""] if prose.title else [""]
            lines += [f"{'- ' * prose.listed}{markdown_text(line)}" for line in prose.lines]
    lines += [""] * bool(tests or report.below)
    checks = () if verdict is None else (*verdict.against, verdict.all_passed)
    limits = [limit for limit in report.limits if limit != REDACTION]
    return lines + [f"- {markdown_text(line)}" for line in (*checks, *limits) if line]


def _markdown(table: Table) -> list[str]:
    head = [f"| {' | '.join(table.columns)} |", f"|{' --- |' * len(table.columns)}"]
    return [*head, *(f"| {' | '.join(map(_cell, row))} |" for row in table.rows)]


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return markdown_text(cell)
    beside = f" ({markdown_text(', '.join(cell.notes))})" if cell.notes and not cell.href else ""
    return f"{markdown_text(cell.text)}{beside}"
