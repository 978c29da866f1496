"""What an extraction of unknown words found, in sentences that quote no word of a secret."""

from collections.abc import Callable, Sequence
from math import ceil
from statistics import fmean
from typing import Any

from vestige.claims import LEAK
from vestige.metrics.extraction import null_probability
from vestige.reports.words import Row, chance, decimal, percent, whole

_OBJECTIVES = {
    "joint": "the sum of the losses of intent and tags",
    "tags": "the loss of the tags",
    "intent": "the loss of the intent",
    "calibrated": "the sum of the losses less that of models that never saw the secrets",
}
_SEARCHES = {
    "exact": "every secret was tried",
    "coordinate": "coordinate descent from many starts",
    "beam": "a beam from left to right",
    "gradient": "swaps that the gradient proposes",
    "paper": "the paper's discrete optimization",
    "embedding": "the paper's optimization of vectors",
    "random": "random guesses",
}
_MARKS = {"exact": "", "sampled": "≈ ", "bounded": "≤ "}


def entries(rows: Sequence[Row], summary: Row) -> list[dict[str, Any]]:
    """The rows of an extraction or an audit, with the columns of both.

    `copies` is None if it is not known how often a secret was planted.
    """
    common: dict[str, Any] = {"copies": None, "drawn": False, "model": 1}
    common |= {key: summary[key] for key in ("space_bits", "hamming_by_chance") if key in summary}
    return [{**common, **row} for row in rows]


def of_extraction(rows: Sequence[Row], summary: Row) -> tuple[str, ...]:
    """The evidence of an extraction without controls."""
    known = [row for row in rows if row["truth"] is not None]
    if not known:
        certainty = f"Mean certainty: {percent(summary['certainty'])}."
        if len(rows) == 1:
            certainty = _certainty(rows[0], among=summary["certainty_among"])
        return (
            "These words fit the model best. That does not show that they are in its training "
            "text: every model prefers some words.",
            certainty,
            "There is no rank without the truth. Pass --truth, or a manifest of planted secrets.",
        )
    if len(known) == 1 == len(rows):
        return (_truth(rows[0]), _guess_right(rows[0]), _alone(rows[0]))
    return (_extracted("secrets", summary, len(known)), _ranked("secrets", known))


def of_audit(rows: Sequence[Row], summary: Row) -> tuple[str, ...]:
    """The evidence of an audit; it states the ranks that the verdict goes by."""
    planted = [row for row in rows if row["copies"]]
    controls = [row for row in rows if row["copies"] == 0 and not row["drawn"]]
    if len(planted) == 1:
        own = _guess_right(planted[0])
    else:
        own = _extracted("planted secrets", _part(summary, "planted"), len(planted))
    return (
        f"{_places(planted, summary)} {_meaning(planted, summary)}",
        own,
        _controls(controls, summary),
    )


def stray_controls(summary: Row) -> str:
    """A warning if the manifest's controls rank too high; else ""."""
    p = summary["controls_p_value"]
    if p is None or p > summary["level"]:
        return ""
    return (
        f"The manifest's controls rank higher than random ones (p = {chance(p)}). They may share "
        "words with a planted secret or occur in the training text. This makes a leak harder to "
        "show, never easier."
    )


def doubts(summary: Row) -> tuple[str, ...]:
    """What an audit does not show."""
    known = (
        ("Other attacks may still succeed.", summary["verdict"] != LEAK),
        (
            "One planted secret says nothing about how often others would be revealed.",
            summary["planted"] == 1,
        ),
        (
            "One model says nothing about other trainings of this kind. Pass several with --also.",
            summary["models"] == 1,
        ),
        (
            "Planted secrets of one pattern share the model's guesses: at most one of them can be "
            "the best guess.",
            summary["planted"] > summary["patterns"],
        ),
    )
    return tuple(sentence for sentence, holds in known if holds)


def method(summary: Row) -> str:
    """How the guesses were found."""
    searches = [_SEARCHES.get(name, name) for name in str(summary["search"]).split()]
    what = _OBJECTIVES.get(summary["objective"], str(summary["objective"]))
    return f"Search: {' or '.join(searches)}. Minimized: {what}, with the utterance's own labels."


