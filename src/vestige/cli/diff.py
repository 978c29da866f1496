"""`vestige diff`: promoted phrases and listed secrets in tables."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vestige.cli.verbs import JSON, SHOW_SECRETS, Output, Verb
from vestige.workflows.diff import diff

if TYPE_CHECKING:
    from vestige.attacks.update.diff_result import UpdateDiff

SHOWN = 20
"""Phrases on the terminal; the run directory holds them all."""

Row = Mapping[str, Any]
TITLES = {"phrase": "Promoted phrases", "fragment": "Other samples, not tested"}


def _show(found: "UpdateDiff", output: Output) -> None:
    from vestige.cli.terminal import say, show_table
    from vestige.reports.diff import EXTRAPOLATED, KNOWN, listed, searched
    from vestige.reports.diff import known as known_line

    summary, rows = found.summary(), list(found.rows())
    shown = _listed(rows)
    if shown:
        title = TITLES[str(shown[0]["kind"])]
        show_table(title, *_table(found, shown[:SHOWN], output.show_secrets))
    if len(shown) > SHOWN:
        say(f"… and {len(shown) - SHOWN} more in the run directory.")
    known = [row for row in rows if row["kind"] == "known"]
    if known:
        show_table(KNOWN, *_known(known, output.show_secrets))
    say(listed(summary))
    if known:
        say(known_line(summary))
    if told := searched(summary):
        say(told)
    if any(row["extrapolated_e_value"] is not None for row in rows):
        say(EXTRAPOLATED)
    if (shown or known) and not output.show_secrets:
        say("Texts are redacted; --show-secrets shows them.")
    out = output.out
    say(f"Run directory: {out}. A page from it: vestige report {out} --out page.html")


def _listed(rows: Sequence[Row]) -> list[Row]:
    """Phrases, or fragments where there are none."""
    by_kind = ([row for row in rows if row["kind"] == kind] for kind in TITLES)
    return next(filter(None, by_kind), [])


def _table(
    found: "UpdateDiff", listed: Sequence[Row], show_secrets: bool
) -> tuple[list[str], list[list[object]]]:
    """Columns and cells; what null searches say stands there where there were any."""
    from vestige.reports.diff import reached, source

    nulls = 0 if found.nulls is None or listed[0]["e_value"] is None else len(found.nulls)
    columns, cells = ["score", "found by", "phrase"], []
    if nulls:
        columns[1:1] = ["E-value", "extrapolated", "nulls as high", "verdict"]
    for row in listed:
        cell: list[object] = [row["score"], source(row), _text(row, show_secrets)]
        if nulls:
            verdicts = {True: "found", False: "not found", None: "–"}
            cell[1:1] = [
                f"{row['e_value']:.2g}",
                _short(row["extrapolated_e_value"]),
                reached(row["reached_by"], nulls),
                verdicts[row["found"]],
            ]
        cells.append(cell)
    return columns, cells


def _known(known: Sequence[Row], show_secrets: bool) -> tuple[list[str], list[list[object]]]:
    """One row a phrase that was asked for."""
    from vestige.reports.diff import told_in

    columns = ["score", "p-value", "highest", "found by the search", "generated in", "secret"]
    cells: list[list[object]] = [
        [
            row["score"],
            _short(row["p_adjusted"]),
            row["place"],
            told_in(row),
            f"{row['generated_in']} texts",
            _text(row, show_secrets),
        ]
        for row in known
    ]
    return columns, cells


def _text(row: Row, show_secrets: bool) -> str:
    from vestige.reports.disclosure import disclose, running_text

    text = running_text(row["pieces"], row["phrase"], show_secrets=show_secrets)
    behind = disclose([row["lead"].strip()], show_secrets=show_secrets)[0]
    return f"({behind}) {text}" if behind else text


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


VERB = Verb(diff, show=_show, outputs=(JSON, SHOW_SECRETS), required=("out",))
