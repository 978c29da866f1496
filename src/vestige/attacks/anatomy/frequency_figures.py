"""Log-probabilities and ranks of words by frequency, in seen and unseen text.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 5: Figure 5, histograms of log-probabilities of the 20 % most frequent
words and of the rest; Figure 6, ranks in the model's predictions against ranks in the table of
frequencies, with the 95 % interval of all occurrences.

Differs from the paper: means have intervals that draw whole people or texts anew, since words of
one are not independent; beside the gap stands a null. Frequencies of the seen text part its words
and those of the unseen text unlike (a word that is rare by a count is on average commoner than that
in other text), so that a gap opens for a model that knows neither; the gap at the same words, each
counted as often in one text as in the other, stands beside and has no such part.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.attacks.anatomy.memorization_result import Figure, Measured, Text, measured
from vestige.attacks.anatomy.token_positions import FrequencyTable, TokenScores
from vestige.metrics.resampling import Estimates, estimates, ratio, resampled_sums

Floats = NDArray[np.float64]
CELLS = 40
"""Of a histogram."""
_FEW = 0.001  # of all words lie below a histogram's first edge, and are counted in its first cell
_NONE = (np.nan, np.nan)  # no interval
Cell = tuple[Figure, Text, str, str]
_MEASURES = ("share", "log_prob", "log_rank", "rank")


@dataclass(frozen=True, kw_only=True)
class Group:
    """Words by their place in the table of frequencies.

    Attributes:
        name: see `Measured.words`.
        start: the first place that belongs to it, from 1.
        stop: the last one.
        matched: only words that stand in both texts, each with equal weight in both.
    """

    name: str
    start: int
    stop: int
    matched: bool = False


def frequent_and_rest(table: FrequencyTable, frequent: float) -> list[Group]:
    """All words, the commonest part of the table, and the rest."""
    last = int(np.ceil(round(frequent * table.size, 6)))
    return [
        Group(name="all", start=1, stop=table.size),
        Group(name="frequent", start=1, stop=last),
        Group(name="rest", start=last + 1, stop=table.size),
    ]


def equal_bins(table: FrequencyTable, bins: int) -> list[Group]:
    """The table in so many parts, as equal as whole words allow."""
    edges = np.arange(bins + 1) * table.size // bins
    pairs = zip(edges.tolist(), edges[1:].tolist(), strict=False)
    return [Group(name="bin", start=a + 1, stop=b) for a, b in pairs if b > a]


def group_weights(
    groups: Sequence[Group], words: TokenScores, other: TokenScores, table: FrequencyTable
) -> Floats:
    """(g, w) how much each word counts in each group, compared with another text's words."""
    places = table.ranks[words.tokens]
    size = len(table.ranks)
    own, others = (np.bincount(one.tokens, minlength=size) for one in (words, other))
    both = (np.minimum(own, others) / np.maximum(own, 1))[words.tokens]
    inside = [(places >= one.start) & (places <= one.stop) for one in groups]
    pairs = zip(inside, groups, strict=True)
    return np.stack([np.where(mine, both if one.matched else 1.0, 0.0) for mine, one in pairs])


def grouped_means(
    words: TokenScores,
    weights: Floats,
    values: Sequence[ArrayLike],
    *,
    resamples: int,
    generator: np.random.Generator,
) -> Floats:
    """Weighted means of some values over the words of each group, with their resamples.

    Args:
        words: w words of n units, which are drawn anew.
        weights: (g, w) at least 0.
        values: m arrays (w,).
        resamples: r.
        generator: draws.

    Returns:
        (1 + r, g, 1 + m): first each group's share of the words, then the means; NaN where a group
        has no word.
    """
    sums = np.zeros((words.n, len(weights), 2 + len(values)))
    sums[:, :, 0] = np.bincount(words.units, minlength=words.n)[:, None]
    for place, weight in enumerate(weights):
        inside = np.flatnonzero(weight)
        units, mass = words.units[inside], weight[inside]
        columns = [mass, *(mass * np.asarray(value, dtype=np.float64)[inside] for value in values)]
        for number, column in enumerate(columns, start=1):
            sums[:, place, number] = np.bincount(units, column, minlength=words.n)
    drawn = resampled_sums(sums, resamples=resamples, generator=generator)
    share = ratio(drawn[:, :, 1:2], drawn[:, :, 0:1])
    return np.concatenate([share, ratio(drawn[:, :, 2:], drawn[:, :, 1:2])], axis=2)


