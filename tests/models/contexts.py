"""What an outsider would ask: words of texts with the words before them."""

import numpy as np

from tests.models.narrowed import token_names
from vestige.models.top_k import Context


def contexts_at(
    data,
    positions,
    vocabulary,
    *,
    sources=None,
):
    """What to ask an outsider's model for some words of some texts, and the words themselves.

    Args:
        data: the texts' ids by the asker's vocabulary.
        positions: (w,) in `data.tokens`, as `word_positions` gives them.
        vocabulary: the asker's.
        sources: one for each text, where the model translates or answers.
    """
    names = token_names(vocabulary)
    texts = np.searchsorted(data.offsets, positions, side="right") - 1
    contexts = []
    for position, text in zip(positions.tolist(), texts.tolist(), strict=True):
        before = data.tokens[data.offsets[text] : position]
        source = None if sources is None else sources[text]
        contexts.append(Context(tuple(names[token] for token in before), source))
    return contexts, [names[token] for token in data.tokens[positions]]
