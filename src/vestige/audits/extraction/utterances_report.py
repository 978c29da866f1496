"""The report of unknown words: of one utterance, or of planted secrets with their controls.

Sentences quote no word of a secret.
"""

from collections.abc import Callable, Sequence
from math import ceil, exp

from vestige.claims import LEAK
from vestige.metrics.tests import rank_sum
from vestige.reports.blocks import Table, table
from vestige.reports.charts import Figure, intervals
from vestige.reports.disclosure import disclose, printable
from vestige.reports.report import Report, lines
from vestige.reports.words import Row, chance, decimal, pairs, percent, whole
from vestige.results import Run

_GROUP_COLUMNS = "(planted|controls|drawn)_(?!p_value).*"
_RANK_MARKS = {"exact": "", "sampled": "≈ ", "bounded": "≤ "}
_RANK_WORDS = {"exact": "", "sampled": "about ", "bounded": "at most "}
_GROUP_NAMES = {"planted": "planted", "controls": "never planted", "drawn": "never, sampled now"}
_UNKNOWN_ORIGIN = {"copies": None, "drawn": False}
"""Columns of secrets that may not have been planted."""

_EXPOSURE = (
    "Exposure is log2(all secrets) - log2(rank). Without a leak it is 1.44 bits on average. If "
    "there are too many secrets to try, a random sample gives an estimate of the rank (≈), or, if "
    "all of the sample have a higher loss, an upper bound (≤; 95% confidence)."
)
LIMITS = (
    "Every model prefers some words. Without the truth, controls or a model that never saw the "
    "data, certainty proves nothing.",
    "An attacker with several guesses needs as many as the rank of the truth.",
    "The attacker knows weights, words, intent, tags and candidates. One who knows less learns "
    "less.",
    _EXPOSURE,
)
AUDIT_LIMITS = (
    "Other attacks may still succeed.",
    "One planted secret says nothing about how often others would be revealed, and one model "
    "nothing about other trainings of this kind.",
    "The p-value is exact for secrets drawn at random, whatever words a model prefers. It does not "
    "hold for secrets of your own choice.",
    "Planted secrets are random words. Real ones that are more probable from the start, such as "
    "dates, are guessed sooner.",
    "Secrets of one pattern share the model's guesses: at most one of them can be the best guess.",
    "Intervals are for secrets drawn like these, in this model. Other seeds can differ.",
    _EXPOSURE,
)
MAX_LISTED = 100
"""Most secrets in the chart and in the table."""


def utterance_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of an `Extraction`: secrets of one pattern, of unknown origin."""
    summary = run.summary
    common = {name: summary[name] for name in ("space_bits", "hamming_by_chance")}
    rows = [{**_UNKNOWN_ORIGIN, **common, **row} for row in run.rows]
    with_truth = [row for row in rows if row["truth"] is not None]
    if with_truth:
        answer = _rank_sentence(with_truth)
        evidence = lines(
            _guess_sentence(with_truth, summary, effort=True), _chance_sentence(with_truth)
        )
    else:
        answer = (
            "These words fit the model best. That does not show that they are in its training "
            "text: every model prefers some words."
        )
        among = "the secrets that were tried"
        if summary["certainty_among"] == "all":
            among = f"all {whole(_space(rows[0]))} secrets"
        evidence = (
            f"Certainty {percent(summary['certainty'])}: share of the best guess in the weight "
            f"exp(-loss) of {among}.",
            "There is no rank without the truth. Pass --truth, or a manifest of planted secrets.",
        )
    guesses = (_guesses_table(rows[0], show_secrets=show_secrets),) if len(rows) == 1 else ()
    return Report(
        title="Which unknown words does the model reveal?",
        answer=answer,
        evidence=evidence,
        blocks=(*_exposure_chart(rows), _secrets_table(rows, show_secrets=show_secrets), *guesses),
        limits=LIMITS,
    )


def planted_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `SecretAudit`: planted secrets and their controls."""
    rows, summary = run.rows, run.summary
    planted = [row for row in rows if row["copies"]]
    guesses = _guess_sentence(planted, summary, "planted_", effort=summary["verdict"] == LEAK)
    missing = ""
    if summary["p_value"] is None:
        missing = "There are no controls to compare with: pass more --controls."
    elif summary["p_least"] > summary["level"]:
        missing = "There are too few controls: pass more --controls, or plant longer secrets."
    controls_p, notice = summary["controls_p_value"], ""
    if controls_p is not None and controls_p <= summary["level"]:
        notice = (
            f"The manifest's controls rank higher than random ones (p = {chance(controls_p)}). "
            "They may share words with a planted secret or occur in the training text. This makes "
            "a leak harder to show, never easier."
        )
    return Report(
        title="Does the model reveal planted secrets?",
        answer=_rank_sentence(planted),
        evidence=lines(guesses, missing),
        notices=lines(notice),
        blocks=(
            *_exposure_chart(rows),
            _groups_table(summary),
            _secrets_table(rows, show_secrets=show_secrets),
        ),
        facts=pairs(summary, show_secrets=show_secrets, left_out=_GROUP_COLUMNS),
        limits=AUDIT_LIMITS,
    )


