"""`vestige verify-deletion`: whether a model still knows texts that were deleted from it."""

from typing import TYPE_CHECKING

from vestige.cli.verbs import JSON, SHOW_SECRETS, Output, Verb
from vestige.workflows.verify_deletion import verify_deletion

if TYPE_CHECKING:
    from vestige.attacks.texts.deletion import Deletion


def _show(found: "Deletion", output: Output) -> None:
    from vestige.cli.terminal import say, show_table
    from vestige.reports.deletion import PAIR, answer, knowledge, text_table

    summary = found.summary()
    for sentence in answer(summary):
        print(sentence)
    for table in (
        knowledge(summary),
        text_table(list(found.rows()), show_secrets=output.show_secrets),
    ):
        show_table(table.title, list(table.columns), table.rows)
    say(PAIR)
    if not output.show_secrets:
        say(
            "Texts are identified by their number in the file; --show-secrets shows how they begin."
        )
    out = output.out
    say(f"Run directory: {out}. A page from it: vestige report {out} --out page.html")


VERB = Verb(verify_deletion, show=_show, outputs=(JSON, SHOW_SECRETS), required=("out",))
