"""The report of a check: three lines of evidence, what was not tested, and what to do next."""

from collections.abc import Mapping
from typing import Any

from vestige.audits.check.verdict import TITLES
from vestige.claims import LEAK, NO_LEAK
from vestige.reports.blocks import Table, table
from vestige.reports.disclosure import disclose, printable
from vestige.reports.report import Report, lines
from vestige.reports.words import Row, pairs
from vestige.results import Run

SIGNS = {"leak": "✗", "clear": "✓", "open": "?", "not run": "–"}
MEANING = {
    LEAK: "Anyone who has this model can read training text from it: do not release it as it is.",
    NO_LEAK: "All three tests ran and detected their controls; they found none of your text.",
}
OPEN = "No leak is proven, and what was tested does not rule one out."
LIMITS = (
    "Other attacks may still succeed.",
    "Answers to a user's questions and samples at other temperatures were not tested.",
)


def check_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `ReleaseCheck`."""
    summary = run.summary
    return Report(
        title="Can this fine-tune be released?",
        answer=MEANING.get(summary["verdict"], OPEN),
        evidence=tuple(map(_line, summary["stages"])),
        notices=lines(*map(printable, summary["notes"])),
        blocks=tuple(_blocks(run, show_secrets)),
        facts=pairs(summary, show_secrets=show_secrets, left_out="stages|notes|positive"),
        limits=LIMITS,
    )


def _line(stage: Mapping[str, Any]) -> str:
    return printable(f"{SIGNS[stage['state']]} {TITLES[stage['name']]}: {stage['sentence']}")


def _blocks(run: Run, show_secrets: bool) -> list[Table]:
    rows: dict[str, list[Row]] = {name: [] for name in TITLES}
    for row in run.rows:
        rows[row["stage"]].append(row)

    def texts(found: list[Row], key: str) -> list[dict[str, Any]]:
        shown = disclose([row[key] for row in found], show_secrets=show_secrets)
        return [{**row, "shown": one} for row, one in zip(found, shown, strict=True)]

    return [
        table(
            "Secrets", texts(rows["secrets"], "text"),
            {"secret": lambda r: r["shown"], "kind": lambda r: r["kind"],
             "row": lambda r: r["row_number"], "texts": lambda r: r["texts"],
             "score": lambda r: r["score"], "rank": lambda r: f"{r['rank']:,} of {r['alternatives'] + 1:,}",
             "": lambda r: "verbatim" if r["verbatim"] else "known" if r["known"] else ""},
            texts=2,
        ),
        table(
            "Unprompted", texts(rows["unprompted"], "phrase"),
            {"phrase": lambda r: r["shown"], "match": lambda r: r["match"],
             "score": lambda r: r["score"]},
            texts=2,
        ),
        table(
            "Passages", rows["passages"],
            {"": lambda r: r["measured"], "training text": lambda r: _percent(r["trained"]),
             "reference": lambda r: _percent(r["never"]), "base": lambda r: _percent(r["base"])},
        ),
    ]  # fmt: skip


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f}%"
