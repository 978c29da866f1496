"""`vestige demo`: the page, and what the update gave away."""

from pathlib import Path
from typing import TYPE_CHECKING

from vestige.cli.verbs import JSON, Output, Verb
from vestige.workflows.demo import SECRET, demo

if TYPE_CHECKING:
    from vestige.attacks.update.diff_result import UpdateDiff

PAGE = "report.html"
SHOWN = 10
"""Phrases on the terminal."""


def _save(found: "UpdateDiff", out: Path) -> None:
    from vestige.reports.page import write_page

    write_page([out / "run"], out / PAGE, show_secrets=True)


def _summary(found: "UpdateDiff", output: Output) -> dict[str, object]:
    seconds = found.record["configuration"]["seconds"]
    return {**found.summary(), "page": str(output.out / PAGE), "seconds": seconds}


def _show(found: "UpdateDiff", output: Output) -> None:
    from vestige.cli.terminal import say, show_table
    from vestige.reports.disclosure import running_text

    phrases = [finding for finding in found.findings if not finding.run][:SHOWN]
    cells = [(f.score, running_text(f.pieces, f.phrase, show_secrets=True)) for f in phrases]
    show_table("What the update gave away", ["score", "phrase"], cells)
    say(f"The secret was: {SECRET}")
    say(f"{found.record['configuration']['seconds']:.0f} seconds in all. The page:")
    print(output.out / PAGE)


VERB = Verb(
    demo, show=_show, outputs=(JSON,), save=_save, summary_of=_summary,
    code_of=lambda found: 0,  # it shows a leak that was planted: that is success
)  # fmt: skip
