"""The report of `vestige membership`: whether texts or users were used, which, and how sure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vestige.claims import UNDECIDED
from vestige.reports.blocks import Prose, Table, audit_note, table
from vestige.reports.charts import Figure, sorted_p_values, two_groups
from vestige.reports.disclosure import disclose, disclose_names
from vestige.reports.report import Report, lines
from vestige.reports.words import NOTHING, Row, decimal, p_value, pairs, percent
from vestige.results import Run

MAX_LISTED = 25
"""Most units that a page lists."""
MAX_UNANSWERED = 0.1
"""Share of unanswered queries above which the report warns."""
UNDECIDED_SENTENCE = "A check did not pass, so the scores support no verdict."


@dataclass(frozen=True)
class Unit:
    """Texts about a unit of audit, and the names of its columns and summary entries."""

    plural: str
    flagged: str
    compared: str
    length: str
    reference: str
    needed: str
    method: str
    limits: tuple[str, ...]


TEXTS = Unit(
    plural="texts",
    flagged="named",
    compared="compared_tokens",
    length="length",
    reference="reference",
    needed="reference_needed",
    method=(
        "Each text has a score, high if the model knows it well, over its first tokens: at most as "
        "many as half of the reference has. Its p-value is how often a reference text, over as "
        "many tokens, scores as high. A permutation test of whole texts, or of whole authors, "
        "compares the list with the reference. The lower bound counts texts above what the "
        "reference reaches. The upper bound depends on how far known members score above it."
    ),
    limits=(
        "“No leak shown” excludes a list whose texts outrank those of the reference in 65 of 100 "
        "pairs. A few used texts among many others can remain undetected.",
        "Only the upper bound limits how many were used, and it holds if the known members are "
        "like the used texts: as often, at the same time of training, and of the same kind.",
    ),
)

USERS = Unit(
    plural="users",
    flagged="called",
    compared="compared_words",
    length="words",
    reference="calibrated_on",
    needed="calibration_needed",
    method=(
        "The score of a user is the mean over their words: how much higher the model ranks each "
        "word, or how much more probable it is, than expected for a non-member. Vestige learns the "
        "expectation from non-members or from all users alike, and from shadow models if there "
        "are any. The p-value is the share of non-members who score as high over equally many "
        "words. A permutation test of whole users compares the list with the non-members."
    ),
    limits=(
        "“No leak shown” excludes users who outrank non-members in 75 of 100 pairs.",
        "A member among the reference users makes the audit weaker, but causes no false flag.",
    ),
)

LIMITS = (
    "A p-value is not the probability of use. It says how often something unused would score as "
    "high. What is not flagged can still have been used.",
    "Membership is of the words: a copy, a quotation or a near-duplicate in the training data "
    "counts too. The test does not say who supplied the text, when, or whether its use was lawful.",
    "All of this holds only for a reference of the same kind, source and time. The checks find "
    "differences in words, case, script and length; others can remain.",
    "Repeating an audit with other options or references until it finds something invalidates its "
    "error rates.",
)
"""Limits of the audits of both units."""


def texts_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `TextAudit`."""
    audited = _audited_rows(run)
    count, names = len(audited), [str(row["number"]) for row in audited]
    if show_secrets:
        texts = disclose([str(row["text"] or "") for row in audited], show_secrets=True)
        names = [" · ".join(filter(None, pair)) for pair in zip(names, texts, strict=True)]
    question = "this text was in the training data of a model"
    if count > 1:
        question = (
            f"these {count:,} texts were in the training data of a model, which of them, and how "
            "many at least and at most"
        )
    reference = [row for row in run.rows if row["kind"] == "reference"]
    chart = _p_value_chart(
        audited, reference, TEXTS, "the reference, each text compared with the others"
    )
    return _report(
        run, TEXTS, audited, names, texts_finding(run.summary), chart, bounds_warning(run.summary),
        title="Were these texts used?", question=question, show_secrets=show_secrets,
    )  # fmt: skip


