"""Memorization by word frequency, by rank and by hidden unit. For Python only.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 5: histograms of log-probabilities (Figure 5), ranks against frequency
(Figure 6), accuracy with silent hidden units (Figure 7).

Differs from the paper: means have intervals that resample whole users or texts, and each
difference has a null, the same difference of two random halves of the unseen text. A word that is
rare in the counted text is on average commoner elsewhere, so the two texts differ for any model;
groups of the same words do not. Units are silenced in several random orders, which are resampled
too, and log ranks show what accuracy cannot, since rare words seldom have rank 1.
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
from vestige.audits.anatomy.findings import Numbers, unit_findings, word_findings
from vestige.audits.anatomy.resampling import (
    Floats,
    drawn_counts,
    percentiles,
    ratio,
    resampled_sums,
)
from vestige.audits.anatomy.words import (
    Group,
    Ids,
    ScoredWords,
    Texts,
    encoded,
    equal_bins,
    frequent_and_rest,
    group_weights,
    known,
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
"""Of a histogram."""

_FEW = 0.001
"""Share of the words below the first edge of a histogram; the first cell counts them too."""

_MEANS = ("share", "log_prob", "log_rank", "rank")
_ABLATED = ("accuracy", "kept", "log_rank", "log_rank_lost")
_NAMES = ("seen", "unseen")

Rows = list[dict[str, Any]]
Pair = Sequence[ScoredWords]
"""Words of seen and of unseen text."""

Cell = tuple[str, str, float, float]
"""Figure, words, start and stop of a row."""

Draw = Callable[[ScoredWords, Floats, np.random.Generator], Floats]
"""(words, their weights, generator) -> statistics (1 + r, ...), first without resampling."""


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

    Intervals resample whole users if `user` is given, else whole texts. The null of a difference
    is the same difference between two random halves of the unseen text. The result holds no text
    and no user's name.

    Args:
        model: the model to analyse, or its path.
        seen: text that the model was trained on.
        unseen: text of the same source that the model was not trained on.
        frequencies: text whose words are counted; None: `seen`, as in the paper.
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
    loaded = _language_model(run, model)
    hidden = linear_head(loaded).in_features if orders else None
    columns: dict[str, Any] = {"format": format, "text": text, "user": user, "limit": limit}
    given = {"seen": seen, "unseen": unseen, "frequencies": frequencies}
    corpora = {
        role: run.corpus(role, data, source_column=source, **columns)
        for role, data in given.items()
        if data is not None
    }
    in_both = _texts_in_both(corpora["seen"], corpora["unseen"])
    by_user = all(corpora[name].users is not None for name in _NAMES)
    texts = [encoded(loaded, corpora[name]) for name in _NAMES]
    words = []
    for own, name in zip(texts, ("the seen text", "the unseen text"), strict=True):
        with run.progress(f"reading {name}") as step:
            words.append(read_words(loaded, own, by_user=by_user, name=name, progress=step))
    counted = targets_of(texts[0])
    if frequencies is not None:
        counted = encode(corpora["frequencies"], loaded.vocabulary)
    positions = positions_by_frequency(
        np.asarray(counted.tokens)[known(counted, loaded.vocabulary)],
        np.concatenate([one.tokens for one in words]),
        loaded.vocab_size,
    )
    rows = _frequency_rows(words, positions, frequent=frequent, bins=bins, seed=run.seed)
    if hidden is not None:
        masks = random_maskings(hidden, SILENCED, orders=orders, seed=run.seed)
        generator = np.random.default_rng([run.seed, 99])
        ablated = []
        for own, one, name in zip(texts, words, _NAMES, strict=True):
            with run.progress(f"silencing units, {name} text") as step:
                drawn = one.some(ablation_words, generator)
                ablated.append(_silenced(loaded, own, drawn, masks, step))
        rows += _ablation_rows(ablated, positions, seed=run.seed)
    numbers = Numbers(rows)
    summary: dict[str, Any] = {"unit": "users" if by_user else "texts"}
    for name, one in zip(_NAMES, words, strict=True):
        sizes = {"units": one.n, "texts": len(corpora[name]), "words": len(one)}
        summary |= {f"{name}_{what}": number for what, number in sizes.items()}
    summary |= {
        "texts_in_both": in_both,
        "table_words": int(positions.max()),
        "counted": "seen text" if frequencies is None else "given text",
        "frequent": frequent,
        **word_findings(numbers),
        "orders": orders,
        "hidden_units": hidden,
        "ablated_frequent": ABLATED_FREQUENT,
        **unit_findings(numbers),
        "confidence": 0.95,
    }
    return Result(kind="Anatomy", rows=rows, summary=summary)


def _language_model(run: Session, given: Any) -> Any:
    """A model of next words, of translation or of dialogue, in evaluation mode."""
    try:
        return run.model("model", given)
    except AccessDenied as refused:
        try:
            loaded = load_seq2seq(fspath(given), device=run.device)
        except ModelError:
            raise refused from None
    run.record_model("model", given, loaded)
    return loaded


def _texts_in_both(seen: Corpus, unseen: Corpus) -> int:
    """Number of unseen texts that are also in the seen text."""
    texts_seen = set(seen)
    both = sum(text in texts_seen for text in unseen)
    if len(unseen) and both == len(unseen):
        raise DataError(
            f"all {both} unseen texts are also in the seen text",
            remedy="Pass unseen text that the model was not trained on.",
        )
    return both


def _frequency_rows(words: Pair, positions: Ids, *, frequent: float, bins: int, seed: int) -> Rows:
    """Figures 5 and 6, and the means behind Figure 5."""
    size = int(positions.max())
    panels = frequent_and_rest(size, frequent)
    matched = [one._replace(name=f"{one.name}, same words", matched=True) for one in panels[1:]]
    groups = [*panels, *matched, *equal_bins(size, bins)]

    def means(own: ScoredWords, weights: Floats, generator: np.random.Generator) -> Floats:
        ranks = own.ranks.astype(np.float64)
        columns = (np.ones(len(own)), own.log_probs, np.log(ranks), ranks)
        inside = unit_sums(own, weights, columns)
        every = np.broadcast_to(np.bincount(own.units)[:, None, None], (*inside.shape[:2], 1))
        sums = np.concatenate([every, inside], axis=2)
        drawn = resampled_sums(sums, resamples=RESAMPLES, generator=generator)
        share = ratio(drawn[:, :, 1:2], drawn[:, :, :1])
        return np.concatenate([share, ratio(drawn[:, :, 2:], drawn[:, :, 1:2])], axis=2)

    cells = [("ranks" if g.name == "bin" else "means", g.name, g.start, g.stop) for g in groups]
    rows = _histograms(words, positions, panels[1:])
    for text, draws, counts in _contrasts(words, groups, positions, means, (seed, 0)):
        rows += _rows(text, cells, _MEANS, draws, counts)
    return rows


def _histograms(words: Pair, positions: Ids, groups: Sequence[Group]) -> Rows:
    """Shares of words by log-probability."""
    lowest = np.floor(np.quantile(np.concatenate([one.log_probs for one in words]), _FEW))
    edges = np.linspace(min(-1.0, float(lowest)), 0.0, CELLS + 1)
    rows: Rows = []
    for group in groups:
        cells = [("log-probabilities", group.name, a, b) for a, b in pairwise(edges)]
        for text, own in zip(_NAMES, words, strict=True):
            inside = own.log_probs[group.holds(positions[own.tokens])]
            counts = np.histogram(np.clip(inside, edges[0], 0.0), edges)[0]
            shares = ratio(counts, len(inside))
            rows += _rows(text, cells, ("share",), shares[None, :, None], counts)
    return rows


def _silenced(
    model: Any, texts: Texts, words: ScoredWords, masks: Masks, step: Step
) -> ScoredWords:
    """The words with ranks (o, 1 + f, w): by order, of the whole model and with silent units."""
    orders, _, width = masks.shape
    found = silenced_ranks(model, texts, words.places, masks.reshape(-1, width), progress=step)
    whole = np.broadcast_to(words.ranks, (orders, 1, len(words)))
    silent = found.reshape(orders, -1, len(words))
    return replace(words, ranks=np.concatenate([whole, silent], axis=1))


def _ablation_rows(words: Pair, positions: Ids, *, seed: int) -> Rows:
    """Figure 7, from words with their ranks by order and share of silent units, 0 first."""
    orders, shares = len(words[0].ranks), (0.0, *SILENCED)
    turns = np.full((1 + RESAMPLES, orders), 1 / orders)  # weights of the orders
    if orders > 1:
        drawn = drawn_counts(orders, RESAMPLES, np.random.default_rng([seed, 0]))
        turns[1:] = drawn / (orders - 1)
    groups = frequent_and_rest(int(positions.max()), ABLATED_FREQUENT)

    def curves(own: ScoredWords, weights: Floats, generator: np.random.Generator) -> Floats:
        ranks = own.ranks.reshape(-1, len(own))
        columns = (column for one in ranks for column in (one == 1, np.log(one), np.ones(len(one))))
        sums = unit_sums(own, weights, columns).reshape(own.n, len(groups), orders, -1, 3)
        drawn = resampled_sums(sums, resamples=RESAMPLES, generator=generator)
        means = ratio(drawn[..., :2], drawn[..., 2:])
        accuracy, log_rank = np.moveaxis(np.einsum("rgosm,ro->rsgm", means, turns), -1, 0)
        kept, lost = ratio(accuracy, accuracy[:, :1]), log_rank - log_rank[:, :1]
        table = np.stack((accuracy, kept, log_rank, lost), axis=-1)
        return np.concatenate([table, table[:, :, 1:2] - table[:, :, 2:]], axis=2)

    names = [*(group.name for group in groups), "frequent - rest"]
    cells = [("ablation", name, share, share) for share in shares for name in names]
    rows: Rows = []
    for text, draws, counts in _contrasts(words, groups, positions, curves, (seed, 1)):
        flat = draws.reshape(len(draws), len(cells), len(_ABLATED))
        every = np.tile([*counts, counts[1:].min()], len(shares))
        rows += _rows(text, cells, _ABLATED, flat, every)
    return rows


def _contrasts(
    words: Pair, groups: Sequence[Group], positions: Ids, draw: Draw, stream: tuple[int, int]
) -> Iterator[tuple[str, Floats, Ids]]:
    """Statistics and numbers of words of both texts, their gap, and its null."""
    (_, unseen), (seed, first) = words, stream
    halves = unseen.halves(np.random.default_rng([seed, first]))
    pairs = [("gap", words)]
    if all(map(len, halves)):
        pairs.append(("null", [unseen.take(half) for half in halves]))
    for number, (text, pair) in enumerate(pairs, start=first + 1):
        generator = np.random.default_rng([seed, number])
        draws, counts = [], []
        for own, other in (pair, pair[::-1]):
            weights = group_weights(groups, own, other, positions)
            draws.append(draw(own, weights, generator))
            counts.append(np.count_nonzero(weights, axis=1))
        if text == "gap":
            yield from zip(_NAMES, draws, counts, strict=True)
        yield text, draws[0] - draws[1], np.minimum(*counts)


def _rows(
    text: str, cells: Sequence[Cell], measures: Sequence[str], draws: Floats, counts: Ids
) -> Rows:
    """One row for each cell and measure of statistics (1 + r, c, m); r = 0 has no intervals."""
    none = np.full_like(draws[0], np.nan)
    numbers = percentiles(draws) if len(draws) > 1 else np.stack([draws[0], none, none])
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
