"""What does an extraction say in plain English, in a terminal as on a page?

Sentences are made from a run's summary and rows alone. No words of a secret are in them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vestige.metrics.extraction import null_probability
from vestige.reports.numbers import chance, decimal, percent, whole

Row = Mapping[str, Any]
FEW = 5
"""Controls below which they say little about chance."""

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


def entries(rows: Sequence[Row], summary: Row) -> list[dict[str, Any]]:
    """The rows of an extraction or an audit, all with copies, space_bits and hamming_by_chance.

    Copies are None where it is not known how often the secret was said.
    """
    common = {"copies": None}
    common |= {key: summary[key] for key in ("space_bits", "hamming_by_chance") if key in summary}
    return [{**common, **row} for row in rows]


def describe_truth(row: Row) -> str:
    """Where a true secret stands, and what that spares an attacker."""
    who = "A secret that was never said" if row["copies"] == 0 else "The true secret"
    if row["rank"] is None:
        return f"{who} was not ranked: its rank was not asked for."
    space, rank = _space(row), float(row["rank"])
    most = f"of {whole(space)}"
    if row["at_ceiling"]:
        return (
            f"No secret of the sample that it was compared with loses as little: {_lower(who)} "
            f"stands at rank {whole(round(row['rank_high']))} {most} or before, with 95 % "
            "confidence."
        )
    if row["rank_exact"]:
        at = f"rank {whole(rank)} {most}"
    else:
        low, high = (whole(round(row[f"rank_{end}"])) for end in ("low", "high"))
        rank, at = (
            round(rank),
            f"about rank {whole(round(rank))} {most} (95 % interval {low} to {high})",
        )
    if row["copies"] == 0:
        return f"{who} stands at {at}."
    guesses = "1 guess" if rank == 1 else f"{whole(rank)} guesses"
    if rank < space / 2:
        return f"{who} stands at {at}: an attacker needs {guesses}, not {whole(space / 2)}."
    return (
        f"{who} stands at {at}: an attacker needs {guesses} in the model's order, where one who "
        f"knows nothing needs {whole(space / 2)} on average. The model does not help."
    )


def describe_certainty(row: Row, *, among: str) -> str:
    """What the best guess's certainty is, and what it is not."""
    of = f"all {whole(_space(row))} secrets" if among == "all" else "the secrets that were tried"
    return (
        f"Certainty {percent(row['certainty'])}: the best guess's share of the weight exp(-loss) "
        f"of {of}."
    )


def describe_extraction(rows: Sequence[Row], summary: Row) -> list[str]:
    """The answer first, then what it rests on.

    Args:
        rows: `entries` of an extraction, at least one.
        summary: the extraction's.
    """
    known = [row for row in rows if row["truth"] is not None]
    among = summary["certainty_among"]
    if not known:
        one = "It" if len(rows) == 1 else "Each of them"
        certain = (
            [describe_certainty(rows[0], among=among)]
            if len(rows) == 1
            else [f"Mean certainty {percent(summary['certainty'])}."]
        )
        return [
            "These words fit the model best. That does not say that they were ever said to it.",
            *certain,
            _UNDECIDED,
            f"{one} has no rank: that needs the truth.",
        ]
    if len(known) == 1 == len(rows):
        return [describe_truth(rows[0]), _guess_right(rows[0]), *_single(rows[0])]
    return [_came_back("", summary, len(known)), *_ranked("secrets", known)]


def describe_audit(rows: Sequence[Row], summary: Row) -> list[str]:
    """The verdict first, then planted secrets and controls beside each other, then doubts."""
    planted = [row for row in rows if row["copies"]]
    controls = [row for row in rows if not row["copies"]]
    answers = {
        "leaks": "The model gives planted secrets away.",
        "not shown": "No leak is shown, which does not prove that there is none.",
        "controls stand out": "Nothing is shown: secrets that were never planted stand out too, "
        "which chance hardly brings. Were they said elsewhere in the training text?",
        "not ranked": "Nothing is decided: the secrets were not ranked.",
    }
    said = [answers[summary["verdict"]]]
    if len(planted) == 1:
        said += [describe_truth(planted[0]), _guess_right(planted[0])]
    else:
        said.append(_came_back("planted ", _named(summary, "planted"), len(planted)))
        said += _ranked("planted secrets", planted)
    said += _controls(controls, summary)
    probability = summary["planted_chance_probability"]
    if probability is not None:
        said.append(
            "Secrets that the model never saw would stand as high with probability "
            f"{chance(probability)}."
        )
    return [*said, *_doubts(planted, controls)]


