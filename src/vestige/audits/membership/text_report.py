"""The report of an audit of texts: how many were used, which ones, and what remains open."""

from collections.abc import Iterable, Sequence

from vestige.claims import UNDECIDED
from vestige.reports.blocks import Prose, Table, file_note, table
from vestige.reports.charts import Figure, sorted_p_values
from vestige.reports.disclosure import disclose
from vestige.reports.report import Report, lines
from vestige.reports.words import NOTHING, Row, decimal, p_value, percent, whole
from vestige.results import Run

LISTED = 25
"""Texts that a page lists."""

UNDECIDED_SENTENCE = "A check failed, so these scores do not support a verdict."

METHOD = (
    "Each text has a score, high if the model knows it well, over its first tokens. Its p-value is "
    "how often a reference text, over as many tokens, scores as high. Texts are flagged by the "
    "procedure of Benjamini and Hochberg. A permutation test of whole texts, or of whole authors, "
    "compares the list with the reference. The lower bound counts texts above what the reference "
    "reaches. The upper bound depends on how far known members score above the reference."
)

ASKED = (
    "Whether {texts} were in the training data of a model, which of them, and how many at least "
    "and at most (a membership inference test)."
)

LISTS = {
    "texts": "the texts in question",
    "reference": "texts stated never to have been used",
    "used": "texts stated to have been used",
}

LIMITS = (
    "A p-value is not the probability that a text was used. It says how often an unused text "
    "would score as high.",
    "“No leak shown” excludes a list whose texts outrank those of the reference in 65 of 100 "
    "pairs. A few used texts among many others can remain undetected.",
    "A text that is not flagged can still have been used. Only the upper bound limits how many, "
    "and it holds if the known members are like the used texts: as often, at the same time of "
    "training, and of the same kind.",
    "Membership is of the words: a copy, a quotation or a near-duplicate in the training data "
    "counts too. The test does not say who supplied the text.",
    "All of this holds only for a reference of the same kind, source and time. The checks find "
    "differences in words, case, script and length; others can remain.",
    "Texts are compared over their first tokens: at most as many as half of the reference has.",
    "Repeating an audit with other scores or references until it finds something invalidates its "
    "error rate.",
)


def texts_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `TextAudit`."""
    summary = run.summary
    audited = in_order(run.rows)
    evidence = evidence_of(summary)
    return Report(
        kind="text-audit",
        title="Were these texts used?",
        evidence=evidence,
        notices=notices_of(summary),
        blocks=(
            _chart(audited, run.rows),
            text_table(audited, show_secrets=show_secrets),
            file_note(
                run.run,
                asked=ASKED.format(texts=_texts(summary)),
                models={"target": "the model", "base": "its base, stated not to have seen them"},
                data=LISTS,
                found=" ".join(evidence),
                unsaid=LIMITS,
            ),
            Prose(title="Method", lines=(METHOD,)),
        ),
        facts=tuple(_facts(summary)),
    )


def evidence_of(summary: Row) -> tuple[str, ...]:
    """The answer with its numbers, what supports it, and what it leaves open."""
    found = _used(summary) if int(summary["at_least"]) else _not_shown(summary)
    if summary["verdict"] != UNDECIDED:
        return found
    first, *rest = found
    return (UNDECIDED_SENTENCE, f"The scores alone would say: “{first}”", " ".join(rest))


def notices_of(summary: Row) -> tuple[str, ...]:
    """What to know before believing the answer."""
    return lines(_lengths(summary), _contradiction(summary), _few(summary))


def _used(summary: Row) -> tuple[str, ...]:
    least, most, listed = _bounds(summary)
    bounded = most is not None and most >= least
    rate, flagged = float(summary["rate"]), int(summary["named"])
    of, sure = f"{listed:,} {_listed(summary)}", _confidence(summary)
    number = (
        f"{least:,} to {most:,} of {of} were used ({sure} each)"
        if bounded
        else f"At least {least:,} of {of} {'was' if least == 1 else 'were'} used ({sure})"
    )
    flags = f"{flagged:,} flagged (false discovery rate {percent(rate)})"
    if not flagged:
        flags = "none flagged: no single text has a small enough p-value"
    return lines(f"{number}; {flags}.", _frequency(summary), "" if bounded else _no_upper(summary))


def _not_shown(summary: Row) -> tuple[str, ...]:
    _, most, listed = _bounds(summary)
    if most is not None and most < listed:
        of, sure = f"{listed:,} {_listed(summary)}", _confidence(summary)
        known = int(summary["known_used"])
        number = f"At most {most:,} of {of}" if most else f"None of {of}"
        return lines(
            f"{number} {'was' if most in (0, 1) else 'were'} used ({sure}); none flagged.",
            _frequency(summary),
            f"The bound holds for texts that were used like the {known:,} known members.",
        )
    return lines(
        f"The model does not know {_texts(summary)} better than texts it never saw "
        f"(p = {p_value(summary['p_value'])}); none flagged.",
        "This does not prove that they were not used.",
        _no_upper(summary),
    )


def _no_upper(summary: Row) -> str:
    if summary["at_most"] is None:
        return (
            "No upper bound: it needs some twenty texts that are known to have been used (--used)."
        )
    if not summary["consistent"]:
        return ""
    known = int(summary["known_used"])
    return f"No upper bound: the {known:,} known members do not score high enough."


def _frequency(summary: Row) -> str:
    p = float(summary["p_value"])
    lists = f"1 of {whole(round(1 / p))} such lists" if p < 0.5 else "most such lists"
    return f"Unused texts would score as high in {lists} (p = {p_value(p)})."


def _lengths(summary: Row) -> str:
    own, other = float(summary["texts_tokens"]), float(summary["reference_tokens"])
    if max(own, other) < 1.25 * min(own, other):
        return ""
    return (
        f"The texts have a median of {whole(own)} tokens, the reference {whole(other)}. Vestige "
        f"compares the first tokens, at most {int(summary['longest']):,}. This assumes that long "
        "texts begin like short ones."
    )


def _contradiction(summary: Row) -> str:
    if summary["consistent"]:
        return ""
    return (
        "The two bounds contradict each other: more texts score high than the known members allow. "
        "The known members are unlike the audited texts, and the upper bound is void."
    )


def _few(summary: Row) -> str:
    """How many texts must score above the whole reference before one is flagged."""
    if summary["named"] or summary["reference"] >= summary["reference_needed"]:
        return ""
    n, m, rate = int(summary["texts"]), int(summary["reference"]), float(summary["rate"])
    at_once = next((k for k in range(1, n + 1) if 1 / (m + 1) <= rate * k / n), n)
    if at_once < 2:
        return ""
    needed = int(summary["reference_needed"])
    return (
        f"With {m:,} reference texts, Vestige flags texts only if {at_once:,} score above all of "
        f"them; flagging a single text needs {needed:,}."
    )


def _bounds(summary: Row) -> tuple[int, int | None, int]:
    most = summary["at_most"] if summary["consistent"] else None
    return int(summary["at_least"]), None if most is None else int(most), int(summary["listed"])


def _listed(summary: Row) -> str:
    one = int(summary["listed"]) == 1
    if summary["units"] == "authors":
        return "author (one text)" if one else "authors (one text each)"
    return "text" if one else "texts"


def _texts(summary: Row) -> str:
    count = int(summary["texts"])
    return "this text" if count == 1 else f"these {count:,} texts"


def _confidence(summary: Row) -> str:
    return f"{100 * (1 - float(summary['rate'])):g}% confidence"


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Rows of the audited texts, the smallest p-value first."""
    audited = [row for row in rows if row["kind"] == "audited"]
    if not audited:
        raise ValueError("rows must hold at least one of the kind 'audited'")
    return sorted(audited, key=lambda row: (row["p_value"], -row["score"], row["number"]))


