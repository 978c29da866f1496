"""Whether deleted texts are still known: the answer, what each model knows, and what is left.

The terminal shows the same words.
"""

from collections.abc import Sequence

from vestige.reports.audit.charts import two_groups
from vestige.reports.audit.words import p_value
from vestige.reports.components.charts import Figure
from vestige.reports.components.disclosure import disclose
from vestige.reports.components.evidence import evidence
from vestige.reports.components.findings import Prose
from vestige.reports.components.numbers import NOTHING, Row, decimal, percent
from vestige.reports.components.table import Table
from vestige.reports.section import KINDS, Section
from vestige.results import Run

LISTED = 25
"""Texts that a page lists one by one."""

PAIR = (
    "What the two models reveal together, though neither does alone: vestige diff BEFORE AFTER "
    "--removed --out pair."
)

METHOD = (
    "Each text counts with the mean log-probability of its first tokens, over at most as many on "
    "both sides. What a model knows of the deleted texts is their mean less that of texts that it "
    "never saw; of a retrained model, where there is one, it is subtracted text by text. P-values "
    "deal whole texts at random to both sides; the share left is a ratio of two such differences "
    "over the same texts, with Fieller’s interval."
)

LIMITS = (
    "That a remainder is not shown does not prove that nothing is left: the interval of what is "
    "left says how much could be.",
    "All of it holds only against a reference of the same kind, source and time as the deleted "
    "texts, that none of the models saw. A classifier of words checks that, and cannot see all.",
    "The p-value speaks of the deleted texts as a whole. One of them may be known by heart where "
    "the mean shows nothing: vestige memorization asks for each.",
    "A model that hides what it knows until it is trained on, or asked otherwise, is not seen "
    "through.",
)


ASKED = (
    "Whether a model still knows {texts} better than texts that it never saw, and how much of what "
    "it knew before the deletion is left."
)


def answer(summary: Row) -> tuple[str, str]:
    """The answer, its number first, then what it means and what it leaves open."""
    verdict = summary["verdict"]
    if verdict == "not decided":
        return (
            "Not decided: the deleted texts differ from the reference in more than membership.",
            "A classifier that knows no model tells them apart by their words "
            f"(AUC {decimal(summary['shift_auc'])}). Take a reference of the same source, topics "
            f"and time, or give a retrained model (--retrained). Otherwise it would have read: "
            f"“{_answer(summary)[0]}”",
        )
    return _answer(summary)


def _answer(summary: Row) -> tuple[str, str]:
    half = float(summary["rate"]) / 2
    p, less = float(summary["p_value"]), float(summary["less_p_value"])
    texts = f"the {int(summary['deleted']):,} deleted texts"
    than = f"{int(summary['reference']):,} that it never saw"
    if summary["with_retrained"]:
        than += ", and than the retrained model does"
    if p <= half:
        return (
            f"{_left(summary)}AFTER still knows {texts} better than {than} (p = {p_value(p)}).",
            "They are not gone. That does not say that one of them can be read out: vestige "
            "memorization asks.",
        )
    if less <= half:
        return (
            f"AFTER knows {texts} less than {than} (p = {p_value(less)}).",
            "That tells them apart from texts that were never there: they were suppressed, not "
            "deleted, and whoever has the model can see that they once were in it.",
        )
    return (
        f"{_left(summary)}It is not shown that AFTER knows {texts} better than {than} "
        f"(p = {p_value(p)}).",
        _could(summary),
    )


def _left(summary: Row) -> str:
    if summary["left"] is None:
        return ""
    ends = f"{_share(summary['left_low'])} to {_share(summary['left_high'])}"
    return f"{_share(summary['left'])} of what BEFORE knew is left ({ends}, 95 % confidence). "


def _share(value: float) -> str:
    """In percent; below 0 where AFTER knows less than nothing."""
    return f"{100 * value:.0f} %"


