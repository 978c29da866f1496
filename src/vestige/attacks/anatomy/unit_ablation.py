"""Ablation of hidden units: accuracy on frequent and on rare words.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 5, Figure 7: a random part of the hidden units is set to zero, 10 % to
50 % or 90 % of them, and the accuracy of word prediction on training text is given for the 10 %
most frequent words and for the rest.

Differs from the paper: several random orders in place of one, the same ones for all texts; unseen
text beside the training text; accuracy also as a part of what the whole model reaches ("kept"),
since the two groups of words seldom begin alike. Rare words are seldom listed first at all, so
that log-probabilities and log ranks stand beside; of these, ranks tell more: silence makes any
prediction flatter, which alone is good for the probability of rare words. Resamples draw units of
text and orders anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.anatomy.frequency_figures import frequent_and_rest, group_weights
from vestige.attacks.anatomy.memorization_result import Measured, Text, measured
from vestige.attacks.anatomy.token_positions import FrequencyTable, TokenScores
from vestige.metrics.resampling import drawn_counts, estimates, ratio, resampled_sums

Floats = NDArray[np.float64]
_NAMES = ("all", "frequent", "rest", "frequent - rest")
_MEASURES = ("accuracy", "kept", "log_prob", "log_prob_lost", "log_rank", "log_rank_lost")


@dataclass(frozen=True, kw_only=True)
class SilencedWords:
    """Scores of w words while hidden units are silent.

    Attributes:
        words: what it says with all of its units.
        ranks: (o, f, w) from 1, by order and share of silenced units.
        log_probs: (o, f, w) natural logarithms.
    """

    words: TokenScores
    ranks: NDArray[np.int32]
    log_probs: Floats

    def take(self, chosen: NDArray[np.int64]) -> "SilencedWords":
        """Some of the words."""
        return SilencedWords(
            words=self.words.take(chosen),
            ranks=self.ranks[:, :, chosen],
            log_probs=self.log_probs[:, :, chosen],
        )


def ablation_figure(
    seen: SilencedWords,
    unseen: SilencedWords,
    table: FrequencyTable,
    *,
    silenced: Sequence[float],
    frequent: float,
    resamples: int,
    seed: int,
) -> list[Measured]:
    """Figure 7 for seen and unseen text, with their gap and its null.

    Args:
        seen: of text that the model may have learnt.
        unseen: of text that it has not.
        table: frequencies.
        silenced: f shares of units, in the order of the arrays.
        frequent: share of the table that is called frequent.
        resamples: of units and orders.
        seed: decides the resamples and the halves of the null.
    """
    orders = seen.ranks.shape[0]
    turns = _order_weights(orders, resamples, np.random.default_rng([seed, 0]))
    first, second = unseen.words.halves(np.random.default_rng([seed, 1]))
    pairs: list[tuple[Text, SilencedWords, SilencedWords]] = [("gap", seen, unseen)]
    if len(first) and len(second):
        pairs.append(("null", unseen.take(first), unseen.take(second)))
    shares, found = (0.0, *silenced), []
    for number, (text, one, other) in enumerate(pairs, start=2):
        generator = np.random.default_rng([seed, number])
        draws, counts = [], []
        for mine, theirs in ((one, other), (other, one)):
            weights = group_weights(
                frequent_and_rest(table, frequent), mine.words, theirs.words, table
            )
            draws.append(_curves(mine, weights, turns, generator))
            counts.append(np.count_nonzero(weights, axis=1))
        if text == "gap":
            found += _rows("seen", draws[0], counts[0], shares)
            found += _rows("unseen", draws[1], counts[1], shares)
        found += _rows(text, draws[0] - draws[1], np.minimum(*counts), shares)
    return found


def _curves(
    silenced: SilencedWords, weights: Floats, turns: Floats, generator: np.random.Generator
) -> Floats:
    """(1 + r, 1 + f, 4, 6): by resample, share silenced, words (`_NAMES`) and `_MEASURES`."""
    sums = _unit_sums(silenced, weights)
    drawn = resampled_sums(sums, resamples=len(turns) - 1, generator=generator)
    # (1 + r, g, o, 1 + f, 3) means by order, then over orders
    means = ratio(drawn[..., :3], drawn[..., 3:])
    accuracy, log_prob, log_rank = np.moveaxis(np.einsum("rgofm,ro->rfgm", means, turns), -1, 0)
    changes = (log_prob[:, :1] - log_prob, log_rank, log_rank - log_rank[:, :1])
    columns = (accuracy, ratio(accuracy, accuracy[:, :1]), log_prob, *changes)
    table = np.stack(columns, axis=-1)
    return np.concatenate([table, table[:, :, 1:2] - table[:, :, 2:3]], axis=2)


def _unit_sums(silenced: SilencedWords, weights: Floats) -> Floats:
    """(n, g, o, 1 + f, 4) sums of accuracy, log-probability, log rank and weight by unit; the first
    of the f is the whole model."""
    words = silenced.words
    orders, levels, _ = silenced.ranks.shape
    sums = np.zeros((words.n, len(weights), orders, 1 + levels, 4))
    for place, weight in enumerate(weights):
        inside = np.flatnonzero(weight)
        units = words.units[inside]

        def added(
            ranks: NDArray[np.integer], log_probs: Floats, units: NDArray[np.int64] = units
        ) -> Floats:
            values = (ranks == 1, log_probs, np.log(ranks), np.ones(len(units)))
            return np.stack([np.bincount(units, one, minlength=words.n) for one in values], axis=1)

        sums[:, place, :, 0] = added(words.ranks[inside], words.log_probs[inside])[:, None]
        for order, level in np.ndindex(orders, levels):
            cell = (order, level, inside)
            sums[:, place, order, 1 + level] = added(silenced.ranks[cell], silenced.log_probs[cell])
    return sums


def _order_weights(orders: int, resamples: int, generator: np.random.Generator) -> Floats:
    """(1 + r, o) weights of the orders, which sum to 1; one order is never drawn anew."""
    whole = np.full((1, orders), 1 / orders)
    if orders == 1:
        return np.repeat(whole, 1 + resamples, axis=0)
    return np.concatenate([whole, drawn_counts(orders, resamples, generator) / (orders - 1)])


def _rows(
    text: Text, draws: Floats, counts: NDArray[np.int64], shares: Sequence[float]
) -> list[Measured]:
    found = estimates(draws)
    sizes = [*counts.tolist(), int(counts[1:].min())]
    return [
        measured(
            ("ablation", text, _NAMES[group], _MEASURES[measure]),
            (shares[level], shares[level]),
            (
                float(found.value[level, group, measure]),
                float(found.low[level, group, measure]),
                float(found.high[level, group, measure]),
            ),
            n=sizes[group],
        )
        for level, group, measure in np.ndindex(len(shares), len(_NAMES), len(_MEASURES))
    ]
