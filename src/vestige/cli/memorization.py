"""`vestige memorization`: how much of its training texts a model gives back."""

from typing import TYPE_CHECKING

from vestige.cli.verbs import JSON, SHOW_SECRETS, Output, Verb
from vestige.workflows.memorization import memorization

if TYPE_CHECKING:
    from vestige.attacks.texts.text_memorization import TextMemorization


def _show(found: "TextMemorization", output: Output) -> None:
    from vestige.cli.terminal import say, show_table
    from vestige.reports.memorization import answer, measures, text_table

    summary = found.summary()
    for sentence in answer(summary):
        print(sentence)
    for table in (
        measures(summary),
        text_table(list(found.rows()), show_secrets=output.show_secrets),
    ):
        show_table(table.title, list(table.columns), table.rows)
    if not output.show_secrets:
        say(
            "Texts are identified by their number in the file; --show-secrets shows how they begin."
        )
    out = output.out
    say(f"Run directory: {out}. A page from it: vestige report {out} --out page.html")


VERB = Verb(memorization, show=_show, outputs=(JSON, SHOW_SECRETS), required=("out",))
