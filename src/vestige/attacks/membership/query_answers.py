"""What do a target, and models of the auditor's own, say of the words of some users?

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, Algorithm 1: every user's words are asked in their contexts, and how likely the
model finds each one is kept as a rank. A model of ours is read whole and its ranks are cut to what
an outsider would be shown; a service behind `TopK` is asked a word at a time.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.attacks.membership.membership_scores import Answers
from vestige.attacks.membership.reference_models import References
from vestige.data.encoded import EncodedCorpus
from vestige.data.encoded_pairs import EncodedPairs
from vestige.data.token_queries import TokenQueries
from vestige.data.vocabulary import Vocabulary
from vestige.errors import DataError
from vestige.models.pair_ranks import pair_ranks
from vestige.models.top_k import TopK, contexts_at, likeliest_ranks
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


def answers_of(model: Any, texts: Texts, asked: TokenQueries, *, k: int) -> Answers:
    """What a model of ours would show an outsider; see `ranks_of`."""
    ranks = ranks_of(model, texts, asked).ranks
    return narrowed(asked, ranks, k=k, vocab_size=model.vocab_size)


def narrowed(asked: TokenQueries, ranks: ArrayLike, *, k: int, vocab_size: int) -> Answers:
    """Ranks (w,) over a whole vocabulary as a list of k words shows them."""
    shown = np.minimum(np.asarray(ranks), k + 1)
    return Answers(asked=asked, ranks=shown, k=k, vocab_size=vocab_size)


def answers_of_service(
    service: TopK,
    targets: EncodedCorpus,
    asked: TokenQueries,
    vocabulary: Vocabulary,
    *,
    vocab_size: int,
    sources: Sequence[str] | None = None,
) -> tuple[Answers, NDArray[np.bool_]]:
    """Ask a service for its likeliest words after each context.

    Args:
        service: lists at most `service.k` words.
        targets: ids of the texts by the auditor's vocabulary.
        asked: w words of them.
        vocabulary: the auditor's.
        vocab_size: words that the service could show, as far as is known.
        sources: one for each text, where the service translates or answers.

    Returns:
        the answers, with the words that were answered only; and (w,) which those are.

    Raises:
        DataError: nothing was answered.
    """
    where = places_of(targets, asked)
    contexts, words = contexts_at(targets, where, vocabulary, sources=sources)
    ranks = likeliest_ranks(service, contexts, words)
    answered = ranks > 0
    if not answered.any():
        raise DataError(
            f"the service answered none of {len(asked)} queries",
            remedy="Ask it by hand; raise --attempts, --timeout or --budget.",
        )
    kept = asked.take(answered)
    size = max(vocab_size, service.k)
    return Answers(asked=kept, ranks=ranks[answered], k=service.k, vocab_size=size), answered


def references_of(
    models: Iterable[tuple[Any, Sequence[str]]], texts: Texts, asked: TokenQueries
) -> References:
    """What models of the auditor's own say of the words.

    Args:
        models: each with the names of the users whose text it has learnt; one at a time is held,
            so that it may be a generator that loads them.
        texts: see `ranks_of`.
        asked: w words of u users.

    Raises:
        ValueError: there are no models.
    """
    found, seen = [], []
    for model, members in models:
        found.append(ranks_of(model, texts, asked))
        learnt = set(members)
        seen.append([name in learnt for name in asked.names])
    if not found:
        raise ValueError("models must be at least one, got none")
    return References(
        ranks=np.stack([each.ranks for each in found]),
        log_probs=np.stack([known_of(each) for each in found]),
        seen=np.array(seen, dtype=bool),
    )


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