def _could(summary: Row) -> str:
    if summary["left"] is not None:
        return (
            "That does not prove that nothing is left: the interval says how much could be, up to "
            f"{_share(max(0.0, summary['left_high']))} of what BEFORE knew."
        )
    return (
        "It is not shown either that BEFORE knew them "
        f"(p = {p_value(float(summary['before_p_value']))}), so this could not have shown a "
        "deletion. More deleted texts, more reference or a retrained model (--retrained) would."
    )


def knowledge(summary: Row) -> Table:
    """What each model knows of the deleted texts."""
    names = {"before": "BEFORE", "after": "AFTER", "retrained": "retrained"}
    beyond = ", beyond the retrained model" if summary["with_retrained"] else ""
    return Table(
        title="What each model knows of the deleted texts beyond others, nats a token",
        columns=("model", "knows", "95 % interval"),
        rows=tuple(
            (
                f"{title}{beyond if name != 'retrained' else ''}",
                decimal(summary[f"{name}_knows"], 3),
                f"{decimal(summary[f'{name}_knows_low'], 3)} to "
                f"{decimal(summary[f'{name}_knows_high'], 3)}",
            )
            for name, title in names.items()
            if summary[f"{name}_knows"] is not None
        ),
    )


def text_table(rows: Sequence[Row], *, show_secrets: bool, most: int = LISTED) -> Table:
    """The deleted texts that AFTER knows best, one a row."""
    own = sorted(
        (row for row in rows if row["kind"] == "deleted"),
        key=lambda row: (-row["after"], row["number"]),
    )
    others = [row["after"] for row in rows if row["kind"] == "reference"]
    left = len(own) - most
    return Table(
        title="Deleted texts, those that AFTER knows best first"
        + (f" ({left:,} more are in the run directory)" if left > 0 else ""),
        columns=("text", "tokens", "BEFORE", "AFTER", "never-seen as high"),
        rows=tuple(_cells(row, others, show_secrets) for row in own[:most]),
    )


def _cells(row: Row, others: Sequence[float], show_secrets: bool) -> tuple[str, ...]:
    told = disclose([str(row["text"] or "")], show_secrets=True)[0] if show_secrets else ""
    as_high = sum(other >= row["after"] for other in others) / len(others)
    return (
        f"{row['number']} · {told}" if told else str(row["number"]),
        NOTHING if row["length"] is None else f"{int(row['length']):,}",
        decimal(row["before"], 3),
        decimal(row["after"], 3),
        percent(as_high),
    )


@KINDS.register("Deletion")
def deletion_section(run: Run, *, show_secrets: bool) -> Section:
    """The section of a `Deletion`."""
    summary = run.summary
    first, because = answer(summary)
    deleted, others = (
        [float(row["after"]) for row in run.rows if row["kind"] == kind]
        for kind in ("deleted", "reference")
    )
    figure = Figure(
        draw=lambda width: two_groups(
            deleted, others, names=("deleted", "never seen"), of="texts",
            score="how well AFTER knows a text", width=width,
        ),
        caption="What AFTER knows of each deleted text, above, and of each that it never saw, "
        "below: alike where nothing is left.",
        points=len(deleted),
        slim=True,
    )  # fmt: skip
    return Section(
        kind="deletion",
        title="Are these texts gone?",
        lede=first,
        because=because,
        notices=(PAIR,),
        blocks=(
            knowledge(summary),
            figure,
            text_table(run.rows, show_secrets=show_secrets),
            evidence(
                run.run,
                asked=ASKED.format(texts=f"{int(summary['deleted']):,} deleted texts"),
                models={
                    "before": "the model before the deletion",
                    "after": "the model after it",
                    "retrained": "a model stated to be trained without them",
                },
                data={
                    "deleted": "the deleted texts",
                    "reference": "texts stated never to have been used",
                },
                found=f"{first} {because}",
                unsaid=LIMITS,
            ),
            Prose(title="How it was measured", lines=(METHOD,)),
        ),
        numbers=(
            ("answer", str(summary["verdict"])),
            ("p-value", p_value(float(summary["p_value"]))),
            ("p-value, known less", p_value(float(summary["less_p_value"]))),
            ("p-value, BEFORE", p_value(float(summary["before_p_value"]))),
            ("level", f"{float(summary['rate']):g}"),
        ),
    )
