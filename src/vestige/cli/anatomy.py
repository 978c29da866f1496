"""`vestige anatomy`: the tables of its three figures, and what they come to."""

from typing import TYPE_CHECKING

from vestige.cli.verbs import JSON, OUT, Output, Verb
from vestige.workflows.anatomy import anatomy

if TYPE_CHECKING:
    from vestige.attacks.anatomy.memorization_result import Anatomy


def _show(found: "Anatomy", output: Output) -> None:
    from vestige.cli.terminal import show_table
    from vestige.reports.anatomy.words import describe_anatomy, listings

    for listing in listings(list(found.rows()), found.summary()):
        show_table(listing.title, listing.columns, listing.rows)
    print(" ".join(describe_anatomy(found.summary())))


VERB = Verb(anatomy, show=_show, outputs=(OUT, JSON))
