"""`vestige complete`: rates of completion and the canaries completed, or own secrets."""

from typing import TYPE_CHECKING

from vestige.cli.verbs import Output, Verb
from vestige.workflows.complete import complete

if TYPE_CHECKING:
    from vestige.attacks.exposure.completion import Completion
    from vestige.attacks.exposure.secret_completion import SecretCompletion

LISTED = 20
"""Completed canaries that the terminal names; the run directory has them all."""


def _show(found: "Completion | SecretCompletion", output: Output) -> None:
    from vestige.attacks.exposure.secret_completion import SecretCompletion

    if isinstance(found, SecretCompletion):
        _show_secrets(found, output.show_secrets)
    else:
        _show_canaries(found, output)


def _show_secrets(found: "SecretCompletion", show_secrets: bool) -> None:
    from vestige.cli.terminal import show_table
    from vestige.reports.completed_secrets import COLUMNS, completed_table

    rows = list(found.rows())
    show_table("Secrets", list(COLUMNS), completed_table(rows, show_secrets=show_secrets))
    print(found.sentence)


def _show_canaries(found: "Completion", output: Output) -> None:
    from vestige.cli.terminal import show_table
    from vestige.reports.completion import COLUMNS, completion_table, describe_completion
    from vestige.reports.disclosure import disclose

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