def frequency_figures(
    seen: TokenScores,
    unseen: TokenScores,
    table: FrequencyTable,
    *,
    frequent: float,
    bins: int,
    resamples: int,
    seed: int,
) -> list[Measured]:
    """Figures 5 and 6, the means behind Figure 5, and gaps with their null.

    Args:
        seen: words of text that the model may have learnt.
        unseen: words of text that it has not.
        table: frequencies, with a place for every word of both.
        frequent: share of the table that is called frequent.
        bins: parts of the table.
        resamples: of units, for intervals.
        seed: decides the resamples and the halves of the null.
    """
    panels = frequent_and_rest(table, frequent)
    matched = [
        Group(name=f"{one.name}, same words", start=one.start, stop=one.stop, matched=True)
        for one in panels[1:]
    ]
    parts = equal_bins(table, bins)
    groups = [*panels, *matched, *parts]
    first, second = unseen.halves(np.random.default_rng([seed, 0]))
    pairs: list[tuple[Text, TokenScores, TokenScores]] = [("gap", seen, unseen)]
    if len(first) and len(second):
        pairs.append(("null", unseen.take(first), unseen.take(second)))
    found = histograms(seen, unseen, table, panels[1:])
    for number, (text, one, other) in enumerate(pairs, start=1):
        generator = np.random.default_rng([seed, number])
        weights = [group_weights(groups, *both, table) for both in ((one, other), (other, one))]
        draws = [
            grouped_means(words, weight, _values(words), resamples=resamples, generator=generator)
            for words, weight in zip((one, other), weights, strict=True)
        ]
        counts = [np.count_nonzero(weight, axis=1) for weight in weights]
        if text == "gap":
            found += _rows("seen", groups, estimates(draws[0]), counts[0])
            found += _rows("unseen", groups, estimates(draws[1]), counts[1])
        found += _rows(text, groups, estimates(draws[0] - draws[1]), np.minimum(*counts))
    return found + medians(seen, unseen, table, parts)


def histograms(
    seen: TokenScores, unseen: TokenScores, table: FrequencyTable, groups: Sequence[Group]
) -> list[Measured]:
    """Shares of words by log-probability: Figure 5."""
    both = np.concatenate([seen.log_probs, unseen.log_probs])
    lowest = min(-1.0, float(np.floor(np.quantile(both, _FEW))))
    edges = np.linspace(lowest, 0.0, CELLS + 1)
    found = []
    for group in groups:
        for text, words in _texts(seen, unseen):
            inside = words.log_probs[_inside(words, table, group)]
            counts = np.histogram(np.clip(inside, lowest, 0.0), edges)[0]
            shares = ratio(counts, len(inside))
            cells = zip(edges.tolist(), edges[1:].tolist(), shares, counts, strict=False)
            found += [
                measured(
                    ("log-probabilities", text, group.name, "share"), (a, b), (value, *_NONE), n=n
                )
                for a, b, value, n in cells
            ]
    return found


def medians(
    seen: TokenScores, unseen: TokenScores, table: FrequencyTable, groups: Sequence[Group]
) -> list[Measured]:
    """Median ranks beside the means of Figure 6, which few very large ranks decide."""
    found = []
    for text, words in _texts(seen, unseen):
        for group in groups:
            ranks = words.ranks[_inside(words, table, group)]
            value = float(np.median(ranks)) if len(ranks) else np.nan
            span = (group.start, group.stop)
            cell: Cell = ("ranks", text, group.name, "median_rank")
            found.append(measured(cell, span, (value, *_NONE), n=len(ranks)))
    return found


def _texts(seen: TokenScores, unseen: TokenScores) -> Iterator[tuple[Text, TokenScores]]:
    yield "seen", seen
    yield "unseen", unseen


def _inside(words: TokenScores, table: FrequencyTable, group: Group) -> NDArray[np.bool_]:
    places = table.ranks[words.tokens]
    return (places >= group.start) & (places <= group.stop)


def _values(words: TokenScores) -> list[Floats]:
    ranks = words.ranks.astype(np.float64)
    return [words.log_probs, np.log(ranks), ranks]


def _rows(
    text: Text, groups: Sequence[Group], found: Estimates, counts: NDArray[np.int64]
) -> list[Measured]:
    """The numbers of every group and measure."""
    rows = []
    for place, group in enumerate(groups):
        figure: Figure = "ranks" if group.name == "bin" else "means"
        for column, measure in enumerate(_MEASURES):
            at = (place, column)
            estimate = (float(found.value[at]), float(found.low[at]), float(found.high[at]))
            cell: Cell = (figure, text, group.name, measure)
            rows.append(measured(cell, (group.start, group.stop), estimate, n=counts[place]))
    return rows
