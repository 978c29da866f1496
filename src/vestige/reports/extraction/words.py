"""Verdicts of an extraction in plain English, for a terminal and a page.

Sentences are made from a run's summary and rows alone. No words of a secret are in them.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any

from vestige.claims import LEAK
from vestige.metrics.extraction import null_probability
from vestige.reports.extraction.tables import median_rank
from vestige.reports.numbers import Row, chance, decimal, percent, whole

_OBJECTIVES = {
    "joint": "the summed loss of intent and tags",
    "tags": "the loss of the tags alone",
    "intent": "the loss of the intent alone",
    "calibrated": "the summed loss less that of models that never saw the secrets",
}
_SEARCHES = {
    "exact": "every secret was tried",
    "coordinate": "coordinate descent from many starts",
    "beam": "a beam from left to right",
    "gradient": "swaps that the gradient proposes",
    "paper": "the paper's discrete optimisation",
    "embedding": "the paper's trivial attack in the space of vectors",
    "random": "random guesses",
}
_UNDECIDED = (
    "Every model prefers some words to others, also one that was never told a secret. What tells "
    "memory from habit is the truth (--truth), planted secrets with controls (--manifest), or the "
    "same question to a model that never saw the data."
)
_ONE_SECRET = "One planted secret says nothing of how often others would be given away."
_ONE_MODEL = "Of another training of the same kind this says nothing: ask several models."
_ONE_PATTERN = (
    "Planted secrets of one pattern share the model's guesses: one of them at most can be the best "
    "guess, and the others stand behind it."
)


def entries(rows: Sequence[Row], summary: Row) -> list[dict[str, Any]]:
    """The rows of an extraction or an audit, all with what only one of them has.

    Copies are None where it is not known how often the secret was planted.
    """
    common: dict[str, Any] = {"copies": None, "drawn": False, "model": 1}
    common |= {key: summary[key] for key in ("space_bits", "hamming_by_chance") if key in summary}
    return [{**common, **row} for row in rows]


def describe_truth(row: Row) -> str:
    """Where a true secret stands, and what that spares an attacker."""
    who = "A secret that was never planted" if row["copies"] == 0 else "The true secret"
    if row["rank"] is None:
        return f"{who} was not ranked: its rank was not asked for."
    space, rank = _space(row), float(row["rank"])
    most = f"of {whole(space)}"
    if row["rank_known"] == "bounded":
        return f"{who} stands at rank {whole(ceil(rank))} {most} or before: {_bound(row)}."
    if row["rank_known"] == "exact":
        at = f"rank {whole(rank)} {most}"
    else:
        low, high = (whole(round(row[f"rank_{end}"])) for end in ("low", "high"))
        rank = round(rank)
        at = f"about rank {whole(rank)} {most} (95 % interval {low} to {high})"
    if row["copies"] == 0:
        return f"{who} stands at {at}."
    return f"{who} stands at {at}: {_guesses(rank, space)}."


def _guesses(rank: float, space: int) -> str:
    """What a rank spares somebody who goes down the model's list."""
    guesses = "1 guess" if rank == 1 else f"{whole(rank)} guesses"
    if rank < space / 2:
        return f"an attacker needs {guesses}, not {whole(space / 2)}"
    return (
        f"an attacker needs {guesses} in the model's order, where one who knows nothing needs "
        f"{whole(space / 2)} on average; the model does not help"
    )


def _bound(row: Row) -> str:
    """Why no more than a bound is known of a rank."""
    others = whole(row["compared_with"])
    found = f"none of {others} random secrets loses as little (95 % confidence)"
    better = round(float(row["rank_low"])) - 1
    if better:
        return f"{found}, and the search found {whole(better)} that lose less"
    if row["right"] and row["tried"]:
        return f"{found}, nor does any other of the {whole(row['tried'])} that the search tried"
    return found


def describe_certainty(row: Row, *, among: str) -> str:
    """What the best guess's certainty is, and what it is not."""
    of = f"all {whole(_space(row))} secrets" if among == "all" else "the secrets that were tried"
    return (
        f"Certainty {percent(row['certainty'])}: the best guess's share of the weight exp(-loss) "
        f"of {of}."
    )


