"""What a search for an update's phrases says in words, on terminal and page alike."""

from collections.abc import Mapping
from typing import Any

PROVES_NOTHING = (
    "That proves nothing: the search is a heuristic. vestige rank and vestige exposure ask for a "
    "phrase that you know."
)

EXTRAPOLATED = (
    "An extrapolated E-value assumes the shape of a tail and decides nothing; it errs more often "
    "than it states where null searches are few."
)


def verdict(summary: Mapping[str, Any]) -> str:
    """The number of phrases first, then what null searches say of them, then what that leaves open.

    Args:
        summary: of an `UpdateDiff`.
    """
    phrases, nulls = summary["phrases"], summary.get("null_searches") or 0
    if not phrases:
        return _none(summary.get("fragments") or 0)
    number = _count(phrases, "phrase")
    if not nulls and summary.get("found") is not None:
        return (
            f"{number} that the update promoted most, compared with one null model by a rule that "
            "errs more often than it states. Repeat the run."
        )
    if not nulls:
        return (
            f"{number} that the update promoted most. No null model was given, so nothing says "
            "which of these scores chance could reach."
        )
    if summary.get("found") is None:
        return f"{number} that the update promoted most. {_best(summary, nulls)}"
    found = summary["found"]
    if not found:
        return f"0 of {number} {_are(0)} found. {_best(summary, nulls)} {PROVES_NOTHING}"
    return (
        f"{found} of {number} {_are(found)} found: by {_count(nulls, 'null search', 'es')}, a "
        "clean update has any such phrase at most once in 20 times. What is found need not have "
        "stood in its text: models also compose."
    )


def reached(by: int | None, nulls: int) -> str:
    """How many null searches reached a score, for a cell of a table."""
    return "–" if by is None else f"{by} of {nulls}"


def _none(fragments: int) -> str:
    told = "0 phrases: the search found none that the update promoted."
    if not fragments:
        return f"{told} {PROVES_NOTHING}"
    listed = f"{_count(fragments, 'fragment')} of a laxer search {_are(fragments)} listed"
    return f"{told} {listed}, which cannot be told from chance. {PROVES_NOTHING}"


def _best(summary: Mapping[str, Any], nulls: int) -> str:
    """What null searches say of the best phrase, where none can be called found."""
    score, by = summary["top_score"], summary["top_reached_by"]
    searches = _count(nulls, "null search", "es")
    if by:
        return (
            f"{by} of {searches} reached the best score, {score:.2f}: nothing here can be told "
            "from chance."
        )
    alone = f"No null search of {nulls} reached the best score, {score:.2f}; chance alone "
    alone += f"comes out so 1 time in {nulls + 1}."
    return f"{alone} It takes 19 null models to call a phrase found."


def _count(number: int, name: str, plural: str = "s") -> str:
    return f"{number:,} {name}{'' if number == 1 else plural}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
