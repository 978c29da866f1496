"""Ranks of users' words under a target and under models of the auditor's own.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, Algorithm 1: every user's words are asked in their contexts, and how likely the
model finds each one is kept as a rank, cut to what an outsider would be shown.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.attacks.membership.membership_scores import Answers
from vestige.attacks.membership.reference_models import References
from vestige.data.encoded import EncodedCorpus, EncodedPairs
from vestige.data.token_queries import TokenQueries
from vestige.models.pair_ranks import pair_ranks
from vestige.models.word_ranks import Progress, WordRanks, word_ranks

Texts = EncodedCorpus | EncodedPairs


def ranks_of(
    model: Any, texts: Texts, asked: TokenQueries, *, progress: Progress | None = None
) -> WordRanks:
    """Ranks and log-probabilities of the asked words under a model of ours.

    Args:
        model: of next tokens, or an encoder-decoder where the texts are pairs.
        texts: ids by the model's vocabulary; the same that `asked` was made of.
        asked: w words.
        progress: told (words done, words in all).

    Returns:
        the w words in the order of `asked`.
    """
    targets = texts.targets if isinstance(texts, EncodedPairs) else texts
    where = places_of(targets, asked)
    order = np.argsort(where, kind="stable")
    if isinstance(texts, EncodedPairs):
        found = pair_ranks(model, texts, where=where, log_probs=True, progress=progress)
    else:
        found = word_ranks(model, texts, where=where, log_probs=True, progress=progress)
    back = np.argsort(order, kind="stable")
    known = found.log_probs
    return WordRanks(
        texts=found.texts[back],
        positions=found.positions[back],
        tokens=found.tokens[back],
        ranks=found.ranks[back],
        log_probs=None if known is None else known[back],
    )


def narrowed(asked: TokenQueries, ranks: ArrayLike, *, k: int, vocab_size: int) -> Answers:
    """Ranks (w,) over a whole vocabulary, as a list of k words shows them."""
    shown = np.minimum(np.asarray(ranks), k + 1)
    return Answers(asked=asked, ranks=shown, k=k, vocab_size=vocab_size)


def references_of(
    models: Iterable[tuple[Any, Sequence[str]]], texts: Texts, asked: TokenQueries
) -> References:
    """Ranks of the words under models of the auditor's own.

    Args:
        models: each with the names of the users whose text it has learnt; one at a time is held,
            so that it may be a generator that loads them.
        texts: see `ranks_of`.
        asked: w words of u users.

    Raises:
        ValueError: there are no models.
    """
    found, members = [], []
    for model, learnt in models:
        ranks = ranks_of(model, texts, asked)
        found.append((ranks.ranks, known_of(ranks)))
        members.append(learnt)
    if not found:
        raise ValueError("models must be at least one, got none")
    return References.of(found, members, asked.names)


def places_of(targets: EncodedCorpus, asked: TokenQueries) -> NDArray[np.int64]:
    """(w,) where the asked words stand in the ids of the texts."""
    return np.asarray(targets.offsets[asked.texts] + asked.positions, dtype=np.int64)


def known_of(found: WordRanks) -> NDArray[np.float32]:
    """Log-probabilities that were asked for.

    Raises:
        ValueError: they were not.
    """
    if found.log_probs is None:
        raise ValueError("log_probs must be given, got None")
    return found.log_probs
