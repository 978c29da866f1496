"""`vestige extract-nlu`: guesses or ranks, and what they come to."""

from dataclasses import replace
from typing import TYPE_CHECKING

from annotated_types import Ge, Le

from vestige.cli.help import added
from vestige.cli.verbs import JSON, OUT, SHOW_SECRETS, Output, Verb
from vestige.workflows.extract_nlu import extract_nlu

if TYPE_CHECKING:
    from vestige.attacks.extraction.extraction_result import Extraction
    from vestige.attacks.extraction.secret_audit import SecretAudit

TOP = added(
    "top", "How many of the best guesses to show.",
    type=int, default=10, group=OUT.group, bounds=(Ge(1), Le(10)),
)  # fmt: skip
OUTPUTS = (
    replace(
        OUT, default=None, help="A run directory to make, for `vestige report`; it must not exist."
    ),
    JSON,
    replace(SHOW_SECRETS, help="Show the guesses in the clear; else they are blocks."),
    TOP,
)


def _show(found: "Extraction | SecretAudit", output: Output) -> None:
    from vestige.attacks.extraction.secret_audit import SecretAudit
    from vestige.cli.terminal import say, show_table
    from vestige.reports.extraction.tables import group_listing, guess_listing, trial_listing
    from vestige.reports.extraction.words import describe_audit, describe_extraction, entries

    summary, secrets = found.summary(), output.show_secrets
    rows = entries(list(found.rows()), summary)
    trials = trial_listing(rows, show_secrets=secrets)
    if isinstance(found, SecretAudit):
        listings, said = [group_listing(rows), trials], describe_audit(rows, summary)
    else:
        best = guess_listing(rows[0], show_secrets=secrets, most=output.more["top"])
        listings, said = [trials, best], describe_extraction(rows, summary)
    for listing in listings:
        show_table(listing.title, listing.columns, listing.rows)
    for sentence in said:
        print(sentence)
    if not secrets:
        say("Guesses are blocks: --show-secrets shows them")


VERB = Verb(extract_nlu, show=_show, outputs=OUTPUTS)