def _rank_sentence(secrets: Sequence[Row]) -> str:
    """The best rank of true secrets, among all secrets and among controls."""
    number = len(secrets)
    kind = "true" if secrets[0]["copies"] is None else "planted"
    subject = f"The {kind} secret" if number == 1 else f"The best of {whole(number)} {kind} secrets"
    ranked = _ranked(secrets)
    if not ranked:
        clause = _controls_clause(secrets[0]) if number == 1 else ""
        return f"{subject} was not ranked{clause}."
    best = min(ranked, key=lambda row: (row["rank"] / _space(row), row["truth_loss"]))
    return f"{subject} has rank {_rank_cell(best)}{_controls_clause(best)}."


def _controls_clause(row: Row) -> str:
    before, controls = row.get("controls_before"), row.get("controls_asked")
    if not controls:
        return ""
    if not before:
        return f", better than all {whole(controls)} that were never planted"
    return f"; {whole(before)} of {whole(controls)} that were never planted rank as high"


def _guess_sentence(secrets: Sequence[Row], summary: Row, prefix: str = "", *, effort: bool) -> str:
    """Whether the best guesses are right, and how many guesses an attacker needs for one secret.

    The prefix is that of the secrets' entries in the summary.
    """
    random_guesses = f"(random guesses: {percent(summary['hamming_by_chance'])})"
    if len(secrets) > 1:
        low, high = (summary[f"{prefix}accuracy_{end}"] for end in ("low", "high"))
        interval = "" if low is None else f" (95% CI {percent(low)} to {percent(high)})"
        return (
            f"{summary[f'{prefix}right']} of {len(secrets)} secrets are extracted whole{interval}; "
            f"{percent(summary[f'{prefix}hamming'])} of their words are wrong {random_guesses}."
        )
    [row] = secrets
    right = "The best guess is right."
    if not row["right"]:
        wrong = percent(row["hamming"])
        right = f"The best guess is not right: {wrong} of its words are wrong {random_guesses}."
    return f"{_effort_sentence(row)} {right}".strip() if effort else right


def _effort_sentence(row: Row) -> str:
    """How many guesses an attacker needs, as precisely as the rank is known."""
    kind, half = row["rank_known"], _space(row) / 2
    if kind is None:
        return ""
    rank = round(row["rank"]) if kind == "sampled" else ceil(row["rank"])
    guesses = "1 guess" if rank == 1 else f"{whole(rank)} guesses"
    needs = f"An attacker needs {_RANK_WORDS[kind]}{guesses}"
    if rank < half:
        return f"{needs} instead of {whole(half)} on average."
    return "" if kind == "bounded" else f"{needs}; the model does not help."


def _chance_sentence(secrets: Sequence[Row]) -> str:
    """The probability of the rank of a single secret without a leak; there are no controls."""
    if len(secrets) != 1 or secrets[0]["rank"] is None:
        return ""
    [row] = secrets
    probability = (
        1 / (1 + row["compared_with"])  # before all of the sample, itself one of them
        if row["rank_known"] == "bounded"
        else rank_sum([float(row["rank"])], [_space(row)])
    )
    return (
        "A random secret that the model never saw ranks as high with probability "
        f"{chance(probability)}. This is one trial: for a verdict, plant secrets with controls."
    )


def _exposure_chart(rows: Sequence[Row]) -> tuple[Figure, ...]:
    """Exposure of each true secret, from its rank."""
    ranked = [row for row in _ranked(rows) if not row["drawn"]][:MAX_LISTED]
    points = []
    for number, row in enumerate(ranked, 1):
        names = (printable(row["pattern"]), _copies_cell(row["copies"]), str(number))
        bounded = row["rank_known"] == "bounded"
        points.append({
            "label": " · ".join(filter(None, names)), "value": float(row["exposure"]),
            "low": float(row["exposure_low"]),
            "high": float(row["space_bits"] if bounded else row["exposure_high"]),
            "filled": row["copies"] != 0, "bound": bounded,
        })  # fmt: skip
    figure = intervals(
        points,
        name="",
        value="exposure in bits",
        across=False,
        domain=(0, max((float(row["space_bits"]) for row in ranked), default=0)),
        caption="Exposure of each true secret among all that fit the pattern; the axis ends at the "
        "most there is. Ring: never planted. Triangle: lower bound.",
    )
    return (figure,) if ranked else ()


