"""A model behind a service that lists only its k most probable words."""

from vestige.models.predictions import measure, top
from vestige.models.reading import pack


def narrow(model, *, k):
    """A language model or translator that shows only its k most probable words."""
    return _Narrowed(model, k)


def token_names(vocabulary, size=None):
    """A different name for each id; a model may have more outputs (`size`) than tokens."""
    tokens = len(vocabulary)
    tokenizer = getattr(vocabulary, "tokenizer", None)
    if tokenizer is None:
        names = [vocabulary.piece(token) for token in range(tokens)]
    else:  # pieces may be parts of a character: only the tokenizer's names are all different
        names = tokenizer.convert_ids_to_tokens(list(range(tokens)))
        names = [f"<{i}>" if name is None else name for i, name in enumerate(names)]
    return names + [f"<{token}>" for token in range(tokens, size or tokens)]


class _Narrowed:
    def __init__(self, model, k):
        self._model, self.k = model, k
        self._names = token_names(model.vocabulary, model.vocab_size)
        self._ids = {name: token for token, name in enumerate(self._names)}

    def likeliest(self, contexts):
        """The k most probable words after each context."""
        answers = [None] * len(contexts)
        for source in dict.fromkeys(context.source for context in contexts):
            model = self._model if source is None else self._model.given(source)
            indices = [n for n, context in enumerate(contexts) if context.source == source]
            lists = self._after(model, [self._encode(contexts[n].words) for n in indices])
            for index, names in zip(indices, lists, strict=True):
                answers[index] = names
        return answers

    def _encode(self, words):
        ids = []
        for word in words:
            known_id = self._ids.get(word)
            ids += self._model.vocabulary.encode(word) if known_id is None else [known_id]
        return ids

    def _after(self, model, contexts):
        """The list after each context."""
        data = pack([(*context, model.vocabulary.eos_id) for context in contexts])
        ends = data.offsets[1:] - 1
        ids_listed = measure(model, data, [top(self.k, log_probs=False)], ends)["likeliest"]
        return [tuple(self._names[token] for token in row) for row in ids_listed.tolist()]
