"""One self-contained page from runs: no scripts, no network, every text escaped."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vestige import __version__, new_files, results
from vestige.reports.disclosure import printable
from vestige.reports.overview import overview
from vestige.reports.report import Block, Report, guarded, report_of
from vestige.reports.same_model import models_notice
from vestige.results import Run


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
    if not runs:
        raise ValueError("runs must hold at least one run directory, got none")
    reports = [drawn(run, show_secrets=show_secrets) for run in runs]
    return fill(
        "page.html",
        reports=reports,
        overview=overview(runs, reports),
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
    """Write the page of runs. One with secrets is private to its owner.

    Args:
        runs: run directories, or runs that were read.
        path: of the page.
        show_secrets: see `render`, as of `first` and `above`.
        first: blocks above all runs.
        above: a report about all runs.

    Raises:
        RunError: a directory is not a run, or the page exists or cannot be written.
    """
    path = new_files.require_outside_runs(new_files.require_new(path))
    read = [one if isinstance(one, Run) else results.find(one) for one in runs]
    page = render(read, show_secrets=show_secrets, first=first, above=above)
    with new_files.new_file(path, shared=not show_secrets) as file:
        file.write(page.encode())
    return path


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