def _groups_table(summary: Row) -> Table:
    """Planted secrets, the manifest's controls, and those that were sampled now."""

    def median_rank(group: str) -> str | None:
        kind = summary.get(f"{group}_median_rank_known")
        return None if kind is None else _RANK_MARKS[kind] + whole(summary[f"{group}_median_rank"])

    def exposure(group: str) -> str | None:
        mean = _mean_cell(summary, f"{group}_exposure", decimal)
        return f"≥ {mean}" if mean and summary[f"{group}_bounded"] else mean

    return table(
        "Planted secrets and controls",
        [group for group in _GROUP_NAMES if summary[group]],
        {
            "": lambda group: _GROUP_NAMES[group],
            "secrets": lambda group: summary[group],
            "extracted": lambda group: summary.get(f"{group}_right"),
            "words wrong": lambda group: _mean_cell(summary, f"{group}_hamming", percent),
            "median rank": median_rank,
            "exposure, bits": exposure,
        },
        drop_empty=True,
        key="95% intervals in brackets, where there is one.",
    )


def _secrets_table(rows: Sequence[Row], *, show_secrets: bool) -> Table:
    """A row for each of the first secrets."""
    return table(
        "Secret by secret",
        [row for row in rows if not row["drawn"]],
        {
            "pattern": lambda row: row["pattern"],
            "planted": lambda row: _copies_cell(row["copies"]),
            "guess": lambda row: disclose([row["guess"]], show_secrets=show_secrets)[0],
            "loss": lambda row: f"{row['loss']:.4g}",
            "certainty": lambda row: percent(row["certainty"]),
            "right": lambda row: row["right"],
            "words wrong": lambda row: None if row["hamming"] is None else percent(row["hamming"]),
            "rank of the truth": lambda row: None if row["rank"] is None else _rank_cell(row),
            "exposure, bits": _exposure_cell,
        },
        texts=3,
        most=MAX_LISTED,
        drop_empty=True,
        key="95% intervals in brackets, where ranks are estimated.",
    )


def _guesses_table(row: Row, *, show_secrets: bool) -> Table:
    """The best guesses of one trial with their losses, best first."""

    def share(pair: tuple[str, float]) -> str:
        return percent(row["certainty"] * exp(row["losses"][0] - pair[1]))

    return table(
        "The best guesses",
        list(zip(row["guesses"], row["losses"], strict=True)),
        {
            "guess": lambda pair: disclose([pair[0]], show_secrets=show_secrets)[0],
            "loss": lambda pair: f"{pair[1]:.4g}",
            "share of the weight": share,
            "right": lambda pair: None if row["truth"] is None else pair[0] == row["truth"],
        },
        drop_empty=True,
        key="Weight: exp(-loss) among all that were tried. The first share is the certainty.",
    )


def _mean_cell(row: Row, name: str, write: Callable[[float], str]) -> str | None:
    """A mean with its interval if it has one."""
    value, low, high = (row.get(f"{name}{end}") for end in ("", "_low", "_high"))
    if value is None or low is None or high is None or low == high:
        return None if value is None else write(value)
    return f"{write(value)} ({write(low)} to {write(high)})"


def _copies_cell(copies: int | None) -> str:
    """How often a secret was planted; "" if it is not known."""
    if copies is None:
        return ""
    return "never" if copies == 0 else "once" if copies == 1 else f"{copies:,} ×"


def _ranked(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["rank"] is not None]


def _rank_cell(row: Row) -> str:
    """The rank among all secrets: counted, estimated (≈) or an upper bound (≤)."""
    kind, rank = row["rank_known"], float(row["rank"])
    rounded = {"exact": rank, "sampled": round(rank), "bounded": ceil(rank)}[kind]
    cell = f"{_RANK_MARKS[kind]}{whole(rounded)} of {whole(_space(row))}"
    if kind != "sampled":
        return cell
    low, high = (whole(round(row[f"rank_{end}"])) for end in ("low", "high"))
    return f"{cell} (95% CI {low} to {high})"


def _exposure_cell(row: Row) -> str | None:
    if row["rank_known"] == "bounded":
        return f"≥ {decimal(row['exposure'])}"
    return _mean_cell(row, "exposure", decimal)


def _space(row: Row) -> int:
    """The number of secrets, rounded."""
    return max(round(2 ** float(row["space_bits"])), round(float(row["rank"] or 1)))
