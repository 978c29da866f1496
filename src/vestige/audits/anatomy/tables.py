"""Sentences and tables of an anatomy, from its rows and summary, which hold no text."""

from collections.abc import Iterable, Sequence
from math import exp
from typing import Any

from vestige.reports.blocks import Table
from vestige.reports.words import NOTHING, Row, decimal, ends, listed, percent, whole

WORDS = (
    *("words", "of seen text", "seen", "unseen", "seen less unseen", "95% CI"),
    *("null", "95% CI", "ranks, times", "95% CI"),
)
RANKS = (
    *("position by frequency", "words seen", "mean rank, seen", "95% CI", "unseen", "95% CI"),
    *("ranks, times", "95% CI", "null", "95% CI"),
)
ACCURACY = (
    *("silent", "frequent, seen", "95% CI", "rest, seen", "95% CI"),
    *("frequent, unseen", "rest, unseen"),
)
FALLS = (
    *("silent", "frequent, seen", "95% CI", "rest, seen", "95% CI"),
    *("frequent, unseen", "95% CI", "rest, unseen", "95% CI"),
)
_GROUPS = ("all", "frequent", "rest", "frequent, same words", "rest, same words")


class Numbers:
    """The rows of an `Anatomy` by figure, text, words and measure."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        self._by: dict[tuple[Any, ...], Row] = {}
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


_EMPTY: Row = {"value": None, "low": None, "high": None, "start": None, "stop": None, "n": 0}


def describe_anatomy(summary: Row) -> list[str]:
    """The findings as sentences, the answer first."""
    sentences = [_verdict(summary)]
    if summary["perplexity_ratio"] is not None:
        sentences.append(
            f"Perplexity is {_number(summary['perplexity_seen'])} on seen and "
            f"{_number(summary['perplexity_unseen'])} on unseen text, "
            f"{_times(summary, 'perplexity_ratio')}."
        )
    if summary["rank_ratio_rest_same_words"] is not None:
        sentences.append(
            "The same words rank higher in seen text: frequent ones "
            f"{_times(summary, 'rank_ratio_frequent_same_words')}, others "
            f"{_times(summary, 'rank_ratio_rest_same_words')}. With each text’s own words it is "
            f"{_times(summary, 'rank_ratio_frequent')} and {_times(summary, 'rank_ratio_rest')}."
        )
    return [*sentences, *_silenced(summary), *_shared(summary)]


def _verdict(summary: Row) -> str:
    """The answer, by the words that both texts have."""
    names = [f"rank_ratio_{one}_same_words" for one in ("frequent", "rest")]
    frequent, rest = (_excludes(summary, name) for name in names)
    if frequent is None or rest is None:
        return "There is too little text for an answer."
    if not rest and not frequent:
        return "No memorization shown: the same words rank no higher in seen text."
    if not rest:
        return "The model memorized frequent words only."
    if not frequent:
        return "The model memorized the rarer words only."
    more = summary[f"{names[1]}_low"] > summary[f"{names[0]}_high"]
    return f"The model memorized frequent and rarer words{', the rarer ones more' * more}."


def _excludes(summary: Row, name: str) -> bool | None:
    """Whether the interval of a ratio lies above 1."""
    low = summary[f"{name}_low"]
    return None if low is None else bool(low > 1)


def _silenced(summary: Row) -> list[str]:
    if summary["silenced"] is None:
        return []
    silent = f"With {percent(summary['silenced'])} of the hidden units silent, "
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
    found = [f"{silent}{listed(falls)}."] if falls else []
    return found + ([f"In seen text, {listed(kept)} remain."] if kept else [])


def _shared(summary: Row) -> list[str]:
    both = int(summary["texts_in_both"])
    told = (
        f"{both:,} of {int(summary['unseen_texts']):,} unseen texts are also in the seen text, "
        "which hides memorization."
    )
    return [told] if both else []


def listings(rows: Sequence[Row], summary: Row) -> tuple[Table, ...]:
    """The tables behind the three figures."""
    numbers = Numbers(rows)
    found = [_words(numbers), _ranks(numbers)]
    if summary["silenced"] is not None:
        found += [_accuracy(numbers), _falls(numbers)]
    return tuple(found)


def method(summary: Row) -> str:
    """How it was measured."""
    unit, counted = str(summary["unit"]), str(summary["counted"])
    sentences = [
        f"Words are ordered by how often they occur in the {counted}; the commonest "
        f"{percent(summary['frequent'])} of the {whole(summary['table_words'])} words that occur "
        "are called frequent. Words that the model’s vocabulary lacks and the ends of texts are "
        "left out.",
        f"Intervals ({percent(summary['confidence'])}) resample whole {unit}. The null is the same "
        "difference between two random halves of the unseen text; its interval should contain 0, "
        "or 1 for a ratio.",
        "Log-probabilities are natural logarithms. “Ranks, times” is the ratio of the ranks of "
        "unseen words to those of seen words, by the mean of log ranks.",
    ]
    if summary["counted"] == "seen text":
        sentences.append(
            "The words that are rare in the seen text are not those that are rare in the unseen "
            "text, for any model. “Same words” are in both texts, each counted equally often: the "
            "answer uses only these."
        )
    if summary["silenced"] is not None:
        sentences.append(
            f"Silent units are zero at the output layer, for every word, in "
            f"{whole(summary['orders'])} random orders, which intervals resample too. In that "
            f"figure the commonest {percent(summary['ablated_frequent'])} are frequent."
        )
    return " ".join(sentences)


def _words(numbers: Numbers) -> Table:
    cells = []
    for words in _GROUPS:
        share, seen, unseen = (
            numbers("means", text, words, measure)
            for text, measure in (("seen", "share"), ("seen", "log_prob"), ("unseen", "log_prob"))
        )
        gap, null = (numbers("means", text, words, "log_prob") for text in ("gap", "null"))
        means = (decimal(seen["value"]), decimal(unseen["value"]))
        times = _ratio(numbers("means", "gap", words, "log_rank"))
        cells.append((words, percent(share["value"]), *means, *_cells(gap), *_cells(null), *times))
    return Table(title="Log-probabilities", columns=WORDS, texts=1, rows=tuple(cells))


def _ranks(numbers: Numbers) -> Table:
    cells = []
    for row in numbers.rows:
        if (row["figure"], row["text"], row["measure"]) != ("ranks", "seen", "rank"):
            continue
        start = row["start"]
        gap, null, unseen = (
            numbers("ranks", text, "bin", measure, start)
            for text, measure in (("gap", "log_rank"), ("null", "log_rank"), ("unseen", "rank"))
        )
        means = (*_cells(row, 0), *_cells(unseen, 0))
        places = f"{whole(start)} to {whole(row['stop'])}"
        cells.append((places, whole(row["n"]), *means, *_ratio(gap), *_ratio(null)))
    return Table(title="Ranks by frequency", columns=RANKS, texts=1, rows=tuple(cells))


def _accuracy(numbers: Numbers) -> Table:
    cells = []
    for silent in numbers.silent():
        frequent, rest, *others = (
            numbers("ablation", text, words, "accuracy", silent)
            for text in ("seen", "unseen")
            for words in ("frequent", "rest")
        )
        unseen = [percent(one["value"]) for one in others]
        cells.append((percent(silent), *_shares(frequent), *_shares(rest), *unseen))
    return Table(title="Accuracy with silent units", columns=ACCURACY, texts=1, rows=tuple(cells))


def _falls(numbers: Numbers) -> Table:
    cells = []
    for silent in numbers.silent()[1:]:
        falls = [
            _ratio(numbers("ablation", text, words, "log_rank_lost", silent), sign=1)
            for text in ("seen", "unseen")
            for words in ("frequent", "rest")
        ]
        cells.append((percent(silent), *(cell for fall in falls for cell in fall)))
    title = "Ranks with silent units, times those of the whole model"
    return Table(title=title, columns=FALLS, texts=1, rows=tuple(cells))


def _cells(row: Row, digits: int = 2) -> tuple[str, str]:
    return decimal(row["value"], digits), ends(row["low"], row["high"], digits)


def _shares(row: Row) -> tuple[str, str]:
    low, high = row["low"], row["high"]
    known = NOTHING if low is None else f"{100 * low:.1f} to {100 * high:.1f}%"
    return percent(row["value"]), known


def _ratio(row: Row, sign: int = -1) -> tuple[str, str]:
    """A difference of log ranks as the ratio of unseen ranks to seen ones."""
    if row["value"] is None:
        return NOTHING, NOTHING
    low, high = (None if row[end] is None else exp(sign * row[end]) for end in ("low", "high"))
    return _number(exp(sign * row["value"])), _ends(*((low, high) if sign > 0 else (high, low)))


def _times(summary: Row, name: str) -> str:
    interval = _ends(summary[f"{name}_low"], summary[f"{name}_high"])
    told = f"{_number(summary[name])} times"
    return told if interval == NOTHING else f"{told} ({interval})"


def _ends(low: float | None, high: float | None) -> str:
    known = low is not None and high is not None
    return f"{_number(low)} to {_number(high)}" if known else NOTHING


def _number(value: float | None) -> str:
    """A ratio or perplexity: whole from a hundred on."""
    return NOTHING if value is None else f"{value:,.{0 if value >= 100 else 2}f}"
