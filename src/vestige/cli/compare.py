"""`vestige compare`: the table of defences, the answer, and a page of both."""

from pathlib import Path
from typing import TYPE_CHECKING

from vestige.cli.verbs import JSON, OUT, Output, Verb
from vestige.workflows.compare import compare

if TYPE_CHECKING:
    from vestige.defences.comparison import DefenceComparison

PAGE = "page.html"


def _save(found: "DefenceComparison", out: Path) -> None:
    """The run directory and its page, both or neither."""
    from vestige import results
    from vestige.reports.page import write_page

    with results.new_directory(out) as partial:
        results.save(found, partial / "run", run=found.record)
        write_page([partial / "run"], partial / PAGE, show_secrets=False)


def _summary(found: "DefenceComparison", output: Output) -> dict[str, object]:
    return {**found.summary(), "page": str(output.out / PAGE)}


def _show(found: "DefenceComparison", output: Output) -> None:
    from vestige.cli.terminal import say, show_table
    from vestige.reports.comparison.cells import terminal_table
    from vestige.reports.disclosure import printable

    show_table("Defences compared", *terminal_table(found.rows()))
    for note in found.notes:
        say(note)
    print(printable(" ".join(found.answer)))
    say(f"Run directory: {output.out / 'run'}. The page:")
    print(output.out / PAGE)


VERB = Verb(compare, show=_show, outputs=(OUT, JSON), save=_save, summary_of=_summary)
