"""What comes back of texts: the answer, each measure beside never-seen texts, and the worst texts.

The terminal shows the same words.
"""

from collections.abc import Sequence

from vestige.reports.audit.charts import two_groups
from vestige.reports.components.charts import Figure
from vestige.reports.components.disclosure import disclose
from vestige.reports.components.evidence import evidence
from vestige.reports.components.findings import Prose
from vestige.reports.components.numbers import NOTHING, Row, decimal, interval, percent
from vestige.reports.components.table import Table
from vestige.reports.section import KINDS, Section
from vestige.results import Run

COLUMNS = (
    "text", "passages", "greedy", "sampled", "samples needed", "longest run",
    "extraction strength", "tokens exact", "edit similarity",
)  # fmt: skip
LISTED = 25
"""Texts that a page lists one by one."""

METHOD = (
    "A passage is read behind all of the text before it. Greedy decoding says it where each of its "
    "tokens is the likeliest. Sampling says it with the product of its tokens’ probabilities among "
    "the likeliest, p; one of n samples is the passage with probability 1 - (1 - p)^n (Hayes et "
    "al. 2024). Extraction strength is the share of a text, from its end, that greedy decoding "
    "says after all before it; tokens exact are those that are the likeliest. Edit similarity and "
    "BLEU compare the greedy continuation behind a text’s first tokens with the true one."
)

LIMITS = (
    "This is what comes back to somebody who has the text before a passage. Somebody who has not "
    "gets less; vestige diff searches without it.",
    "A passage that no sample says can still be told by other prompts or after more training.",
    "What comes back need not come from these texts: common phrases, quotations and copies come "
    "back from models that never saw them. Only the difference to the reference speaks of memory, "
    "and it does so where the reference is of the same kind.",
    "Intervals speak of texts like these, drawn independently, under this one model.",
)

_MEASURES = (
    ("texts_sampled", "texts of which a passage is sampled"),
    ("sampled", "passages sampled"),
    ("greedy", "passages said greedily"),
    ("strength", "extraction strength, mean"),
    ("exact", "tokens exact, mean"),
    ("edit", "edit similarity of continuations, mean"),
    ("approximate", "continuations of BLEU 0.75 or more"),
)


def answer(summary: Row) -> tuple[str, str]:
    """The answer, its number first, then what it means and what it leaves open."""
    hits, trials = int(summary["sampled_passages"]), int(summary["passages"])
    first = (
        f"{hits:,} of {trials:,} passages of {int(summary['suffix_tokens'])} tokens come back word "
        f"for word: one of {int(summary['tries']):,} samples is the passage with probability "
        f"{float(summary['chance']):g} or more. That is {_per(summary, 'sampled')} per 10,000 "
        f"tokens of passages ({_ends(summary, 'sampled_per_10000')}, 95 % confidence)."
    )
    return first, f"{_control(summary)} {_greedy(summary)}{_exact(summary)}{_short(summary)}"


def _control(summary: Row) -> str:
    if not summary["reference_texts"]:
        return (
            "Nothing says how many would come back of texts that the model never saw: give some "
            "(--reference)."
        )
    if summary["reference_sampled"] is None:
        return "No text of the reference is long enough for a passage: nothing to compare with."
    other = f"{_per(summary, 'reference_sampled')} per 10,000 of never-seen texts"
    low = summary["sampled_difference_low"]
    if low is None:
        return f"Beside {other}; with one text on a side, no interval says how they differ."
    apart = f"a difference of {_ends(summary, 'sampled_per_10000_difference')}"
    if low > 0:
        return f"Beside {other}, {apart}: the model gives back more than common phrases."
    return (
        f"Beside {other}, {apart}: this does not show that more comes back than common phrases, "
        "and does not exclude it."
    )


def _greedy(summary: Row) -> str:
    greedy, longest = int(summary["greedy_passages"]), int(summary["longest_of_all"])
    other = summary["reference_longest_of_all"]
    beside = "" if other is None else f" (of never-seen texts {int(other):,})"
    verb = "is" if greedy == 1 else "are"
    return (
        f"{greedy:,} {verb} said by greedy decoding; the longest verbatim run has {longest:,} "
        f"tokens{beside}."
    )


def _exact(summary: Row) -> str:
    """What single tokens say, which is far more than whole passages do."""
    low = summary["exact_difference_low"]
    if low is None or low <= 0:
        return ""
    own, other = percent(summary["exact"]), percent(summary["reference_exact"])
    return (
        f" Token by token it does know them better: {own} of their tokens are its first choice, "
        f"{other} of never-seen ones."
    )


