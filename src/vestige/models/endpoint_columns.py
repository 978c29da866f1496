"""What a server says of texts as arrays over the tokens of a tokenizer of ours.

The columns are those that a pass of a model's own weights gives; what a server does not show is
NaN or -1: means and deviations of the whole distribution always, ranks beyond the likeliest, tokens
that the two tokenizers cut differently.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.data.subwords import SubwordVocabulary
from vestige.models.endpoint_tokens import by_ours, ends
from vestige.models.token_scores import ShownToken, TokenScores

Columns = dict[str, NDArray[Any]]


def endpoint_columns(
    model: TokenScores, texts: Sequence[str], vocabulary: SubwordVocabulary, *, likeliest: int = 20
) -> Columns:
    """What a server says of every token of n texts, t tokens of ours in all.

    Args:
        model: the server; it is asked once for all texts.
        texts: as they are, not as tokens.
        vocabulary: cuts them into the tokens that are told of.
        likeliest: k, columns for the likeliest tokens.

    Returns:
        `offsets` (n + 1,) int64 and `tokens` (t,) int32 of the texts; `log_probs` (t,) float32;
        `ranks` (t,) int32, 0 for the likeliest; `means` and `deviations` (t,) float32, NaN;
        `likeliest` and `likeliest_log_probs` (t, k) int32 and float32.
    """
    ids = vocabulary.encode_batch(texts)
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in ids], dtype=np.int64)])
    t = int(offsets[-1])
    found: Columns = {
        "offsets": offsets.astype(np.int64),
        "tokens": np.array([token for each in ids for token in each], np.int32),
        "log_probs": np.full(t, np.nan, np.float32),
        "ranks": np.full(t, -1, np.int32),
        "means": np.full(t, np.nan, np.float32),
        "deviations": np.full(t, np.nan, np.float32),
        "likeliest": np.full((t, likeliest), -1, np.int32),
        "likeliest_log_probs": np.full((t, likeliest), np.nan, np.float32),
    }
    names = _single(vocabulary)
    for first, text, shown in zip(offsets[:-1], texts, model.scored(texts), strict=True):
        if shown is None:
            continue
        for place, (log_prob, token) in enumerate(by_ours(text, shown, ends(text, vocabulary))):
            found["log_probs"][first + place] = log_prob
            if token is not None:
                _fill(found, first + place, token, names)
    return found


def _single(vocabulary: SubwordVocabulary) -> dict[str, int]:
    """The ids of tokens by their text, where no other has the same."""
    names: dict[str, int] = {}
    twice = set()
    for token in range(len(vocabulary)):
        text = vocabulary.piece(token)
        if text in names:
            twice.add(text)
        names[text] = token
    return {text: token for text, token in names.items() if text not in twice}


def _fill(found: Columns, place: int, token: ShownToken, names: dict[str, int]) -> None:
    """The likeliest tokens at a place, ties by id; and the rank of the token that stands there."""
    ranked = sorted(
        ((names.get(text, -1), log_prob, text) for text, log_prob in token.likeliest),
        key=lambda one: (-one[1], one[0]),
    )
    for rank, (number, log_prob, text) in enumerate(ranked):
        if text == token.text and not math.isnan(token.log_prob):
            found["ranks"][place] = rank
        if rank < found["likeliest"].shape[1]:
            found["likeliest"][place, rank] = number
            found["likeliest_log_probs"][place, rank] = log_prob