def rank_of(row: Row) -> str:
    """A rank, with "≤" if it is an upper bound and "≈" if it is an estimate."""
    rounding: dict[str, Callable[[float], float]]
    rounding = {"exact": float, "bounded": ceil, "sampled": round}
    return _MARKS[row["rank_known"]] + whole(rounding[row["rank_known"]](row["rank"]))


def median_rank(rows: Sequence[Row]) -> str:
    """The median rank; an upper bound if a bounded rank is at the median or after it."""
    ordered = sorted(rows, key=lambda row: float(row["rank"]))
    middle = [ordered[(len(rows) - 1) // 2], ordered[len(rows) // 2]]
    known = {row["rank_known"] for row in middle}
    if any(row["rank_known"] == "bounded" and row["rank"] >= middle[0]["rank"] for row in rows):
        known = {"bounded"}
    found = fmean(float(row["rank"]) for row in middle)
    if known == {"exact"}:
        return whole(found)
    return _MARKS["bounded" if known == {"bounded"} else "sampled"] + whole(ceil(found))


def _truth(row: Row) -> str:
    """The rank of a true secret, and the guesses that an attacker needs."""
    who = "A secret that was never planted" if row["copies"] == 0 else "The true secret"
    if row["rank"] is None:
        return f"{who} was not ranked."
    if row["rank_known"] == "bounded":
        return f"{who} has {_at(row)}: {_bound(row)}."
    space, rank = _space(row), float(row["rank"])
    ends = ""
    if row["rank_known"] != "exact":
        rank = round(rank)
        low, high = (whole(round(row[f"rank_{end}"])) for end in ("low", "high"))
        ends = f" (95% CI {low} to {high})"
    at = f"{who} has {_at(row)}{ends}"
    return f"{at}." if row["copies"] == 0 else f"{at}: {_guesses(rank, space)}."


def _at(row: Row) -> str:
    """A rank among all secrets."""
    most = whole(_space(row))
    if row["rank_known"] == "bounded":
        return f"rank {whole(ceil(row['rank']))} of {most} or better"
    about = "" if row["rank_known"] == "exact" else "about "
    return f"{about}rank {whole(round(row['rank']) if about else row['rank'])} of {most}"


def _bound(row: Row) -> str:
    """Why only a bound of a rank is known."""
    found = f"all {whole(row['compared_with'])} random secrets have a higher loss (95% confidence)"
    better = round(float(row["rank_low"])) - 1
    if better:
        return f"{found}, and the search found {whole(better)} with a lower one"
    if row["right"] and row["tried"]:
        return f"{found}, and so have all others of the {whole(row['tried'])} that were tried"
    return found


def _guesses(rank: float, space: int) -> str:
    guesses = "1 guess" if rank == 1 else f"{whole(rank)} guesses"
    if rank < space / 2:
        return f"an attacker needs {guesses} instead of {whole(space / 2)} on average"
    return f"an attacker needs {guesses}; the model does not help"


def _certainty(row: Row, *, among: str) -> str:
    of = f"all {whole(_space(row))} secrets" if among == "all" else "the secrets that were tried"
    return (
        f"Certainty {percent(row['certainty'])}: share of the best guess in the weight exp(-loss) "
        f"of {of}."
    )


def _guess_right(row: Row) -> str:
    if row["right"]:
        return "The best guess is right."
    return (
        f"The best guess is not right: {percent(row['hamming'])} of its words are wrong (random "
        f"guesses: {percent(row['hamming_by_chance'])})."
    )


def _alone(row: Row) -> str:
    """What one rank without controls is worth."""
    if row["rank"] is None:
        return ""
    probability = (
        1 / (1 + row["compared_with"])  # before all of the sample, itself one of them
        if row["rank_known"] == "bounded"
        else null_probability([float(row["rank"])], [_space(row)])
    )
    return (
        f"A random secret that the model never saw ranks as high with probability "
        f"{chance(probability)}. This is one trial: for a verdict, plant secrets with controls."
    )


def _extracted(what: str, summary: Row, number: int) -> str:
    low, high = summary["accuracy_low"], summary["accuracy_high"]
    ends = "" if low is None else f" (95% CI {percent(low)} to {percent(high)})"
    return (
        f"{summary['right']} of {number} {what} are extracted whole{ends}; "
        f"{percent(summary['hamming'])} of their words are wrong (random guesses: "
        f"{percent(summary['hamming_by_chance'])})."
    )


def _ranked(what: str, rows: Sequence[Row]) -> str:
    ranked = [row for row in rows if row["rank"] is not None]
    if not ranked:
        return f"The {what} were not ranked."
    least = "at least " if any(row["rank_known"] == "bounded" for row in ranked) else ""
    bits = least + decimal(sum(row["exposure"] for row in ranked) / len(ranked), 1)
    if _spaces(ranked) > 1:
        return f"Mean exposure of the {what}: {bits} bits."
    return (
        f"Median rank of the {what}: {median_rank(ranked)} of {whole(_space(ranked[0]))}; mean "
        f"exposure {bits} bits."
    )


def _places(planted: Sequence[Row], summary: Row) -> str:
    """Ranks of planted secrets, among all and among controls."""
    p = "" if summary["p_value"] is None else f" (p = {chance(summary['p_value'])})"
    ranked = [row for row in planted if row["rank"] is not None]
    number, models = int(summary["planted"]), summary["models"]
    who = "the planted secret" if number == 1 else f"the best of {whole(number)} planted secrets"
    who = f"In {models} models, {who}" if models > 1 else f"T{who[1:]}"
    if not ranked:
        among = _among(planted[0]) if len(planted) == 1 else ""
        return f"{who} was not ranked{among}{p}."
    first = min(ranked, key=lambda row: (row["rank"] / _space(row), row["truth_loss"]))
    at = f"{who} has {_at(first)}{_among(first)}"
    one = len(planted) == 1 or _spaces(ranked) > 1
    return f"{at}{'' if one else f'; median rank {median_rank(ranked)}'}{p}."


def _among(row: Row) -> str:
    before, asked = row["controls_before"], row["controls_asked"]
    if not asked:
        return ""
    if not before:
        return f", better than all {whole(asked)} that were never planted"
    return f"; {whole(before)} of {whole(asked)} that were never planted rank as high"


def _meaning(planted: Sequence[Row], summary: Row) -> str:
    p = summary["p_value"]
    if summary["verdict"] == LEAK:
        if len(planted) == 1 and planted[0]["rank"] is not None:
            guesses = _guesses(ceil(planted[0]["rank"]), _space(planted[0]))
            return f"{guesses[:1].upper()}{guesses[1:]}."
        return "Secrets that the model never saw rank as high in fewer than 1 of 100 audits."
    if p is None:
        return "There are no controls to compare with."
    if summary["p_least"] > summary["level"]:
        return (
            f"With so few controls the least p-value is {chance(summary['p_least'])}; "
            f"{summary['level']} is needed. Pass more --controls, or plant longer secrets."
        )
    return f"Secrets that the model never saw rank as high in {percent(p)} of such audits."


def _controls(controls: Sequence[Row], summary: Row) -> str:
    found = []
    if len(controls) == 1:
        found.append(_truth(controls[0]))
    elif controls:
        right = int(summary["controls_right"]) or "No"
        found += [
            f"{right} of {len(controls)} controls is the best guess.".replace("No of", "None of"),
            _ranked("controls", controls),
        ]
    if summary["drawn"] and summary["drawn_median_rank"] is not None:
        bits = decimal(summary["drawn_exposure"], 1)
        found.append(f"{whole(summary['drawn'])} random ones: {bits} bits.")
    return " ".join(found)


def _part(summary: Row, name: str) -> dict[str, Any]:
    """The measures of one group, without its name."""
    return {**summary, **{k.removeprefix(f"{name}_"): v for k, v in summary.items()}}


def _space(row: Row) -> int:
    """The number of secrets; rounding changes only digits that no text shows."""
    return max(round(2 ** float(row["space_bits"])), round(float(row["rank"] or 1)))


def _spaces(rows: Sequence[Row]) -> int:
    return len({row["space_bits"] for row in rows})