def describe_extraction(rows: Sequence[Row], summary: Row) -> list[str]:
    """The answer first, then what it rests on; `rows` are `entries` of an extraction."""
    known = [row for row in rows if row["truth"] is not None]
    if not known:
        one, certain = "Each of them", f"Mean certainty {percent(summary['certainty'])}."
        if len(rows) == 1:
            one, certain = "It", describe_certainty(rows[0], among=summary["certainty_among"])
        return [
            "These words fit the model best. That does not show that they stood in its text.",
            certain,
            _UNDECIDED,
            f"{one} has no rank: that needs the truth.",
        ]
    if len(known) == 1 == len(rows):
        return [describe_truth(rows[0]), _guess_right(rows[0]), *_single(rows[0])]
    return [_came_back("", summary, len(known)), *_ranked("secrets", known)]


def describe_audit(rows: Sequence[Row], summary: Row) -> list[str]:
    """Where planted secrets stand, what that means, what it rests on and what it does not say.

    The verdict is the summary's; it goes by the same places that the first sentence states.
    """
    planted = [row for row in rows if row["copies"]]
    controls = [row for row in rows if row["copies"] == 0 and not row["drawn"]]
    sentences = [_places(planted, summary), _meaning(planted, summary)]
    if len(planted) == 1:
        sentences.append(_guess_right(planted[0]))
    else:
        sentences.append(_came_back("planted ", _named(summary, "planted"), len(planted)))
    return [*sentences, *_controls(controls, summary), *_doubts(summary)]


def describe_method(summary: Row) -> str:
    """How the guesses were found, in one sentence."""
    searches = [_SEARCHES.get(name, name) for name in str(summary["search"]).split()]
    what = _OBJECTIVES.get(summary["objective"], str(summary["objective"]))
    return f"Search: {' or '.join(searches)}. Minimised: {what}, with the utterance's own labels."


def _places(planted: Sequence[Row], summary: Row) -> str:
    """The first sentence of an audit: ranks, and places among secrets that were never planted."""
    value, models = summary["p_value"], summary["models"]
    p = "" if value is None else f" (p = {chance(value)})"
    ranked = [row for row in planted if row["rank"] is not None]
    if len(planted) == 1:
        at = f"stands at {_at(planted[0])}" if ranked else "was not ranked"
        return f"The planted secret {at}{_among(planted[0])}{p}."
    number = int(summary["planted"])
    who = "the planted secret" if number == 1 else f"the first of {whole(number)} planted secrets"
    who = f"In {models} models {who}" if models > 1 else f"T{who[1:]}"
    if not ranked:
        return f"{who} was not ranked{p}."
    first = min(ranked, key=lambda row: (row["rank"] / _space(row), row["truth_loss"]))
    at = f"{who} stands at {_at(first)}{_among(first)}"
    middle = "" if _spaces(ranked) > 1 else f"; the median of all is rank {median_rank(ranked)}"
    return f"{at}{middle}{p}."


def _at(row: Row) -> str:
    """A rank among all secrets, in words."""
    most = f"of {whole(_space(row))}"
    if row["rank_known"] == "bounded":
        return f"rank {whole(ceil(row['rank']))} {most} or before"
    about = "" if row["rank_known"] == "exact" else "about "
    return f"{about}rank {whole(row['rank'] if not about else round(row['rank']))} {most}"


def _among(row: Row) -> str:
    before, asked = row["controls_before"], row["controls_asked"]
    if not asked:
        return ""
    if not before:
        return f", before all {whole(asked)} secrets that were never planted"
    return f"; {whole(before)} of {whole(asked)} secrets that were never planted stand as high"


def _meaning(planted: Sequence[Row], summary: Row) -> str:
    """The second sentence of an audit: the verdict."""
    verdict, value = summary["verdict"], summary["p_value"]
    if verdict == LEAK:
        why = "secrets that the model never saw rank as high in fewer than 1 of 100 audits"
        if len(planted) == 1 and planted[0]["rank"] is not None:
            why = _guesses(ceil(planted[0]["rank"]), _space(planted[0]))
        return f"The model reveals planted secrets: {why}."
    if value is None:
        return "No secret that was never planted could be compared."
    if summary["p_least"] > summary["level"]:
        return (
            f"With so few controls the smallest possible p-value is {chance(summary['p_least'])}; "
            f"{summary['level']} is needed. Pass more --controls, or plant longer secrets."
        )
    return f"Secrets that the model never saw rank as high in {percent(value)} of such audits."


