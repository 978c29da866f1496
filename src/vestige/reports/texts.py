"""An audit of texts: what can be claimed of the list, of each text, and what cannot.

The terminal shows the same words.
"""

from collections.abc import Sequence

from vestige.claims import UNDECIDED
from vestige.reports.audit.charts import sorted_p_values
from vestige.reports.audit.words import p_value
from vestige.reports.blocks import Prose
from vestige.reports.charts import Figure
from vestige.reports.disclosure import disclose
from vestige.reports.file_note import file_note
from vestige.reports.numbers import NOTHING, Row, decimal, percent, whole
from vestige.reports.report import Report, lines
from vestige.reports.tables import Table
from vestige.results import Run

COLUMNS = ("text", "named", "p-value", "score as high", "score", "tokens compared")
LISTED = 25
"""Texts that a page lists one by one."""

NOTHING_SAID = "Nothing can be said of these texts: a check did not pass."

METHOD = (
    "Each text has a score, high where the model knows it well, over its first tokens. The p-value "
    "of a text is how often a text of the reference, over exactly as many tokens, scores as high. "
    "Texts are named by Benjamini and Hochberg’s procedure. The list as a whole is compared with "
    "the reference by dealing whole texts, or whole authors where they were told, at random to "
    "both sides. How many were used at least follows from how many stand above what the reference "
    "reaches; how many at most, from how far texts that are known to have been used stand above it."
)

ASKED = (
    "Whether {texts} were among the training data of a model, which of them, and how many at least "
    "and at most, by how well the model knows them beside texts that it never saw (a membership "
    "inference test)."
)

LISTS = {
    "texts": "the texts in question",
    "reference": "texts stated never to have been used",
    "used": "texts stated to have been used",
}

LIMITS = (
    "A p-value is not the chance that a text was used. It says how often a text that was not used "
    "would score as high.",
    "“No leak shown” excludes a list whose texts outrank those of the reference in 65 of 100 "
    "pairs. A few used texts among many others can remain unnoticed.",
    "A text that is not named is not thereby excluded. Only the upper bound says how many can have "
    "been used, and it holds where the texts known to have been used are like those that were: as "
    "often, at the same time of training, and of the same kind.",
    "Membership is of the words: a copy, a quotation or a near-duplicate in the training data "
    "counts as well, and nothing is said about who gave the text.",
    "All of it holds only against a reference of the same kind, source and time. The checks find "
    "differences in words, case, script and length; others can remain.",
    "Texts are compared over their first tokens, no more than half of the reference has.",
    "An audit that is repeated with other scores or references until it says yes says nothing.",
)


def answer(summary: Row) -> tuple[str, str]:
    """The answer, its numbers first, and what it rests on and leaves open."""
    first, because = _used(summary) if int(summary["at_least"]) else _not_shown(summary)
    if summary["verdict"] != UNDECIDED:
        return first, because
    return NOTHING_SAID, f"The scores alone would say: “{first}” {because}"


def notices(summary: Row) -> tuple[str, ...]:
    """What to know before believing the answer."""
    told = [_lengths(summary), _inconsistent(summary), _few(summary)]
    return tuple(filter(None, told))


def _used(summary: Row) -> tuple[str, str]:
    least, most, listed = _bounds(summary)
    up_to = "" if most is None or most < least else f" and at most {most:,}"
    of = f"{listed:,} {_listed(summary)}"
    rate, named = float(summary["rate"]), int(summary["named"])
    first = f"At least {least:,}{up_to} of {of} {_were(least)} used ({_sure(summary)})."
    if named:
        which = (
            f"{named:,} of {_texts(summary)} {'is' if named == 1 else 'are'} named; of texts that "
            f"are named so, {_in_a_hundred(rate)} or fewer were not used, on average, and one that "
            "is not named is not thereby excluded."
        )
    else:
        which = "Which ones cannot be said: none stands out enough by itself."
    return first, f"{which} {_chance(summary)}{'' if up_to else ' ' + _no_upper(summary)}"


def _not_shown(summary: Row) -> tuple[str, str]:
    _, most, listed = _bounds(summary)
    if most is not None and most < listed:
        of = f"{listed:,} {_listed(summary)}"
        first = (
            f"None of {of} was used ({_sure(summary)})."
            if not most
            else f"At most {most:,} of {of} {_were(most)} used ({_sure(summary)}), and none is "
            "shown to have been."
        )
        return first, (
            f"{_chance(summary)} The bound rests on {int(summary['known_used']):,} texts known to "
            "have been used, and holds for texts that were used as they were."
        )
    first = (
        f"The model knows {_texts(summary)} no better than texts that it never saw "
        f"(p = {p_value(float(summary['p_value']))})."
    )
    return first, f"That does not prove that they were not used. {_no_upper(summary)}"


def _no_upper(summary: Row) -> str:
    if summary["at_most"] is None:
        return (
            "How many were used at most cannot be said: it takes texts that are known to have been "
            "used, some twenty or more (--used)."
        )
    if not summary["consistent"]:
        return ""
    return (
        f"All of them can have been used: the {int(summary['known_used']):,} texts known to have "
        "been used do not stand out enough either."
    )


def _chance(summary: Row) -> str:
    return (
        f"Texts that were not used would stand out as much in {_times(float(summary['p_value']))} "
        f"(p = {p_value(float(summary['p_value']))})."
    )


def _times(p: float) -> str:
    return f"one of {whole(round(1 / p))} such lists" if p < 0.5 else "most such lists"