def _short(summary: Row) -> str:
    left = int(summary["texts"]) - int(summary["texts_with_passages"])
    if not left:
        return ""
    return (
        f" {left:,} of {int(summary['texts']):,} texts are shorter than a prefix and a passage "
        "together, and have none (--prefix, --suffix)."
    )


def _per(summary: Row, name: str) -> str:
    return f"{float(summary[f'{name}_per_10000']):.3g}"


def _ends(summary: Row, name: str) -> str:
    low, high = summary[f"{name}_low"], summary[f"{name}_high"]
    return "no interval with one text" if low is None else f"{low:.3g} to {high:.3g}"


def measures(summary: Row) -> Table:
    """Each measure, that of never-seen texts and the difference, with intervals."""
    rows = tuple(
        (title, *(_cell(summary, key) for key in (name, f"reference_{name}", f"{name}_difference")))
        for name, title in _MEASURES
        if summary[name] is not None
    )
    return Table(
        title="What comes back, in percent",
        columns=("measure", "these texts", "never seen", "difference"),
        rows=rows,
        key="Intervals of 95 % stand in brackets; what they count is texts.",
    )


def _cell(summary: Row, name: str) -> str:
    value, low, high = (summary[f"{name}{end}"] for end in ("", "_low", "_high"))
    if value is None:
        return NOTHING
    shown = f"{100 * value:.1f}"
    if low is None:
        return shown
    return f"{shown} ({interval(100 * low, 100 * high, digits=1)})"


def text_table(rows: Sequence[Row], *, show_secrets: bool, most: int = LISTED) -> Table:
    """The texts of which most comes back, one a row."""
    own = sorted(
        (row for row in rows if row["kind"] == "text"),
        key=lambda row: (-row["sampled"], -row["longest"], -row["exact"], row["number"]),
    )
    left = len(own) - most
    return Table(
        title="Texts, those of which most comes back first"
        + (f" ({left:,} more are in the run directory)" if left > 0 else ""),
        columns=COLUMNS,
        rows=tuple(_cells(row, show_secrets) for row in own[:most]),
    )


def _cells(row: Row, show_secrets: bool) -> tuple[str, ...]:
    told = disclose([str(row["text"] or "")], show_secrets=True)[0] if show_secrets else ""
    return (
        f"{row['number']} · {told}" if told else str(row["number"]),
        str(row["passages"]),
        str(row["greedy"]),
        str(row["sampled"]),
        _needed(row),
        str(row["longest"]),
        decimal(row["strength"]),
        percent(row["exact"]),
        decimal(row["edit"]),
    )


def _needed(row: Row) -> str:
    if not row["passages"]:
        return NOTHING
    tries = float("inf") if row["tries"] is None else float(row["tries"])
    if tries == float("inf"):
        return "never"
    return f"{tries:,.0f}" if tries < 1e6 else f"{tries:.0e}"


@KINDS.register("TextMemorization")
def memorization_section(run: Run, *, show_secrets: bool) -> Section:
    """The section of a `TextMemorization`."""
    summary = run.summary
    first, because = answer(summary)
    exact, others = (
        [float(row["exact"]) for row in run.rows if row["kind"] == kind]
        for kind in ("text", "reference")
    )
    figure = Figure(
        draw=lambda width: two_groups(
            exact, others, names=("these texts", "never seen"), of="texts",
            score="share of its tokens that are the likeliest", width=width,
        ),
        caption="How much of each text greedy decoding says, each token behind the true ones "
        "before it: of these texts above, of never-seen texts below.",
        points=len(exact),
        slim=True,
    )  # fmt: skip
    return Section(
        kind="memorization",
        title="How much of these texts comes back?",
        lede=first,
        because=because,
        notices=(),
        blocks=(
            measures(summary),
            *((figure,) if others else ()),
            text_table(run.rows, show_secrets=show_secrets),
            evidence(
                run.run,
                asked="How much of the texts that a model was trained on it gives back word for "
                "word, beside texts that it never saw.",
                models={"target": "the model"},
                data={
                    "texts": "texts stated to be of its training data",
                    "reference": "texts stated never to have been used",
                },
                found=f"{first} {because}",
                unsaid=LIMITS,
            ),
            Prose(title="How it was measured", lines=(METHOD,)),
        ),
        numbers=(
            ("texts", f"{int(summary['texts']):,}"),
            ("never-seen texts", f"{int(summary['reference_texts']):,}"),
            ("tokens", f"{int(summary['texts_tokens']):,}"),
            ("prefix, suffix", f"{summary['prefix_tokens']}, {summary['suffix_tokens']} tokens"),
            ("sampling", f"top {summary['top_k']}, temperature {summary['temperature']:g}"),
        ),
    )
