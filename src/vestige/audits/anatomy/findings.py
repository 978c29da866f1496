"""The summary of an anatomy, from its rows, and its sentences."""

from collections.abc import Iterable
from math import exp
from typing import Any

from vestige.reports.words import NOTHING, Row, listed, percent

_TEXTS = ("seen", "unseen")
_DIFFERENCES = (("gap", ""), ("null", "_null"))
_GROUPS = ("frequent", "rest", "frequent, same words", "rest, same words")
"""Only "same words" compare fairly if words are counted in the seen text: the other groups are
different words in each text, for any model."""

_EMPTY: Row = {"value": None, "low": None, "high": None, "start": None, "stop": None, "n": 0}


class Numbers:
    """The rows by figure, text, words and measure."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        self._by: dict[tuple[object, ...], Row] = {}
        for row in self.rows:
            key = (row["figure"], row["text"], row["words"], row["measure"], row["start"])
            self._by.setdefault(key, row)
            self._by.setdefault(key[:4], row)

    def __call__(self, *key: object) -> Row:
        """The row of figure, text, words, measure and perhaps start; a row of Nones if missing."""
        return self._by.get(key, _EMPTY)

    def silent(self) -> list[float]:
        """The shares of silent units in order, 0 first."""
        return list(dict.fromkeys(r["start"] for r in self.rows if r["figure"] == "ablation"))


def word_findings(rows: Iterable[Row]) -> dict[str, Any]:
    """Perplexities, shares and gaps; differences are seen less unseen, natural logarithms."""
    numbers = Numbers(rows)
    found: dict[str, Any] = {}
    for text in _TEXTS:
        mean = numbers("means", text, "all", "log_prob")
        found[f"perplexity_{text}"] = _exp(mean["value"], -1)
    found |= _ratio("perplexity_ratio", numbers("means", "gap", "all", "log_prob"))
    for text in _TEXTS:
        found[f"frequent_share_{text}"] = numbers("means", text, "frequent", "share")["value"]
    for words in _GROUPS:
        name = words.replace(", ", "_").replace(" ", "_")
        for text, ending in _DIFFERENCES:
            log_prob, log_rank = (
                numbers("means", text, words, measure) for measure in ("log_prob", "log_rank")
            )
            found |= _ends(f"log_prob_gap_{name}{ending}", log_prob)
            found |= _ratio(f"rank_ratio_{name}{ending}", log_rank, sign=-1)
    return found


def unit_findings(rows: Iterable[Row]) -> dict[str, Any]:
    """What is kept and lost at the share of silent units that is nearest to a half."""
    numbers = Numbers(rows)
    half = min(numbers.silent()[1:], key=lambda share: (abs(share - 0.5), share), default=None)
    found: dict[str, Any] = {"silenced": half}
    if half is None:
        return found
    for text in _TEXTS:
        for words in ("frequent", "rest"):
            kept, lost = (
                numbers("ablation", text, words, measure, half)
                for measure in ("kept", "log_rank_lost")
            )
            found |= _ends(f"kept_{words}_{text}", kept)
            found |= _ratio(f"rank_fall_{words}_{text}", lost)
    difference = numbers("ablation", "seen", "frequent - rest", "kept", half)
    found |= _ends("kept_difference", difference)
    for text, ending in _DIFFERENCES:
        fall = numbers("ablation", text, "rest", "log_rank_lost", half)
        found |= _ratio(f"rank_fall_rest{ending or '_ratio'}", fall)
    return found


def _ends(name: str, row: Row) -> dict[str, Any]:
    return {name: row["value"], f"{name}_low": row["low"], f"{name}_high": row["high"]}


def _ratio(name: str, row: Row, *, sign: int = 1) -> dict[str, Any]:
    """A difference of logarithms as a ratio."""
    return _ends(name, as_ratio(row, sign=sign))


def as_ratio(row: Row, *, sign: int) -> Row:
    """The exponential of a difference of logarithms with its interval; of its negative if -1."""
    value, low, high = (_exp(row[name], sign) for name in ("value", "low", "high"))
    if sign < 0:
        low, high = high, low
    return {"value": value, "low": low, "high": high}


def _exp(value: float | None, sign: int) -> float | None:
    """exp of the signed value; None beyond what a float holds."""
    return exp(sign * value) if value is not None and sign * value < 700 else None


def sentences_of(summary: Row) -> list[str]:
    """The findings as sentences, the answer first."""
    sentences = [_answer(summary)]
    if summary["perplexity_ratio"] is not None:
        seen, unseen = (number(summary[f"perplexity_{text}"]) for text in _TEXTS)
        sentences.append(
            f"Perplexity is {seen} on seen and {unseen} on unseen text, "
            f"{_times(summary, 'perplexity_ratio')}."
        )
    if summary["rank_ratio_rest_same_words"] is not None:
        sentences.append(
            "The same words rank higher in seen text: frequent ones "
            f"{_times(summary, 'rank_ratio_frequent_same_words')}, others "
            f"{_times(summary, 'rank_ratio_rest_same_words')}. With each text’s own words it is "
            f"{_times(summary, 'rank_ratio_frequent')} and {_times(summary, 'rank_ratio_rest')}."
        )
    if summary["silenced"] is not None:
        sentences += _silenced(summary)
    if summary["texts_in_both"]:
        sentences.append(
            f"{summary['texts_in_both']:,} of {summary['unseen_texts']:,} unseen texts are also in "
            "the seen text, which hides memorization."
        )
    return sentences


def _answer(summary: Row) -> str:
    """By the intervals of the words that both texts have."""
    names = [f"rank_ratio_{one}_same_words" for one in ("frequent", "rest")]
    lows = [summary[f"{name}_low"] for name in names]
    if None in lows:
        return "There is too little text for an answer."
    frequent, rest = (low > 1 for low in lows)
    if not rest and not frequent:
        return "No memorization shown: the same words rank no higher in seen text."
    if not rest:
        return "The model memorized frequent words only."
    if not frequent:
        return "The model memorized the rarer words only."
    more = lows[1] > summary[f"{names[0]}_high"]
    return f"The model memorized frequent and rarer words{', the rarer ones more' * more}."


def _silenced(summary: Row) -> list[str]:
    falls = [
        f"{name} rank {_times(summary, f'rank_fall_{key}')} lower"
        for key, name in (
            ("frequent_seen", "the frequent words of seen text"),
            ("rest_seen", "its other words"),
            ("rest_unseen", "the other words of unseen text"),
        )
        if summary[f"rank_fall_{key}"] is not None
    ]
    kept = [
        f"{percent(summary[f'kept_{words}_seen'])} of the accuracy on {name}"
        for words, name in (("frequent", "frequent words"), ("rest", "others"))
        if summary[f"kept_{words}_seen"] is not None
    ]
    silent = f"With {percent(summary['silenced'])} of the hidden units silent, "
    found = [f"{silent}{listed(falls)}."] if falls else []
    return found + ([f"In seen text, {listed(kept)} remain."] if kept else [])


def _times(summary: Row, name: str) -> str:
    interval = between(summary[f"{name}_low"], summary[f"{name}_high"])
    times = f"{number(summary[name])} times"
    return times if interval == NOTHING else f"{times} ({interval})"


def between(low: float | None, high: float | None) -> str:
    """The interval of a ratio."""
    return NOTHING if low is None or high is None else f"{number(low)} to {number(high)}"


def number(value: float | None) -> str:
    """A ratio or perplexity: whole from a hundred on."""
    return NOTHING if value is None else f"{value:,.{0 if value >= 100 else 2}f}"
