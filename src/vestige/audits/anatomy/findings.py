"""The findings of an anatomy: entries of its summary, and sentences."""

from collections.abc import Callable, Iterable
from math import exp
from typing import Any

from vestige.reports.words import NOTHING, Row, listed, percent

_TEXTS = ("seen", "unseen")
_DIFFERENCES = (("gap", ""), ("null", "_null"))
_GROUPS = ("frequent", "rest", "frequent, same words", "rest, same words")
"""If words are counted in the seen text, only "same words" are comparable: the other groups have
different words in each text, for any model."""

_EMPTY: Row = {"value": None, "low": None, "high": None, "start": None, "stop": None, "n": 0}


class RowIndex(dict[tuple[object, ...], Row]):
    """Rows by figure, text, words, measure and optionally start; a missing row is empty."""

    def __init__(self, rows: Iterable[Row]) -> None:
        for row in rows:
            key = tuple(row[name] for name in ("figure", "text", "words", "measure", "start"))
            self.setdefault(key, row)
            self.setdefault(key[:4], row)

    def __missing__(self, key: tuple[object, ...]) -> Row:
        return _EMPTY

    def starts(self, figure: str) -> list[Any]:
        """The starts of a figure in order; in the ablation, shares of silent units from 0 on."""
        return list(dict.fromkeys(row["start"] for row in self.values() if row["figure"] == figure))


def word_findings(rows: RowIndex) -> dict[str, Any]:
    """Perplexities, shares and gaps; gaps are seen minus unseen, in natural logarithms."""
    findings: dict[str, Any] = {}
    for text in _TEXTS:
        mean = rows["means", text, "all", "log_prob"]
        findings[f"perplexity_{text}"] = _exp(mean["value"], -1)
    findings |= _columns("perplexity_ratio", as_ratio(rows["means", "gap", "all", "log_prob"]))
    for text in _TEXTS:
        findings[f"frequent_share_{text}"] = rows["means", text, "frequent", "share"]["value"]
    for words in _GROUPS:
        name = words.replace(", ", "_").replace(" ", "_")
        for text, ending in _DIFFERENCES:
            log_prob = rows["means", text, words, "log_prob"]
            log_rank = rows["means", text, words, "log_rank"]
            findings |= _columns(f"log_prob_gap_{name}{ending}", log_prob)
            findings |= _columns(f"rank_ratio_{name}{ending}", as_ratio(log_rank, sign=-1))
    return findings


def unit_findings(rows: RowIndex) -> dict[str, Any]:
    """Kept accuracy and lost ranks at the share of silent units nearest to a half."""
    shares = rows.starts("ablation")[1:]
    half = min(shares, key=lambda share: (abs(share - 0.5), share), default=None)
    findings: dict[str, Any] = {"silenced": half}
    if half is None:
        return findings

    def fall(text: str, words: str) -> Row:
        return as_ratio(rows["ablation", text, words, "log_rank_lost", half])

    for text in _TEXTS:
        for words in ("frequent", "rest"):
            kept = rows["ablation", text, words, "kept", half]
            findings |= _columns(f"kept_{words}_{text}", kept)
            findings |= _columns(f"rank_fall_{words}_{text}", fall(text, words))
    difference = rows["ablation", "seen", "frequent - rest", "kept", half]
    findings |= _columns("kept_difference", difference)
    findings |= _columns("rank_fall_rest_ratio", fall("gap", "rest"))
    return findings | _columns("rank_fall_rest_null", fall("null", "rest"))


def _columns(name: str, row: Row) -> dict[str, Any]:
    return {name: row["value"], f"{name}_low": row["low"], f"{name}_high": row["high"]}


def as_ratio(row: Row, *, sign: int = 1) -> Row:
    """A difference of logarithms as a ratio with its interval; inverted if the sign is -1."""
    value, low, high = (_exp(row[name], sign) for name in ("value", "low", "high"))
    low, high = (low, high) if sign > 0 else (high, low)
    return {"value": value, "low": low, "high": high}


def _exp(value: float | None, sign: int) -> float | None:
    """exp of the signed value; None if it is missing or too large for a float."""
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
    """The answer, from the intervals of the words that are in both texts."""
    frequent = summary["rank_ratio_frequent_same_words_low"]
    rest = summary["rank_ratio_rest_same_words_low"]
    if frequent is None or rest is None:
        return "There is too little text for an answer."
    match [frequent > 1, rest > 1]:
        case [False, False]:
            return "No memorization shown: the same words rank no higher in seen text."
        case [True, False]:
            return "The model memorized frequent words only."
        case [False, True]:
            return "The model memorized the rarer words only."
    rest_more = rest > summary["rank_ratio_frequent_same_words_high"]
    more = ", the rarer ones more" if rest_more else ""
    return f"The model memorized frequent and rarer words{more}."


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
    sentences = [f"{silent}{listed(falls)}."] if falls else []
    return sentences + ([f"In seen text, {listed(kept)} remain."] if kept else [])


def _times(summary: Row, name: str) -> str:
    row = {"value": summary[name], "low": summary[f"{name}_low"], "high": summary[f"{name}_high"]}
    return cell(row, number, unit=" times")


def cell(row: Row, show: Callable[[float | None], str], unit: str = "") -> str:
    """A number with its interval in brackets, if it has one."""
    value, low, high = (row[name] for name in ("value", "low", "high"))
    ends = "" if low is None or high is None else f" ({show(low)} to {show(high)})"
    return f"{show(value)}{unit}{ends}"


def ratio_cell(row: Row, *, sign: int = 1) -> str:
    """A difference of log ranks as a ratio: of unseen ranks to seen ones if `sign` is -1."""
    return cell(as_ratio(row, sign=sign), number)


def number(value: float | None) -> str:
    """A ratio or perplexity, without decimals from a hundred on."""
    return NOTHING if value is None else f"{value:,.{0 if value >= 100 else 2}f}"
