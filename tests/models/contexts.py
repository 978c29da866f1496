"""Queries for the words of texts: the words before them."""

import numpy as np

from tests.models.narrowed import token_names
from vestige.models.top_k import Context


def contexts_at(data, positions, vocabulary, *, sources=None):
    """The contexts of the words at some positions of `data.tokens`, and those words.

    A translator needs one of `sources` for each text.
    """
    names = token_names(vocabulary)
    texts = np.searchsorted(data.offsets, positions, side="right") - 1
    contexts = []
    for position, text in zip(positions.tolist(), texts.tolist(), strict=True):
        before = data.tokens[data.offsets[text] : position]
        source = None if sources is None else sources[text]
        contexts.append(Context(tuple(names[token] for token in before), source))
    return contexts, [names[token] for token in data.tokens[positions]]