def describe_method(summary: Row) -> str:
    """How the guesses were found, in one sentence."""
    searches = [_SEARCHES.get(name, name) for name in str(summary["search"]).split()]
    what = _OBJECTIVES.get(summary["objective"], str(summary["objective"]))
    return f"Search: {' or '.join(searches)}. Minimised: {what}, with the utterance's own labels."


def _controls(controls: Sequence[Row], summary: Row) -> list[str]:
    if not controls:
        return ["The manifest has no controls: nothing says where secrets stand by chance."]
    if len(controls) == 1:
        return [describe_truth(controls[0])]
    back = int(summary["controls_right"])
    first = "No" if back == 0 else f"{back}"
    none = f"{first} secret of {len(controls)} that were never said came up as the best guess."
    return [none, *_ranked("secrets that were never said", controls)]


def _doubts(planted: Sequence[Row], controls: Sequence[Row]) -> list[str]:
    doubts = []
    if 0 < len(controls) < FEW:
        number = "One control says" if len(controls) == 1 else f"{len(controls)} controls say"
        doubts.append(
            f"{number} little about chance: plant with --controls 10 or more for a null to rely on."
        )
    if len(planted) == 1:
        doubts.append("One planted secret says nothing of how often others would be given away.")
    if len(planted) > len({(row["pattern"], row["space_bits"]) for row in planted}):
        doubts.append(
            "Planted secrets of one pattern share the model's guesses: one of them at most can be "
            "the best guess, and the others stand behind it."
        )
    return doubts


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
    probability = null_probability([float(row["rank"])], [_space(row)])
    return [
        f"Had the model never seen it, a secret drawn at random would stand as high with "
        f"probability {chance(probability)}.",
        "This is one trial: for a null, ask a model that never saw the secret, or plant secrets "
        "with controls and ask with --manifest.",
    ]


def _came_back(kind: str, summary: Row, number: int) -> str:
    low, high = summary["accuracy_low"], summary["accuracy_high"]
    return (
        f"{summary['right']} of {number} {kind}secrets came back whole "
        f"(95 % interval {percent(low)} to {percent(high)}), and {percent(summary['hamming'])} of "
        f"their words are wrong, where random guesses have {percent(summary['hamming_by_chance'])}."
    )


def _ranked(what: str, rows: Sequence[Row]) -> list[str]:
    """One sentence about many ranks, where some were asked for."""
    ranked = sorted((row for row in rows if row["rank"] is not None), key=lambda row: row["rank"])
    if not ranked:
        return [f"The {what} were not ranked."]
    spaces = {row["space_bits"] for row in ranked}
    bits = decimal(sum(row["exposure"] for row in ranked) / len(ranked), 1)
    if len(spaces) > 1:
        return [f"The {what} are exposed by {bits} bits on average."]
    middle = (ranked[(len(ranked) - 1) // 2]["rank"] + ranked[len(ranked) // 2]["rank"]) / 2
    return [
        f"The {what} stand at rank {whole(middle)} of {whole(_space(ranked[0]))} (median), "
        f"exposed by {bits} bits on average."
    ]


def _named(summary: Row, name: str) -> dict[str, Any]:
    """The measures of one group without its name."""
    return {**summary, **{k.removeprefix(f"{name}_"): v for k, v in summary.items()}}


def _space(row: Row) -> int:
    """How many secrets there are; rounding hides only digits that no text shows."""
    return max(round(2 ** float(row["space_bits"])), round(float(row["rank"] or 1)))


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]
