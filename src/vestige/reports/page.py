"""One self-contained page from run directories: no script, no network, every string escaped."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vestige import __version__, results
from vestige.reports.changes import figures_of, table_of
from vestige.reports.components.disclosure import printable
from vestige.reports.overview import overview
from vestige.reports.same_model import models_notice
from vestige.reports.section import Section, section, whole
from vestige.reports.since import Change
from vestige.results import Run


def render(
    runs: Sequence[Run], *, show_secrets: bool, changes: Sequence[Change] | None = None
) -> str:
    """The page as HTML.

    Args:
        runs: in the order in which they shall stand.
        show_secrets: phrases and names in the clear; otherwise each word is a block.
        changes: since earlier runs; None without any.

    Raises:
        ValueError: no runs.
        RunError: a run lacks what its kind of result has.
    """
    if not runs:
        raise ValueError("runs must hold at least one run directory, got none")
    sections = [drawn(run, show_secrets=show_secrets) for run in runs]
    return fill(
        "page.html",
        sections=sections,
        overview=overview(runs, sections),
        models=models_notice(runs),
        changes=() if changes is None else (table_of(changes), *figures_of(changes)),
        show_secrets=show_secrets,
        style=style("components.css", "page.css"),
        version=__version__,
        written=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC"),
    )


def write_page(
    directories: Sequence[str | Path],
    path: str | Path,
    *,
    show_secrets: bool,
    changes: Sequence[Change] | None = None,
) -> Path:
    """Read run directories and write their page: with secrets, one that its owner alone may read.

    Raises:
        RunError: a directory is not a run, or the page exists or cannot be written.
    """
    path = results.require_outside_runs(results.require_new(path))
    runs = [results.find(directory) for directory in directories]
    page = render(runs, show_secrets=show_secrets, changes=changes)
    with results.new_file(path, shared=not show_secrets) as file:
        file.write(page.encode())
    return path


def drawn(run: Run, *, show_secrets: bool) -> Section:
    """A section whose charts are drawn, so that a damaged run fails here and not in a template.

    Raises:
        RunError: the run is damaged.
    """
    found = section(run, show_secrets=show_secrets)
    with whole(run):
        for figure in found.figures:
            if figure.worth_it:
                _ = figure.svg
    return found


def fill(template: str, **facts: object) -> str:
    """A template filled in; in the whole of it, no character is invisible.

    Charts and markup are looked at as well: no place can be forgotten where every place is seen.
    """
    page = _templates().get_template(template).render(**facts)
    return "\n".join(line if line.isprintable() else printable(line) for line in page.split("\n"))


def style(*files: str) -> Markup:
    """Style sheets of ours."""
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
