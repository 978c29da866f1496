"""A model of ours as a service that lists its k most probable words."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import Vocabulary
from vestige.models.predictions import measure, top
from vestige.models.protocols import NextToken
from vestige.models.reading import pack
from vestige.models.top_k import Answer, Context, TopK


def narrow(model: Any, *, k: int) -> TopK:
    """A model of next tokens, or one that answers a source, as an outsider sees it."""
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
        model: NextToken = self._model if source is None else self._model.given(source)
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
