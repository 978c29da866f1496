"""A model of ours as a service that lists its k most probable words."""

import numpy as np

from vestige.models.predictions import measure, top
from vestige.models.reading import pack


def narrow(model, *, k):
    """A model of next tokens, or one that answers a source, as an outsider sees it."""
    return _Narrowed(model, k)


def token_names(vocabulary, size=None):
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

    def __init__(self, model, k):
        self._model, self.k = model, k
        self._names = token_names(model.vocabulary, model.vocab_size)
        self._ids = {name: token for token, name in enumerate(self._names)}

    def likeliest(self, contexts):
        """The k most probable words after each context."""
        answers = [None] * len(contexts)
        by_source = {}
        for place, context in enumerate(contexts):
            by_source.setdefault(context.source, []).append(place)
        for source, places in by_source.items():
            ids = [self._encode(contexts[place].words) for place in places]
            for place, answer in zip(places, self._after(self._given(source), ids), strict=True):
                answers[place] = answer
        return answers

    def _given(self, source):
        model = self._model if source is None else self._model.given(source)
        return model

    def _encode(self, words):
        ids = []
        for word in words:
            known = self._ids.get(word)
            ids += self._model.vocabulary.encode(word) if known is None else [known]
        return tuple(ids)

    def _after(self, model, contexts):
        """The list after each context."""
        data, places = _shared(contexts, model.vocabulary.eos_id)
        found = measure(model, data, [top(self.k, log_probs=False)], places)["likeliest"]
        return [tuple(self._names[token] for token in row) for row in found.tolist()]


def _shared(contexts, end):
    """Texts that begin with all contexts, and the position after each context.

    In reverse alphabetical order a context comes directly after its extensions.
    """
    order = sorted(range(len(contexts)), key=contexts.__getitem__, reverse=True)
    texts = []
    owner = np.zeros(len(contexts), np.int64)
    for index in order:
        context = contexts[index]
        if not texts or texts[-1][: len(context)] != context:
            texts.append(context)
        owner[index] = len(texts) - 1
    data = pack([(*text, end) for text in texts])
    after = np.array([len(context) for context in contexts], np.int64)
    return data, data.offsets[owner] + after
