"""`vestige audit-texts`: which texts were in a model's training data, and how many."""

from typing import TYPE_CHECKING

from vestige.cli.verbs import JSON, SHOW_SECRETS, Output, Verb
from vestige.workflows.audit_texts import audit_texts

if TYPE_CHECKING:
    from vestige.attacks.texts.text_audit import TextAudit


def _show(found: "TextAudit", output: Output) -> None:
    from vestige.cli.terminal import say, show_table
    from vestige.reports.texts import answer, notices, ordered, text_table

    summary = found.summary()
    for sentence in (*answer(summary), *notices(summary)):
        print(sentence)
    table = text_table(ordered(list(found.rows())), show_secrets=output.show_secrets)
    show_table(table.title, list(table.columns), table.rows)
    if not output.show_secrets:
        say("Texts are told by their number in the file; --show-secrets shows how they begin.")
    out = output.out
    say(f"Run directory: {out}. A page from it: vestige report {out} --out page.html")


VERB = Verb(audit_texts, show=_show, outputs=(JSON, SHOW_SECRETS), required=("out",))
