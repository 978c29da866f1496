"""A page as a function that Python and the command line call: `vestige report`."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from vestige._markers import Flag, Group, Metavar

if TYPE_CHECKING:
    PathTo: TypeAlias = str | PathLike[str]
    Runs: TypeAlias = PathTo | Sequence[PathTo]
else:  # as a command line gives them
    PathTo = Path
    Runs = Sequence[Path]


@dataclass(frozen=True)
class Page:
    """A page that was written.

    Attributes:
        path: where it is.
        runs: how many run directories it shows.
        show_secrets: whether phrases stand there in the clear.
    """

    path: Path
    runs: int
    show_secrets: bool

    def __fspath__(self) -> str:
        return fspath(self.path)

    def summary(self) -> dict[str, object]:
        """The attributes by name."""
        return {"page": str(self.path), "runs": self.runs, "show_secrets": self.show_secrets}


def report(
    runs: Annotated[Runs, Metavar("RUN")],
    out: Annotated[PathTo, Flag("--out"), Metavar("PAGE"), Group("Output")],
    *,
    show_secrets: Annotated[bool, Group("Output")] = False,
) -> Page:
    """Write one self-contained HTML page from run directories.

    The page loads nothing and runs nothing: send it, print it, keep it beside the models. It
    shows what was asked and of what, the phrases with each token's score as shading, ranks
    with their certainty, and what the numbers do not say. Phrases are redacted unless
    `show_secrets` is given.

    An `out` that ends with `.md` gets a section for a model card in place of a page: what was
    asked, found and left open, as Markdown, without any phrase.

    Args:
        runs: Run directories, in the page's order.
        out: The page, or the section of a card, to write; it must not exist.
        show_secrets: Show phrases in the clear; otherwise each word is a block.

    Raises:
        ValueError: secrets are asked for in a card.
        RunError: a directory is no run, or the page exists or cannot be written.

    Examples:
        vestige report run --out page.html

        vestige report diff-run rank-run --out page.html --show-secrets

        vestige report diff-run rank-run --out card.md
    """
    from vestige.reports.card import write_card
    from vestige.reports.page import write_page

    several = [runs] if isinstance(runs, str | PathLike) else list(runs)
    paths = [fspath(run) for run in several]
    if Path(out).suffix != ".md":
        path = write_page(paths, Path(out), show_secrets=show_secrets)
    elif show_secrets:
        raise ValueError("`show_secrets` must be left out with a card, which is for everybody")
    else:
        path = write_card(paths, Path(out))
    return Page(path, len(several), show_secrets)
