"""Ranked words without probabilities: the least access to a model.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.3: a service lists its k most probable words, ranked. A true word has a
rank in the list, or is missing from it and has rank k + 1. Words of equal probability are in the
order of their ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import Vocabulary
from vestige.models.predictions import Progress, measure, top
from vestige.models.protocols import NextToken
from vestige.models.reading import pack

Answer = tuple[str, ...] | None
"""The most probable words, in order; None without an answer."""


@dataclass(frozen=True)
class Context:
    """What a model reads before the next word.

    Attributes:
        words: the words before, from the beginning of the text.
        source: the whole text that this one translates or answers, if any.
    """

    words: tuple[str, ...]
    source: str | None = None

    def __post_init__(self) -> None:
        plain = isinstance(self.words, list | tuple)
        if not plain or not all(isinstance(word, str) for word in self.words):
            raise ValueError(f"words must be a tuple of strings, got {type(self.words).__name__}")
        if self.source is not None and not isinstance(self.source, str):
            raise ValueError(f"source must be a string, got {type(self.source).__name__}")
        object.__setattr__(self, "words", tuple(self.words))


class TopK(Protocol):
    """The least access of all: ranked words and no probabilities.

    Attributes:
        k: most words of an answer.
    """

    @property
    def k(self) -> int: ...

    def likeliest(self, contexts: Sequence[Context]) -> list[Answer]:
        """For each context the most probable next words, at most k, all different."""
        ...


def narrow(model: Any, *, k: int) -> TopK:
    """A model of ours as an outsider sees it.

    Args:
        model: any model of next tokens, or one that answers a source (`given(source)`), in
            evaluation mode.
        k: words shown, from 1 to the vocabulary.

    Example:
        >>> from vestige.models.table import TableModel
        >>> model = TableModel([0.1, 0.2, 0.7], [[0.2, 0.3, 0.5]] * 3)
        >>> narrow(model, k=2).likeliest([Context(()), Context(("w2",))])
        [('w2', '<unk>'), ('w2', '<unk>')]
    """
    if not hasattr(model, "given") and not isinstance(model, NextToken):
        raise ValueError(
            f"model must be one of next tokens, got {type(model).__name__}: "
            "wrap a callable in a ServiceModel"
        )
    if not 1 <= k <= model.vocab_size:
        raise ValueError(f"k must lie in [1, {model.vocab_size}], got {k}")
    return _Narrowed(model, k)


def token_names(vocabulary: Vocabulary, size: int | None = None) -> list[str]:
    """The name of each id in an answer: its word, or its token as the tokenizer writes it.

    A model may have more outputs (`size`) than the vocabulary has tokens.
    """
    known = len(vocabulary)
    tokenizer = getattr(vocabulary, "tokenizer", None)
    if tokenizer is None:
        names = [vocabulary.piece(token) for token in range(known)]
    else:  # a piece may be half a letter: only the tokenizer's own names are all different
        names = tokenizer.convert_ids_to_tokens(list(range(known)))
        names = [f"<{i}>" if name is None else name for i, name in enumerate(names)]
    return names + [f"<{token}>" for token in range(known, size or known)]


def list_ranks(answers: Sequence[Answer], words: Sequence[str], *, k: int) -> NDArray[np.int32]:
    """(n,) ranks of true words in answers: 1 to k; k + 1 if it is missing; 0 without an answer.

    Example:
        >>> list_ranks([("a", "b"), ("a",), None], ["b", "b", "b"], k=2)
        array([2, 3, 0], dtype=int32)
    """
    _validate.at_least(1, k=k)
    if len(answers) != len(words):
        raise ValueError(f"words must be one for each of {len(answers)} answers, got {len(words)}")
    return np.array([_place(*pair, k) for pair in zip(answers, words, strict=True)], np.int32)


def likeliest_ranks(
    model: TopK,
    contexts: Sequence[Context],
    words: Sequence[str],
    *,
    at_once: int = 1024,
    progress: Progress | None = None,
) -> NDArray[np.int32]:
    """(n,) ranks of true words in a model's lists, as of `list_ranks`.

    Args:
        model: is queried.
        contexts: n contexts; those of one text are best neighbours.
        words: the n true words.
        at_once: lists that are in memory together.
        progress: gets (words done, all words).
    """
    _validate.at_least(1, at_once=at_once)
    if len(contexts) != len(words):
        raise ValueError(
            f"words must be one for each of {len(contexts)} contexts, got {len(words)}"
        )
    ranks = np.zeros(len(words), np.int32)
    for begin in range(0, len(words), at_once):
        part = slice(begin, begin + at_once)
        ranks[part] = list_ranks(model.likeliest(contexts[part]), words[part], k=model.k)
        if progress is not None:
            progress(min(begin + at_once, len(words)), len(words))
    return ranks


class _Narrowed:
    """Lists of a model of ours. Contexts that begin others are read with them, once."""

    def __init__(self, model: Any, k: int) -> None:
        self._model, self.k = model, k
        self._names = token_names(model.vocabulary, model.vocab_size)
        self._ids = {name: token for token, name in enumerate(self._names)}

    def likeliest(self, contexts: Sequence[Context]) -> list[Answer]:
        """The k most probable words after each context."""
        answers: list[Answer] = [None] * len(contexts)
        by_source: dict[str | None, list[int]] = {}
        for place, context in enumerate(contexts):
            by_source.setdefault(context.source, []).append(place)
        for source, places in by_source.items():
            ids = [self._encode(contexts[place].words) for place in places]
            for place, answer in zip(places, self._after(self._given(source), ids), strict=True):
                answers[place] = answer
        return answers

    def _given(self, source: str | None) -> NextToken:
        answers_sources = hasattr(self._model, "given")
        if answers_sources != (source is not None):
            kind = "a source" if answers_sources else "no source: the model takes none"
            raise ValueError(f"every context must have {kind}, got source={source!r}")
        model: NextToken = self._model.given(source) if answers_sources else self._model
        return model

    def _encode(self, words: tuple[str, ...]) -> tuple[int, ...]:
        ids: list[int] = []
        for word in words:
            known = self._ids.get(word)
            ids += self._model.vocabulary.encode(word) if known is None else [known]
        return tuple(ids)

    def _after(self, model: NextToken, contexts: Sequence[tuple[int, ...]]) -> list[Answer]:
        """The list after each context."""
        data, places = _shared(contexts, model.vocabulary.eos_id)
        found = measure(model, data, [top(self.k, log_probs=False)], places)["likeliest"]
        return [tuple(self._names[token] for token in row) for row in found.tolist()]


def _shared(
    contexts: Sequence[tuple[int, ...]], end: int
) -> tuple[EncodedCorpus, NDArray[np.int64]]:
    """Texts that begin with all contexts, and the position after each context.

    In reverse alphabetical order a context comes directly after its extensions.
    """
    order = sorted(range(len(contexts)), key=contexts.__getitem__, reverse=True)
    texts: list[tuple[int, ...]] = []
    owner = np.zeros(len(contexts), np.int64)
    for index in order:
        context = contexts[index]
        if not texts or texts[-1][: len(context)] != context:
            texts.append(context)
        owner[index] = len(texts) - 1
    data = pack([(*text, end) for text in texts])
    after = np.array([len(context) for context in contexts], np.int64)
    return data, data.offsets[owner] + after


def _place(answer: Answer, word: str, k: int) -> int:
    if answer is None:
        return 0
    return answer.index(word) + 1 if word in answer[:k] else k + 1
