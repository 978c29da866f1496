"""`vestige plant`: the canaries, and the seal of their manifest."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from vestige.cli.verbs import JSON, SHOW_SECRETS, Output, Verb
from vestige.workflows.plant import Planting, plant

LISTED = 40
"""Canaries that the terminal names one by one; the manifest has them all."""


def _show(planting: Planting, output: Output) -> None:
    from vestige.cli.terminal import say

    sha256 = planting.manifest.sha256
    if planting.verified:
        say(f"{planting.directory} is as it was sealed: SHA-256 {sha256}")
        return
    _show_canaries(planting, output.show_secrets)
    say(f"Planted copy and sealed manifest: {planting.directory} (SHA-256 {sha256[:12]}…)")


def _show_canaries(planting: Planting, show_secrets: bool) -> None:
    """A table of the first canaries and, where there are more, how many have how many copies."""
    from vestige.cli.terminal import show_table
    from vestige.reports.disclosure import disclose

    rows: list[dict[str, Any]] = list(planting.rows())
    copies = [row["copies"] or "control" for row in rows]
    if planting.labelled:
        columns = ["pattern", "intent", "secret", "copies", "of them validation"]
        cells: Sequence[Sequence[object]] = [
            (row["pattern"], row["intent"], " ".join(shown), number, row["validation"])
            for row, number in zip(rows[:LISTED], copies, strict=False)
            for shown in [disclose(row["secret"], show_secrets=show_secrets)]
        ]
    else:
        columns = ["phrase", "pattern", "copies"]
        phrases = disclose([row["phrase"] for row in rows[:LISTED]], show_secrets=show_secrets)
        cells = [
            (phrase, row["pattern"], number)
            for phrase, row, number in zip(phrases, rows, copies, strict=False)
        ]
    show_table("Canaries", columns, cells)
    if len(rows) > LISTED:
        number_of = Counter(row["copies"] for row in rows)
        counts = [(many or "control", number_of[many]) for many in sorted(number_of)]
        show_table(f"All {len(rows):,}", ["copies", "canaries"], counts)


VERB = Verb(plant, show=_show, outputs=(JSON, SHOW_SECRETS), required=("out",), unless="verify")
