"""Memorization by word frequency, by rank and by hidden unit. For Python only.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 5: histograms of log-probabilities (Figure 5), ranks against frequency
(Figure 6), accuracy with silent hidden units (Figure 7).

Differs from the paper: means have intervals that resample users or texts, and each difference has a
null, the same difference between two random halves of the unseen text. A word that is rare in the
counted text is on average more frequent elsewhere, so the two texts differ for any model; groups of
the same words do not. Units are silenced in several random orders, which are resampled too, and
log ranks show what accuracy cannot, because rare words seldom have rank 1.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from os import fspath
from typing import Any, Unpack

import numpy as np

from vestige.arguments import (
    Common,
    CorpusLike,
    Count,
    Format,
    Limit,
    ModelLike,
    Natural,
    Probability,
    SourceColumn,
    TextColumn,
    UserColumn,
)
from vestige.audits.anatomy.findings import RowIndex, unit_findings, word_findings
from vestige.audits.anatomy.resampling import (
    Floats,
    draw_counts,
    percentiles,
    ratio,
    resampled_sums,
)
from vestige.audits.anatomy.words import (
    Group,
    Ids,
    ScoredWords,
    Texts,
    encode_texts,
    equal_bins,
    frequent_and_rest,
    group_weights,
    is_known,
    positions_by_frequency,
    read_words,
    targets_of,
    unit_sums,
)
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.errors import AccessDenied, DataError, ModelError
from vestige.models.ablation import Masks, linear_head, random_maskings, silenced_ranks
from vestige.models.checkpoints import load_seq2seq
from vestige.monitor import Step
from vestige.results import Result
from vestige.session import Session, verb

SILENCED = tuple(tenth / 10 for tenth in range(1, 10))
"""Shares of the hidden units that are silent."""

ABLATED_FREQUENT = 0.1
"""Share of the words that counts as frequent in Figure 7, as in the paper."""

RESAMPLES = 1000
CELLS = 40
"""Number of cells of a histogram."""

_LOWEST_QUANTILE = 0.001
"""Quantile of the log-probabilities at the first edge of a histogram; the first cell also counts
lower ones."""

_MEANS = ("share", "log_prob", "log_rank", "rank")
_ABLATED = ("accuracy", "kept", "log_rank", "log_rank_lost")
_TEXTS = ("seen", "unseen")

Rows = list[dict[str, Any]]
Pair = Sequence[ScoredWords]
"""Words of seen and of unseen text."""

Cell = tuple[str, str, float, float]
"""Figure, words, start and stop of a row."""

Measure = Callable[[ScoredWords, Floats, np.random.Generator], Floats]
"""(words, their weights, generator) -> statistics (1 + r, ...) with their resamples."""


@verb
def anatomy(
    run: Session,
    model: ModelLike,
    seen: CorpusLike,
    unseen: CorpusLike,
    *,
    frequencies: CorpusLike | None = None,
    frequent: Probability = 0.2,
    bins: Count = 10,
    orders: Natural = 5,
    ablation_words: Count = 10_000,
    text: TextColumn = "text",
    user: UserColumn = None,
    source: SourceColumn = None,
    format: Format = "auto",
    limit: Limit = None,
    **common: Unpack[Common],
) -> Result:
    """Measure memorization by word frequency, by rank and by hidden unit.

    Three figures compare training text with similar text that the model never read: how probable
    the true words are, for frequent words and the others; at which rank the model lists them, by
    frequency; and how fast accuracy falls when hidden units are set to zero. Memorization is a
    difference between the two texts, usually in rare words.

    Intervals resample users if `user` is given, otherwise texts. The null of a difference is the
    same difference between two random halves of the unseen text. The result contains no text and
    no user's name.

    Args:
        model: the model to analyse, or its path.
        seen: text that the model was trained on.
        unseen: text of the same source that the model was not trained on.
        frequencies: text to count the words in; None: `seen`, as in the paper.
        frequent: share of the words that counts as frequent.
        bins: groups of words by frequency.
        orders: random orders in which hidden units are set to zero; 0: no such figure.
        ablation_words: number of words of each text for that figure.
        text: column with the text.
        user: column with the user.
        source: column with the source of a translation, or the line before an answer.
        format: of the data; auto detects it.
        limit: read at most this many texts.
        **common: out, seed, device and monitor, as of every verb.

    Raises:
        ValueError: an argument is out of bounds.
        VestigeError: a model or text cannot be read, or has nothing to compare.
    """
    loaded = _load_model(run, model)
    hidden_units = linear_head(loaded).in_features if orders else None
    columns: dict[str, Any] = {"format": format, "text": text, "user": user, "limit": limit}
    sources = {"seen": seen, "unseen": unseen, "frequencies": frequencies}
    corpora = {
        role: run.corpus(role, data, source_column=source, **columns)
        for role, data in sources.items()
        if data is not None
    }
    in_both = _texts_in_both(corpora["seen"], corpora["unseen"])
    by_user = all(corpora[name].users is not None for name in _TEXTS)
    texts = [encode_texts(loaded, corpora[name]) for name in _TEXTS]
    words = []
    for encoded, name in zip(texts, ("the seen text", "the unseen text"), strict=True):
        with run.progress(f"reading {name}") as step:
            words.append(read_words(loaded, encoded, by_user=by_user, name=name, progress=step))
    counted = targets_of(texts[0])
    if frequencies is not None:
        counted = encode(corpora["frequencies"], loaded.vocabulary)
    positions = positions_by_frequency(
        np.asarray(counted.tokens)[is_known(counted, loaded.vocabulary)],
        np.concatenate([scored.tokens for scored in words]),
        loaded.vocab_size,
    )
    rows = _frequency_rows(words, positions, frequent=frequent, bins=bins, seed=run.seed)
    if hidden_units is not None:
        masks = random_maskings(hidden_units, SILENCED, orders=orders, seed=run.seed)
        generator = np.random.default_rng([run.seed, 99])
        ablated = []
        for encoded, scored, name in zip(texts, words, _TEXTS, strict=True):
            with run.progress(f"silencing units, {name} text") as step:
                sample = scored.sample_texts(ablation_words, generator)
                ablated.append(_silenced(loaded, encoded, sample, masks, step))
        rows += _ablation_rows(ablated, positions, seed=run.seed)
    summary: dict[str, Any] = {"unit": "users" if by_user else "texts"}
    for name, scored in zip(_TEXTS, words, strict=True):
        summary |= {
            f"{name}_units": scored.n,
            f"{name}_texts": len(corpora[name]),
            f"{name}_words": len(scored),
        }
    index = RowIndex(rows)
    summary |= {
        "texts_in_both": in_both,
        "table_words": int(positions.max()),
        "counted": "seen text" if frequencies is None else "given text",
        "frequent": frequent,
        **word_findings(index),
        "orders": orders,
        "hidden_units": hidden_units,
        "ablated_frequent": ABLATED_FREQUENT,
        **unit_findings(index),
        "confidence": 0.95,
    }
    return Result(kind="Anatomy", rows=rows, summary=summary)


def _load_model(run: Session, source: Any) -> Any:
    """A language model, or a model of translation or dialogue, in evaluation mode."""
    try:
        return run.model("model", source)
    except AccessDenied as denied:
        try:
            model = load_seq2seq(fspath(source), device=run.device)
        except ModelError:
            raise denied from None
    run.record_model("model", source, model)
    return model


def _texts_in_both(seen: Corpus, unseen: Corpus) -> int:
    """Number of unseen texts that are also in the seen text."""
    seen_texts = set(seen)
    both = sum(text in seen_texts for text in unseen)
    if len(unseen) and both == len(unseen):
        raise DataError(
            f"all {both} unseen texts are also in the seen text",
            remedy="Pass unseen text that the model was not trained on.",
        )
    return both


def _frequency_rows(words: Pair, positions: Ids, *, frequent: float, bins: int, seed: int) -> Rows:
    """Figures 5 and 6, and the means of the groups of Figure 5."""
    size = int(positions.max())
    panels = frequent_and_rest(size, frequent)
    matched = [
        group._replace(name=f"{group.name}, same words", matched=True) for group in panels[1:]
    ]
    groups = [*panels, *matched, *equal_bins(size, bins)]

    def means(scored: ScoredWords, weights: Floats, generator: np.random.Generator) -> Floats:
        ranks = scored.ranks.astype(np.float64)
        columns = (np.ones(len(scored)), scored.log_probs, np.log(ranks), ranks)
        in_group = unit_sums(scored, weights, columns)
        n, g, _ = in_group.shape
        all_words = np.broadcast_to(np.bincount(scored.units)[:, None, None], (n, g, 1))
        sums = np.concatenate([all_words, in_group], axis=2)
        resampled = resampled_sums(sums, resamples=RESAMPLES, generator=generator)
        share = ratio(resampled[:, :, 1:2], resampled[:, :, :1])
        return np.concatenate([share, ratio(resampled[:, :, 2:], resampled[:, :, 1:2])], axis=2)

    cells = [("ranks" if g.name == "bin" else "means", g.name, g.start, g.stop) for g in groups]
    rows = _histogram_rows(words, positions, panels[1:])
    for text, statistics, counts in _texts_and_gaps(words, groups, positions, means, (seed, 0)):
        rows += _rows(text, cells, _MEANS, statistics, counts)
    return rows


def _histogram_rows(words: Pair, positions: Ids, groups: Sequence[Group]) -> Rows:
    """Shares of words by log-probability."""
    log_probs = np.concatenate([scored.log_probs for scored in words])
    lowest = float(np.floor(np.quantile(log_probs, _LOWEST_QUANTILE)))
    edges = np.linspace(min(-1.0, lowest), 0.0, CELLS + 1)
    rows: Rows = []
    for group in groups:
        cells = [("log-probabilities", group.name, a, b) for a, b in pairwise(edges)]
        for text, scored in zip(_TEXTS, words, strict=True):
            in_group = scored.log_probs[group.contains(positions[scored.tokens])]
            counts = np.histogram(np.clip(in_group, edges[0], 0.0), edges)[0]
            shares = ratio(counts, len(in_group))
            rows += _rows(text, cells, ("share",), shares[None, :, None], counts)
    return rows


def _silenced(
    model: Any, texts: Texts, words: ScoredWords, masks: Masks, step: Step
) -> ScoredWords:
    """The words with ranks (o, 1 + f, w): by order, without and with silent units."""
    orders, _, width = masks.shape
    ranks = silenced_ranks(model, texts, words.indices, masks.reshape(-1, width), progress=step)
    silent = ranks.reshape(orders, -1, len(words))
    complete = np.broadcast_to(words.ranks, (orders, 1, len(words)))
    return replace(words, ranks=np.concatenate([complete, silent], axis=1))


def _ablation_rows(words: Pair, positions: Ids, *, seed: int) -> Rows:
    """Figure 7, from words with their ranks by order and share of silent units, 0 first."""
    orders, shares = len(words[0].ranks), (0.0, *SILENCED)
    order_weights = np.full((1 + RESAMPLES, orders), 1 / orders)
    if orders > 1:
        draws = draw_counts(orders, RESAMPLES, np.random.default_rng([seed, 0]))
        order_weights[1:] = draws / (orders - 1)
    groups = frequent_and_rest(int(positions.max()), ABLATED_FREQUENT)

    def curves(scored: ScoredWords, weights: Floats, generator: np.random.Generator) -> Floats:
        columns = (
            column
            for ranks in scored.ranks.reshape(-1, len(scored))
            for column in (ranks == 1, np.log(ranks), np.ones(len(ranks)))
        )
        sums = unit_sums(scored, weights, columns)
        sums = sums.reshape(scored.n, len(groups), orders, -1, 3)
        resampled = resampled_sums(sums, resamples=RESAMPLES, generator=generator)
        means = ratio(resampled[..., :2], resampled[..., 2:])
        means = np.einsum("rgosm,ro->rsgm", means, order_weights)
        accuracy, log_rank = np.moveaxis(means, -1, 0)
        kept, lost = ratio(accuracy, accuracy[:, :1]), log_rank - log_rank[:, :1]
        by_group = np.stack((accuracy, kept, log_rank, lost), axis=-1)
        frequent_minus_rest = by_group[:, :, 1:2] - by_group[:, :, 2:]
        return np.concatenate([by_group, frequent_minus_rest], axis=2)

    names = [*(group.name for group in groups), "frequent - rest"]
    cells = [("ablation", name, share, share) for share in shares for name in names]
    rows: Rows = []
    for text, statistics, counts in _texts_and_gaps(words, groups, positions, curves, (seed, 1)):
        flat = statistics.reshape(len(statistics), len(cells), len(_ABLATED))
        cell_counts = np.tile([*counts, counts[1:].min()], len(shares))
        rows += _rows(text, cells, _ABLATED, flat, cell_counts)
    return rows


def _texts_and_gaps(
    words: Pair, groups: Sequence[Group], positions: Ids, measure: Measure, stream: tuple[int, int]
) -> Iterator[tuple[str, Floats, Ids]]:
    """Statistics and word counts of both texts, of their gap, and of its null.

    `stream` is the seed and the number of the random generators.
    """
    (_, unseen), (seed, first) = words, stream
    halves = unseen.halves(np.random.default_rng([seed, first]))
    pairs = [("gap", words)]
    if all(map(len, halves)):
        pairs.append(("null", [unseen.take(half) for half in halves]))
    for number, (name, pair) in enumerate(pairs, start=first + 1):
        generator = np.random.default_rng([seed, number])
        statistics, counts = [], []
        for scored, other in (pair, pair[::-1]):
            weights = group_weights(groups, scored, other, positions)
            statistics.append(measure(scored, weights, generator))
            counts.append(np.count_nonzero(weights, axis=1))
        if name == "gap":
            yield from zip(_TEXTS, statistics, counts, strict=True)
        yield name, statistics[0] - statistics[1], np.minimum(*counts)


def _rows(
    text: str, cells: Sequence[Cell], measures: Sequence[str], statistics: Floats, counts: Ids
) -> Rows:
    """One row for each cell and measure of statistics (1 + r, c, m); r = 0 has no intervals."""
    none = np.full_like(statistics[0], np.nan)
    numbers = (
        percentiles(statistics) if len(statistics) > 1 else np.stack([statistics[0], none, none])
    )
    return [
        {
            "figure": figure,
            "text": text,
            "words": words,
            "measure": measure,
            "start": float(start),
            "stop": float(stop),
            **{
                name: None if np.isnan(number) else float(number)
                for name, number in zip(("value", "low", "high"), numbers[:, c, m], strict=True)
            },
            "n": int(counts[c]),
        }
        for c, (figure, words, start, stop) in enumerate(cells)
        for m, measure in enumerate(measures)
    ]