def _controls(controls: Sequence[Row], summary: Row) -> list[str]:
    sentences = []
    if len(controls) == 1:
        sentences.append(describe_truth(controls[0]))
    elif controls:
        first = int(summary["controls_right"]) or "No"
        sentences.append(
            f"{first} secret of {len(controls)} that were never planted came up as the best guess."
        )
        sentences += _ranked("secrets that were never planted", controls)
    if summary["drawn"] and summary["drawn_median_rank"] is not None:
        sentences.append(
            f"{whole(summary['drawn'])} more of them, drawn for this audit, are exposed by "
            f"{decimal(summary['drawn_exposure'], 1)} bits on average."
        )
    stray = summary["controls_p_value"]
    if stray is not None and stray <= summary["level"]:
        sentences.append(
            f"The manifest's controls stand higher than those drawn now (p = {chance(stray)}): "
            "chance does that in 1 of 100 audits, and so do words that they share with a secret "
            "that was planted, or that they stand elsewhere in the training text. Planted secrets "
            "are compared with all of them, which makes a leak harder to show, never easier."
        )
    return sentences


def _doubts(summary: Row) -> list[str]:
    doubts = (
        ("Other attacks may still succeed.", summary["verdict"] != LEAK),
        (_ONE_SECRET, summary["planted"] == 1),
        (_ONE_MODEL, summary["models"] == 1),
        (_ONE_PATTERN, summary["planted"] > summary["patterns"]),
    )
    return [doubt for doubt, holds in doubts if holds]


def _guess_right(row: Row) -> str:
    if row["right"]:
        return "The best guess is right."
    wrong = percent(row["hamming"])
    return (
        f"The best guess is not right: {wrong} of its words are wrong, where random guesses have "
        f"{percent(row['hamming_by_chance'])}."
    )


def _single(row: Row) -> list[str]:
    if row["rank"] is None:
        return []
    probability = (
        1 / (1 + row["compared_with"])  # it stands before all of the sample, itself one of them
        if row["rank_known"] == "bounded"
        else null_probability([float(row["rank"])], [_space(row)])
    )
    return [
        f"Had the model never seen it, a secret drawn at random would stand as high with "
        f"probability {chance(probability)}.",
        "This is one trial: for a null, ask a model that never saw the secret, or plant secrets "
        "with controls and ask with --manifest.",
    ]


def _came_back(kind: str, summary: Row, number: int) -> str:
    low, high = summary["accuracy_low"], summary["accuracy_high"]
    ends = "" if low is None else f" (95 % interval {percent(low)} to {percent(high)})"
    return (
        f"{summary['right']} of {number} {kind}secrets were extracted whole{ends}; "
        f"{percent(summary['hamming'])} of their words are wrong, against "
        f"{percent(summary['hamming_by_chance'])} of random guesses."
    )


def _ranked(what: str, rows: Sequence[Row]) -> list[str]:
    """One sentence about many ranks, where some were asked for."""
    ranked = [row for row in rows if row["rank"] is not None]
    if not ranked:
        return [f"The {what} were not ranked."]
    least = "at least " if any(row["rank_known"] == "bounded" for row in ranked) else ""
    bits = least + decimal(sum(row["exposure"] for row in ranked) / len(ranked), 1)
    if _spaces(ranked) > 1:
        return [f"The {what} are exposed by {bits} bits on average."]
    return [
        f"The {what} stand at rank {median_rank(ranked)} of {whole(_space(ranked[0]))} (median), "
        f"exposed by {bits} bits on average."
    ]


def _named(summary: Row, name: str) -> dict[str, Any]:
    """The measures of one group without its name."""
    return {**summary, **{k.removeprefix(f"{name}_"): v for k, v in summary.items()}}


def _space(row: Row) -> int:
    """How many secrets there are; rounding hides only digits that no text shows."""
    return max(round(2 ** float(row["space_bits"])), round(float(row["rank"] or 1)))


def _spaces(rows: Sequence[Row]) -> int:
    return len({row["space_bits"] for row in rows})