def users_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `UserAudit`."""
    audited = _audited_rows(run)
    non_members, null = (
        [row for row in run.rows if row["kind"] == kind] for kind in ("known out", "null")
    )
    names = disclose_names([str(row["user"]) for row in audited], show_secrets=show_secrets)
    scored = [row for row in audited if row["score"] is not None]
    if len(audited) == 1:
        title = "Was my text used?"
        question = "texts of a user were in the training data of a model"
        chart = _score_chart(scored, non_members)
    else:
        title = "Whose text was used?"
        question = (
            f"texts of {len(audited):,} users were in the training data of a model, and whose"
        )
        chart = _p_value_chart(scored, null, USERS, "shadow models")
    return _report(
        run, USERS, audited, [f"{number} · {name}" for number, name in enumerate(names, 1)],
        users_finding(run.summary, audited, non_members),
        chart if scored and non_members else None, unanswered_warning(run.summary),
        title=title, question=question, show_secrets=show_secrets,
    )  # fmt: skip


def _report(
    run: Run,
    unit: Unit,
    audited: Sequence[Row],
    names: Sequence[str],
    finding: tuple[str, ...],
    chart: Figure | None,
    notice: str,
    *,
    title: str,
    question: str,
    show_secrets: bool,
) -> Report:
    summary = run.summary
    note = audit_note(
        run.run,
        question=f"Whether {question} (a membership inference test).",
        models={
            "target": "the model",
            "base": f"its base, stated not to have seen the {unit.plural}",
        },
        data={
            "texts": "the texts in question",
            "reference": "texts stated never to have been used",
            "used": "texts stated to have been used",
        },
        finding=" ".join(finding),
        limits=(*LIMITS, *unit.limits),
    )
    flags = (
        f"Flags control the false discovery rate at {percent(float(summary['rate']))}, an average "
        "over audits (Benjamini and Hochberg)."
    )
    method = Prose(title="Method", lines=(unit.method, flags))
    return Report(
        title=title,
        answer=finding[0],
        evidence=finding[1:],
        notices=lines(notice, _too_few_reference(audited, summary, unit)),
        blocks=(*([chart] if chart else []), _table(audited, unit, names), note, method),
        facts=pairs(
            {key: value for key, value in summary.items() if value != 0},
            show_secrets=show_secrets,
            left_out=".*_needed|consistent",
        ),
    )


def _audited_rows(run: Run) -> list[Row]:
    """Rows of the audited units, the smallest p-value first."""
    rows = [row for row in run.rows if row["kind"] == "audited"]
    if not rows:
        raise ValueError("rows must hold at least one of the kind 'audited'")
    return sorted(rows, key=lambda row: (row["p_value"], -(row["score"] or 0.0)))


def _too_few_reference(audited: Sequence[Row], summary: Row, unit: Unit) -> str:
    """A notice if no single unit can be flagged, because the reference is too small."""
    least_p_values = sorted(1 / (int(row["compared_with"]) + 1) for row in audited)
    share = float(summary["rate"]) / len(least_p_values)
    enough = (n for n, p in enumerate(least_p_values, start=1) if p <= share * n + 1e-12)
    needed_together = next(enough, len(least_p_values))
    if int(summary[unit.flagged]) or needed_together < 2:
        return ""
    return (
        f"With {int(summary[unit.reference]):,} reference {unit.plural}, none is flagged unless "
        f"{needed_together:,} score above all of them; flagging a single one needs "
        f"{int(summary[unit.needed]):,} reference {unit.plural}."
    )


def _table(audited: Sequence[Row], unit: Unit, names: Sequence[str]) -> Table:
    """The units with the smallest p-values."""

    def as_high(row: Row) -> str:
        reference = int(row["compared_with"])
        return f"{round(float(row['p_value']) * (reference + 1)) - 1:,} of {reference:,}"

    def compared(row: Row) -> str:
        count, length = int(row[unit.compared]), row[unit.length]
        return f"{count:,}" if length in (None, count) else f"{count:,} of {int(length):,}"

    def if_scored(cell: Callable[[Row], str]) -> Callable[[Row], str]:
        return lambda row: NOTHING if row["score"] is None else cell(row)

    return table(
        "Smallest p-values",
        [{**row, "name": name} for row, name in zip(audited, names, strict=True)],
        {
            unit.plural[:-1]: lambda row: row["name"],
            "flagged": lambda row: bool(row[unit.flagged]),
            "p-value": if_scored(lambda row: p_value(float(row["p_value"]))),
            "score as high": if_scored(as_high),
            "score": lambda row: decimal(row["score"], 3),
            f"{unit.compared.removeprefix('compared_')} compared": compared,
        },
        texts=2,
        most=MAX_LISTED,
    )


def _p_value_chart(audited: Sequence[Row], null: Sequence[Row], unit: Unit, line: str) -> Figure:
    """Sorted p-values of the audited units, and null p-values as a line."""
    p_values, null_p_values = ([float(row["p_value"]) for row in rows] for rows in (audited, null))
    flagged = [bool(row[unit.flagged]) for row in audited]
    axis = f"{unit.plural}, the smallest p-value first"
    return Figure(
        draw=lambda width: sorted_p_values(p_values, flagged, null_p_values, of=axis, width=width),
        caption="P-values in order. Without use in training they lie along the dashed line. A disc "
        f"is flagged. {f'The thin line is {line}.' if null_p_values else ''}".strip(),
        points=len(p_values),
        slim=True,
    )


def _score_chart(audited: Sequence[Row], non_members: Sequence[Row]) -> Figure:
    """The score of one user, and those of non-members."""
    scores, reference = ([float(row["score"]) for row in rows] for rows in (audited, non_members))
    return Figure(
        draw=lambda width: two_groups(
            scores, reference, names=("this user", "non-members"), width=width
        ),
        caption="Scores of this user, above, and of non-members, below, over as many words. "
        "Further right, the model knows the texts better.",
        slim=True,
    )


def texts_finding(summary: Row) -> tuple[str, ...]:
    """The answer, then its evidence."""
    lower, rate = int(summary["at_least"]), float(summary["rate"])
    upper = summary["at_most"] if summary["consistent"] else None
    confidence = f"{100 * (1 - rate):g}% confidence"
    listed, known = int(summary["listed"]), int(summary.get("known_used") or 0)
    texts = f"{listed:,} text{'' if listed == 1 else 's'}"
    texts += ", one of each author," if summary["units"] == "authors" else ""
    no_upper = ""
    if summary["at_most"] is None:
        no_upper = (
            "No upper bound: it needs some twenty texts that are known to have been used (--used)."
        )
    elif summary["consistent"]:
        no_upper = f"No upper bound: the {known:,} known members do not score high enough."
    if lower:
        flags = "None flagged: no single text has a small enough p-value."
        if flagged := int(summary["named"]):
            flags = f"{flagged:,} flagged (false discovery rate {percent(rate)})."
        finding = lines(
            f"At least {lower:,} of {texts} {'was' if lower == 1 else 'were'} used for training "
            f"({confidence}).",
            flags,
            no_upper,
        )
        if upper is not None and upper >= lower:
            bounds = f"{lower:,} to {upper:,} of {texts}"
            finding = (f"{bounds} were used for training ({confidence} each).", flags)
    elif upper is not None and upper < listed:
        number = f"At most {upper:,} of" if upper else "None of"
        were = "was" if upper in (0, 1) else "were"
        finding = (
            f"{number} {texts} {were} used for training ({confidence}).",
            f"The bound holds for texts that were used like the {known:,} known members.",
        )
    else:
        count = int(summary["texts"])
        these = "this text" if count == 1 else f"these {count:,} texts"
        finding = lines(
            f"The model does not know {these} better than texts that it never saw.",
            "This does not prove that they were not used.",
            no_upper,
        )
    return _qualified(summary, finding)


def _qualified(summary: Row, finding: tuple[str, ...]) -> tuple[str, ...]:
    """The finding; if the verdict is undecided, a sentence that says so comes first."""
    if summary.get("verdict") != UNDECIDED:
        return finding
    first, *rest = finding
    return lines(UNDECIDED_SENTENCE, f"The scores alone would say: “{first}”", " ".join(rest))


def bounds_warning(summary: Row) -> str:
    """A warning if the lower bound is above the upper one."""
    if summary["consistent"]:
        return ""
    return (
        "The two bounds contradict each other: more texts score high than the known members allow. "
        "The known members are unlike the audited texts, and the upper bound is void."
    )


def users_finding(
    summary: Row, audited: Sequence[Row], non_members: Sequence[Row]
) -> tuple[str, ...]:
    """The answer, then its evidence."""
    if all(row["score"] is None for row in audited):
        return "No word of these texts could be queried.", "Give more text in the model's language."
    if len(audited) == 1:
        return _qualified(summary, _one_user_finding(audited[0], non_members))
    return _qualified(summary, _many_users_finding(summary))


def _one_user_finding(user: Row, non_members: Sequence[Row]) -> tuple[str, ...]:
    higher = sum(float(row["score"]) >= float(user["score"]) for row in non_members)
    compared, words = int(user["compared_words"]), int(user["words"])
    return lines(
        f"This user's texts are {'' if user['called'] else 'not '}recognized as training data.",
        f"{higher:,} of {len(non_members):,} non-members score as high over as many words "
        f"(p = {p_value(float(user['p_value']))}).",
        f"Only {compared:,} of the user's {words:,} words are compared: few non-members have more."
        if compared < words
        else "",
    )


def _many_users_finding(summary: Row) -> tuple[str, ...]:
    users, flagged, alpha = int(summary["users"]), int(summary["called"]), float(summary["rate"])
    if flagged:
        return (
            f"The texts of {flagged:,} of {users:,} users are recognized as training data (false "
            f"discovery rate {percent(alpha)}).",
            "Others may have been used as well. A bound for all users: vestige train --defence "
            "dp-fedavg.",
        )
    if summary["p_value"] is not None and summary["p_value"] <= alpha:
        return (
            f"Texts of some of {users:,} users were used for training, but no single user is "
            "recognized.",
        )
    return (
        "No user's texts are recognized as training data.",
        f"How many of the {users:,} users were used is not bounded.",
    )


def unanswered_warning(summary: Row) -> str:
    """A warning if many queries have no answer."""
    queries, missing = (int(summary.get(name) or 0) for name in ("words_asked", "words_unanswered"))
    if not queries or missing / queries <= MAX_UNANSWERED:
        return ""
    return (
        f"{missing:,} of {queries:,} queries have no answer ({percent(missing / queries)}). If the "
        "service refuses some texts and not others, the comparison is unfair."
    )
