"""`vestige complete`: rates of completion, and the canaries that were completed."""

from typing import TYPE_CHECKING

from vestige.cli.verbs import Output, Verb
from vestige.workflows.complete import complete

if TYPE_CHECKING:
    from vestige.attacks.exposure.completion import Completion

LISTED = 20
"""Completed canaries that the terminal names; the run directory has them all."""


def _show(found: "Completion", output: Output) -> None:
    from vestige.cli.terminal import show_table
    from vestige.reports.completion import COLUMNS, completion_table, describe_completion
    from vestige.reports.components.disclosure import disclose

    table = completion_table(list(found.rows()), confidence=found.confidence)
    show_table("Canaries completed, by copies planted", COLUMNS, table)
    done = [one for one in found.attempts if one.kind == "canary" and one.greedy][:LISTED]
    if done:
        shown = disclose([one.phrase for one in done], show_secrets=output.show_secrets)
        rows = [
            (one.canary, phrase, one.copies, one.prefix_needed)
            for one, phrase in zip(done, shown, strict=True)
        ]
        show_table("Completed", ["canary", "phrase", "copies", "prefix needed"], rows)
    print(describe_completion(found.summary()))


VERB = Verb(complete, show=_show)
