"""Memorization analysis: by word frequency, by rank and by hidden unit.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 5: Figure 5 (log-probabilities of frequent and of rare words), Figure 6
(ranks against frequency) and Figure 7 (hidden units silenced), each for text that the model learnt
and for text that it did not. Frequencies are those of the seen text, as in the paper, unless other
text is given to count.

Differs from the paper: every mean has an interval, and beside every difference of seen and unseen
text stands a null, the same difference of two random halves of the unseen text. See
`frequency_figures` and `unit_ablation` for what else differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vestige import _validate
from vestige.attacks.anatomy.frequency_figures import frequency_figures
from vestige.attacks.anatomy.memorization_result import Anatomy, Measured
from vestige.attacks.anatomy.token_positions import (
    FrequencyTable,
    Texts,
    TokenScores,
    encoded,
    read_words,
    word_counts,
)
from vestige.attacks.anatomy.unit_ablation import SilencedWords, ablation_figure
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.encoded_pairs import EncodedPairs
from vestige.errors import DataError
from vestige.models.ablation import linear_head, random_maskings, silenced_ranks
from vestige.models.word_ranks import Progress

TENTHS = tuple(tenth / 10 for tenth in range(1, 10))


@dataclass(frozen=True, kw_only=True)
class AnatomyPlan:
    """Settings of a memorization analysis.

    Attributes:
        frequent: share of the table of frequencies that is called frequent (Figure 5).
        bins: parts of the table (Figure 6).
        orders: random orders in which units are silenced (Figure 7); 0 leaves the ablation out.
        silenced: shares of the units that are silent.
        ablated_frequent: share of the table that is called frequent in the ablation.
        ablation_words: words of each text that the ablation asks, about; whole texts are drawn.
        resamples: for intervals.

    Raises:
        ValueError: a value is out of range.
    """

    frequent: float = 0.2
    bins: int = 10
    orders: int = 5
    silenced: tuple[float, ...] = TENTHS
    ablated_frequent: float = 0.1
    ablation_words: int = 10_000
    resamples: int = 1000

    def __post_init__(self) -> None:
        _validate.open_fraction(frequent=self.frequent, ablated_frequent=self.ablated_frequent)
        _validate.at_least(1, bins=self.bins, ablation_words=self.ablation_words)
        _validate.at_least(0, orders=self.orders)
        _validate.at_least(20, resamples=self.resamples)
        _validate.all_different(silenced=self.silenced)
        _validate.open_fraction(**{f"silenced[{i}]": one for i, one in enumerate(self.silenced)})


def anatomy(
    model: Any,
    seen: Corpus,
    *,
    unseen: Corpus,
    counted: Corpus | None = None,
    plan: AnatomyPlan | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Anatomy:
    """Memorization of seen text, compared with unseen text.

    Args:
        model: of next tokens, or an encoder-decoder of sources; ablation needs a linear head.
        seen: text of the training data.
        unseen: text like it that the model has not learnt. Intervals resample users where both
            have users, else texts.
        counted: text whose words the table of frequencies counts; None: the seen text.
        plan: what is measured; None: all three figures.
        seed: decides resamples, halves, orders, and which texts the ablation asks.
        progress: told (steps done, steps in all).

    Raises:
        DataError: a corpus lacks texts, known words or sources, or all unseen texts were seen.
        AccessDenied: an ablation is asked of a model without a linear head.
        ModelError: the model's answers are not numbers, or it finds a word impossible.

    Example:
        >>> from vestige.models.table import TableModel
        >>> model = TableModel([0.1, 0.2, 0.7], [[0.2, 0.3, 0.5]] * 3)
        >>> seen, unseen = (Corpus.from_texts(texts) for texts in (["w2 w2"], ["w2", "w2 w2 w2"]))
        >>> found = anatomy(model, seen, unseen=unseen, plan=AnatomyPlan(orders=0))
        >>> round(found.summary()["perplexity_seen"], 3)  # the root of 1 / (0.7 * 0.5)
        1.69
    """
    plan = plan or AnatomyPlan()
    hidden = linear_head(model).in_features if plan.orders else None
    in_both = _texts_in_both(seen, unseen)
    by_user = seen.users is not None and unseen.users is not None
    told = _Steps(progress, plan)
    texts = [encoded(model, corpus) for corpus in (seen, unseen)]
    words = _scored(model, texts, by_user, told)
    table = _table(model, _targets(texts[0]) if counted is None else counted, words)
    found = _figures(words, table, plan, seed)
    if hidden is not None:
        found += _ablated(model, texts, words, table, plan=plan, seed=seed, told=told)
    return Anatomy(
        measured=tuple(found),
        unit="users" if by_user else "texts",
        counted="seen text" if counted is None else "given text",
        frequent=plan.frequent,
        ablated_frequent=plan.ablated_frequent,
        table_words=table.size,
        units=(words[0].n, words[1].n),
        texts=(len(seen), len(unseen)),
        words=(len(words[0]), len(words[1])),
        texts_in_both=in_both,
        orders=plan.orders,
        hidden_units=hidden,
    )


def _table(
    model: Any, counted: Corpus | EncodedCorpus, words: Sequence[TokenScores]
) -> FrequencyTable:
    """How frequent each scored word is in the text that is counted."""
    source = encode(counted, model.vocabulary) if isinstance(counted, Corpus) else counted
    counts = word_counts(source, model.vocabulary, model.vocab_size)
    return FrequencyTable.of(counts, np.concatenate([one.tokens for one in words]))


def _scored(
    model: Any, texts: Sequence[EncodedCorpus | EncodedPairs], by_user: bool, told: "_Steps"
) -> list[TokenScores]:
    """Token scores of the seen text, and of the unseen."""
    names = ("the seen text", "the unseen text")
    return [
        read_words(model, some, by_user=by_user, name=name, progress=told.next())
        for some, name in zip(texts, names, strict=True)
    ]


def _figures(
    words: Sequence[TokenScores], table: FrequencyTable, plan: AnatomyPlan, seed: int
) -> list[Measured]:
    return frequency_figures(
        words[0],
        words[1],
        table,
        frequent=plan.frequent,
        bins=plan.bins,
        resamples=plan.resamples,
        seed=seed,
    )


class _Steps:
    """One progress over several passes: a hundred steps for each text, and each text's ablation."""

    def __init__(self, progress: Progress | None, plan: AnatomyPlan) -> None:
        self._progress, self._passes = progress, 4 if plan.orders else 2
        self._begun = 0

    def next(self) -> Progress:
        """The progress of the next pass."""
        begun, self._begun = self._begun, self._begun + 1

        def told(done: int, total: int) -> None:
            if self._progress is not None:
                self._progress(100 * begun + 100 * done // max(1, total), 100 * self._passes)

        return told


def _ablated(
    model: Any,
    texts: Sequence[Texts],
    words: Sequence[TokenScores],
    table: FrequencyTable,
    *,
    plan: AnatomyPlan,
    seed: int,
    told: _Steps,
) -> list[Measured]:
    generator = np.random.default_rng([seed, 99])
    width, shares = linear_head(model).in_features, sorted(plan.silenced)
    masks = random_maskings(width, shares, orders=plan.orders, seed=seed)
    asked = []
    for some, read in zip(texts, words, strict=True):
        drawn = read.some(plan.ablation_words, generator)
        found = silenced_ranks(
            model,
            some,
            where=drawn.places,
            masks=masks.reshape(-1, width),
            progress=told.next(),
        )
        shape = (*masks.shape[:2], len(drawn))
        asked.append(
            SilencedWords(
                words=drawn,
                ranks=found.ranks.reshape(shape),
                log_probs=found.log_probs.astype(np.float64).reshape(shape),
            )
        )
    return ablation_figure(
        asked[0],
        asked[1],
        table,
        silenced=shares,
        frequent=plan.ablated_frequent,
        resamples=plan.resamples,
        seed=seed,
    )


def _targets(texts: Texts) -> EncodedCorpus:
    return texts.targets if isinstance(texts, EncodedPairs) else texts


def _texts_in_both(seen: Corpus, unseen: Corpus) -> int:
    """Number of unseen texts that stand in the seen text word for word."""
    known = set(seen)
    both = sum(text in known for text in unseen)
    if len(unseen) and both == len(unseen):
        raise DataError(
            f"all {both} unseen texts are also in the seen text",
            remedy="Pass unseen text that the model was not trained on.",
        )
    return both