def _lengths(summary: Row) -> str:
    own, other = float(summary["texts_tokens"]), float(summary["reference_tokens"])
    longest = int(summary["longest"])
    if max(own, other) < 1.25 * min(own, other):
        return ""
    return (
        f"The texts have {whole(own)} tokens in the median, those of the reference {whole(other)}. "
        f"They are compared over as many tokens, {longest:,} at most; that supposes that long "
        "texts begin as short ones do."
    )


def _inconsistent(summary: Row) -> str:
    if summary["consistent"]:
        return ""
    return (
        "The two bounds contradict each other: texts that stand out are more than those known to "
        "have been used allow for. These are unlike the audited ones, and the upper bound is void."
    )


def _few(summary: Row) -> str:
    """How many texts must stand out at once before one is named."""
    if summary["named"] or summary["reference"] >= summary["reference_needed"]:
        return ""
    n, m, rate = int(summary["texts"]), int(summary["reference"]), float(summary["rate"])
    at_once = next((k for k in range(1, n + 1) if 1 / (m + 1) <= rate * k / n), n)
    if at_once < 2:
        return ""
    return (
        f"With {m:,} texts of reference no text is named before {at_once:,} stand above all of "
        f"them at once; {int(summary['reference_needed']):,} would do to name one."
    )


def _bounds(summary: Row) -> tuple[int, int | None, int]:
    most = summary["at_most"] if summary["consistent"] else None
    return int(summary["at_least"]), None if most is None else int(most), int(summary["listed"])


def _listed(summary: Row) -> str:
    one = int(summary["listed"]) == 1
    if summary["units"] == "authors":
        return "author’s texts" if one else "authors’ texts, one drawn of each,"
    return "text" if one else "texts"


def _texts(summary: Row) -> str:
    count = int(summary["texts"])
    return "this text" if count == 1 else f"these {count:,} texts"


def _sure(summary: Row) -> str:
    share = 100 * (1 - float(summary["rate"]))
    return f"{share:g} % confidence"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _in_a_hundred(rate: float) -> str:
    return f"{100 * rate:g} in 100"


def texts_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `TextAudit`."""
    summary = run.summary
    audited = ordered(run.rows)
    first, because = answer(summary)
    p_values, named = [float(r["p_value"]) for r in audited], [bool(r["named"]) for r in audited]
    rest = [float(row["p_value"]) for row in run.rows if row["kind"] == "reference"]
    figure = Figure(
        draw=lambda width: sorted_p_values(
            p_values, named, rest, of="texts, the smallest p-value first", width=width
        ),
        caption="P-values of the texts, the smallest first: if none was used they lie along the "
        "dashed line. A disc is a text that is named; the thin line is the reference, each text of "
        "it against the rest.",
        points=len(p_values),
        slim=True,
    )
    return Report(
        kind="text-audit",
        title="Were these texts used?",
        evidence=lines(first, because),
        notices=notices(summary),
        blocks=(
            figure,
            text_table(audited, show_secrets=show_secrets),
            file_note(
                run.run,
                asked=ASKED.format(texts=_texts(summary)),
                models={"target": "the model", "base": "its base, stated not to have seen them"},
                data=LISTS,
                found=f"{first} {because}",
                unsaid=LIMITS,
            ),
            Prose(title="How it was measured", lines=(METHOD,)),
        ),
        facts=tuple(_numbers(summary)),
    )


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Rows of the audited texts, the smallest p-value first."""
    audited = [row for row in rows if row["kind"] == "audited"]
    if not audited:
        raise ValueError("rows must hold at least one of the kind 'audited'")
    return sorted(audited, key=lambda row: (row["p_value"], -row["score"], row["number"]))


def text_table(audited: Sequence[Row], *, show_secrets: bool, most: int = LISTED) -> Table:
    """The texts that stand out most, one a row."""
    left = len(audited) - most
    title = "Texts, the smallest p-value first"
    return Table(
        title=title + (f" ({left:,} more are in the run directory)" if left > 0 else ""),
        columns=COLUMNS,
        texts=1,
        rows=tuple(_cells(row, show_secrets) for row in audited[:most]),
    )


def _cells(row: Row, show_secrets: bool) -> tuple[str, ...]:
    excerpt = str(row["text"] or "")
    told = disclose([excerpt], show_secrets=True)[0] if show_secrets else ""
    others, used, length = int(row["compared_with"]), int(row["compared_tokens"]), row["length"]
    reached = max(0, round(float(row["p_value"]) * (others + 1)) - 1)
    return (
        f"{row['number']} · {told}" if told else str(row["number"]),
        "yes" if row["named"] else "no",
        p_value(float(row["p_value"])),
        f"{reached:,} of {others:,}",
        decimal(row["score"], 3),
        f"{used:,}" if length in (None, used) else f"{used:,} of {int(length):,}",
    )


def _numbers(summary: Row) -> list[tuple[str, str]]:
    listed, most = int(summary["listed"]), summary["at_most"]
    bound = NOTHING if most is None else f"{int(most):,} ({percent(int(most) / listed)})"
    least = int(summary["at_least"])
    return [
        ("answer", str(summary["verdict"])),
        ("texts named", f"{int(summary['named']):,} of {int(summary['texts']):,}"),
        ("used at least", f"{least:,} ({percent(least / listed)})"),
        ("used at most", bound),
        ("AUC of all", decimal(summary["auc"])),
        ("p-value of all", p_value(float(summary["p_value"]))),
        ("p-value of the list test", p_value(float(summary["list_p_value"]))),
        ("limit set before", f"{float(summary['rate']):g}"),
        ("texts of reference", whole(int(summary["reference"]))),
        ("texts known to have been used", whole(int(summary["known_used"]))),
        ("score", str(summary["score"])),
    ]
