"""`vestige diff`: promoted phrases in a table, and the verdict."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vestige.cli.verbs import Output, Verb
from vestige.workflows.diff import diff

if TYPE_CHECKING:
    from vestige.attacks.update.update_diff import Finding, UpdateDiff

SHOWN = 20
"""Phrases on the terminal; the run directory holds them all."""


def _show(found: "UpdateDiff", output: Output) -> None:
    from vestige.cli.terminal import say, show_table
    from vestige.reports.diff import EXTRAPOLATED, verdict

    phrases = [finding for finding in found.findings if not finding.run]
    listed = phrases or found.fragments
    title = "Promoted phrases" if phrases else "Fragments, not distinguishable from chance"
    if listed:
        show_table(title, *_table(found, listed[:SHOWN], output.show_secrets))
    if len(listed) > SHOWN:
        say(f"… and {len(listed) - SHOWN} more in the run directory.")
    say(verdict(found.summary()))
    if any(row["extrapolated_e_value"] is not None for row in found.rows()):
        say(EXTRAPOLATED)
    if listed and not output.show_secrets:
        say("Letters are withheld; --show-secrets shows them.")


def _table(
    found: "UpdateDiff", listed: "Sequence[Finding]", show_secrets: bool
) -> tuple[list[str], list[list[object]]]:
    """Columns and cells; what null searches say stands there where there were any."""
    from vestige.reports.components.disclosure import running_text
    from vestige.reports.diff import reached

    nulls = found.nulls if found.findings else None
    columns, cells = ["score", "phrase"], []
    if nulls is not None:
        columns[1:1] = ["E-value", "extrapolated", "nulls as high", "verdict"]
    for finding in listed:
        text = running_text(finding.pieces, finding.phrase, show_secrets=show_secrets)
        row: list[object] = [finding.score, text]
        if nulls is not None:
            verdicts = {True: "found", False: "chance may", None: "–"}
            row[1:1] = [
                f"{nulls.e_value(finding.score):.2g}",
                _short(nulls.extrapolated_e_value(finding.score)),
                reached(nulls.reached(finding.score), len(nulls)),
                verdicts[nulls.found(finding.score)],
            ]
        cells.append(row)
    return columns, cells


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.1g}"


VERB = Verb(diff, show=_show)
