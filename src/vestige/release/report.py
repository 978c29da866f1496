"""A page as a function that Python and the command line call: `vestige report`."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from vestige._markers import Flag, Group, Metavar

if TYPE_CHECKING:
    from vestige.release.since import Change

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
        changes: each number since the earlier runs; None where none were given.
    """

    path: Path
    runs: int
    show_secrets: bool
    changes: "tuple[Change, ...] | None" = None

    def __fspath__(self) -> str:
        return fspath(self.path)

    def summary(self) -> dict[str, object]:
        """The attributes by name; changes where there are earlier runs."""
        told: dict[str, object] = {
            "page": str(self.path), "runs": self.runs, "show_secrets": self.show_secrets,
        }  # fmt: skip
        if self.changes is not None:
            told["changes"] = [one.summary() for one in self.changes]
        return told


def report(
    runs: Annotated[Runs, Metavar("RUN")],
    out: Annotated[PathTo, Flag("--out"), Metavar("PAGE"), Group("Output")],
    *,
    since: Annotated[Runs, Metavar("OLD")] = (),
    show_secrets: Annotated[bool, Group("Output")] = False,
) -> Page:
    """Write one self-contained HTML page from run directories.

    The page loads nothing and runs nothing: send it, print it, keep it beside the models. It
    shows what was asked and of what, the phrases with each token's score as shading, ranks
    with their certainty, and what the numbers do not say. Phrases are redacted unless
    `show_secrets` is given.

    An `out` that ends with `.md` gets a section for a model card in place of a page: what was
    asked, found and left open, as Markdown, without any phrase.

    With `since`, it begins with what changed since the last release: each number then and now, the
    difference with its 95 % interval, and whether that is better, worse or not shown. Runs are
    matched by the names of their directories and their kind; what is measured on one side alone is
    listed as new or as no longer measured. A run inside the folder that was given, as a training or
    an audit leaves it, has that folder's name.

    Args:
        runs: Run directories, in the page's order; of a folder with one run inside, that one.
        out: The page, or the section of a card, to write; it must not exist.
        since: Run directories of an earlier release, or a folder that holds them; several times.
        show_secrets: Show phrases in the clear; otherwise each word is a block.

    Raises:
        ValueError: secrets are asked for in a card.
        RunError: a directory is no run and holds none or several, two earlier or two later ones of
            one kind have one name, or the page exists or cannot be written.

    Examples:
        vestige report run --out page.html

        vestige report diff-run rank-run --out page.html --show-secrets

        vestige report diff-run rank-run --out card.md

        vestige report diff-run --since last-release --out page.html
    """
    from vestige.release.changes import blocks_of
    from vestige.reports.card import write_card
    from vestige.reports.page import write_page

    several = [runs] if isinstance(runs, str | PathLike) else list(runs)
    paths = [fspath(run) for run in several]
    found = _changes(paths, [since] if isinstance(since, str | PathLike) else since)
    first = () if found is None else blocks_of(found)
    if Path(out).suffix != ".md":
        path = write_page(paths, Path(out), show_secrets=show_secrets, first=first)
    elif show_secrets:
        raise ValueError("`show_secrets` must be left out with a card, which is for everybody")
    else:
        path = write_card(paths, Path(out), first=first)
    return Page(path, len(several), show_secrets, None if found is None else tuple(found))


def _changes(runs: Sequence[str], since: Sequence[PathTo]) -> "list[Change] | None":
    from vestige import results
    from vestige.release.since import changes, earlier_runs

    if not since:
        return None
    now = [results.find(run) for run in runs]
    return changes(now, earlier_runs([fspath(one) for one in since], now))