def _chart(audited: Sequence[Row], rows: Iterable[Row]) -> Figure:
    """Sorted p-values of the texts, and of the reference."""
    values = [float(row["p_value"]) for row in audited]
    flagged = [bool(row["named"]) for row in audited]
    rest = [float(row["p_value"]) for row in rows if row["kind"] == "reference"]
    return Figure(
        draw=lambda width: sorted_p_values(
            values, flagged, rest, of="texts, the smallest p-value first", width=width
        ),
        caption="P-values of the texts in order. If none was used, they lie along the dashed line. "
        "A disc is a flagged text. The thin line is the reference, each text compared with the "
        "others.",
        points=len(values),
        slim=True,
    )


def text_table(audited: Sequence[Row], *, show_secrets: bool) -> Table:
    """The texts with the smallest p-values."""
    more = len(audited) - LISTED
    return table(
        "Smallest p-values" + (f" ({more:,} more in the run folder)" if more > 0 else ""),
        audited[:LISTED],
        {
            "text": lambda row: _text(row, show_secrets=show_secrets),
            "flagged": lambda row: bool(row["named"]),
            "p-value": lambda row: p_value(row["p_value"]),
            "scored as high": _as_high,
            "score": lambda row: decimal(row["score"], 3),
            "tokens compared": _compared,
        },
    )


def _text(row: Row, *, show_secrets: bool) -> str:
    if not (show_secrets and row["text"]):
        return str(row["number"])
    return f"{row['number']} · {disclose([str(row['text'])], show_secrets=True)[0]}"


def _as_high(row: Row) -> str:
    others = int(row["compared_with"])
    reached = max(0, round(float(row["p_value"]) * (others + 1)) - 1)
    return f"{reached:,} of {others:,}"


def _compared(row: Row) -> str:
    used, length = int(row["compared_tokens"]), row["length"]
    return f"{used:,}" if length in (None, used) else f"{used:,} of {int(length):,}"


def _facts(summary: Row) -> list[tuple[str, str]]:
    listed, most, least = int(summary["listed"]), summary["at_most"], int(summary["at_least"])
    bound = NOTHING if most is None else f"{int(most):,} ({percent(int(most) / listed)})"
    return [
        ("flagged", f"{int(summary['named']):,} of {int(summary['texts']):,}"),
        ("used, at least", f"{least:,} ({percent(least / listed)})"),
        ("used, at most", bound),
        ("AUC", decimal(summary["auc"])),
        ("p-value", p_value(summary["p_value"])),
        ("p-value of the permutation test", p_value(summary["list_p_value"])),
        ("alpha", f"{float(summary['rate']):g}"),
        ("reference texts", whole(int(summary["reference"]))),
        ("known members", whole(int(summary["known_used"]))),
        ("score", str(summary["score"])),
    ]
