"""One self-contained page from run directories: no script, no network, every string escaped."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from vestige import __version__, results
from vestige.reports.components.disclosure import printable
from vestige.reports.sections import section
from vestige.results import Run


def render(runs: Sequence[Run], *, show_secrets: bool) -> str:
    """The page as HTML.

    Args:
        runs: in the order in which they shall stand.
        show_secrets: phrases and names in the clear; otherwise each word is a block.

    Raises:
        ValueError: no runs.
        RunError: a run lacks what its kind of result has.
    """
    if not runs:
        raise ValueError("runs must hold at least one run directory, got none")
    page = _template().render(
        sections=[section(run, show_secrets=show_secrets) for run in runs],
        show_secrets=show_secrets,
        style=Markup(resources.files("vestige.reports").joinpath("page.css").read_text("utf-8")),
        version=__version__,
        written=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC"),
    )
    # Charts and markup as well: no place can be forgotten where every place is looked at.
    return "\n".join(line if line.isprintable() else printable(line) for line in page.split("\n"))


def write_page(directories: Sequence[str | Path], path: str | Path, *, show_secrets: bool) -> Path:
    """Read run directories and write their page: with secrets, one that its owner alone may read.

    Raises:
        RunError: a directory is not a run, or the page exists or cannot be written.
    """
    path = results.require_new(path)
    runs = [results.load(directory) for directory in directories]
    page = render(runs, show_secrets=show_secrets)
    with results.new_file(path, shared=not show_secrets) as file:
        file.write(page.encode())
    return path


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("vestige.reports", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")
