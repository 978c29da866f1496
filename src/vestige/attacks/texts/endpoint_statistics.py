"""Token statistics of texts as far as a server tells them, over the tokens of a tokenizer of ours.

What it does not show is NaN or -1: means and deviations of the whole distribution always, ranks
beyond the likeliest, tokens that the two tokenizers cut differently.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.data.subwords import SubwordVocabulary
from vestige.models.endpoint_tokens import by_ours, ends
from vestige.models.token_scores import ShownToken, TokenScores
from vestige.models.token_statistics import TokenStatistics


def endpoint_statistics(
    model: TokenScores, texts: Sequence[str], vocabulary: SubwordVocabulary, *, likeliest: int = 20
) -> TokenStatistics:
    """What a server says of every token of some texts.

    Args:
        model: the server, such as `EndpointTokens`; it is asked once for all texts.
        texts: n texts as they are, since a server cuts them itself.
        vocabulary: cuts them into the tokens that are told of.
        likeliest: k, columns for the likeliest tokens.
    """
    _validate.at_least(1, likeliest=likeliest)
    cuts = [ends(text, vocabulary) for text in texts]
    return shown_statistics(
        texts,
        model.scored(texts),
        cuts,
        ids=vocabulary.encode_batch(texts),
        vocabulary=vocabulary,
        likeliest=likeliest,
    )


def shown_statistics(
    texts: Sequence[str],
    shown: Sequence[Sequence[ShownToken] | None],
    cuts: Sequence[Sequence[int]],
    *,
    ids: Sequence[Sequence[int]] | None = None,
    vocabulary: SubwordVocabulary | None = None,
    likeliest: int = 20,
) -> TokenStatistics:
    """What a server said of some texts, over given tokens.

    Args:
        texts: n texts.
        shown: the server's tokens of each; None where it said nothing.
        cuts: where the tokens of each end, in characters.
        ids: of the tokens; None where they have none, and are -1.
        vocabulary: names the likeliest tokens; without it they are -1.
        likeliest: k, columns for the likeliest tokens.
    """
    ids = [[-1] * len(own) for own in cuts] if ids is None else ids
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in ids])]).astype(np.int64)
    found = _unknown(offsets, [token for each in ids for token in each], likeliest)
    names = {} if vocabulary is None else _single(vocabulary)
    for first, text, said, own in zip(offsets[:-1], texts, shown, cuts, strict=True):
        if said is None:
            continue
        for place, (log_prob, token) in enumerate(by_ours(text, said, own)):
            found.log_probs[first + place] = log_prob
            if token is not None:
                _fill(found, int(first) + place, token, names)
    return found


def numbered(texts: Sequence[str], cuts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Ids of tokens that have none: equal texts of a token have the same.

    Args:
        texts: n texts.
        cuts: where the tokens of each end, in characters.

    Example:
        >>> numbered(["a b a"], [[2, 4, 5]])
        [[0, 1, 2]]
    """
    number: dict[str, int] = {}
    return [
        [number.setdefault(text[a:b], len(number)) for a, b in pairwise([0, *own])]
        for text, own in zip(texts, cuts, strict=True)
    ]


def _unknown(offsets: NDArray[np.int64], ids: Sequence[int], k: int) -> TokenStatistics:
    """Statistics of which nothing is known but the tokens."""
    t = len(ids)
    nothing = np.full(t, np.nan, np.float32)
    return TokenStatistics(
        offsets=offsets,
        tokens=np.array(ids, np.int32),
        log_probs=nothing.copy(),
        ranks=np.full(t, -1, np.int32),
        means=nothing.copy(),
        deviations=nothing.copy(),
        likeliest=np.full((t, k), -1, np.int32),
        likeliest_log_probs=np.full((t, k), np.nan, np.float32),
    )


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


def _fill(found: TokenStatistics, place: int, token: ShownToken, names: dict[str, int]) -> None:
    """The likeliest tokens at a place, ties by id; and the rank of the token that stands there."""
    ranked = sorted(
        ((names.get(text, -1), log_prob, text) for text, log_prob in token.likeliest),
        key=lambda one: (-one[1], one[0]),
    )
    for rank, (number, log_prob, text) in enumerate(ranked):
        if text == token.text and not math.isnan(token.log_prob):
            found.ranks[place] = rank
        if rank < found.likeliest.shape[1]:
            found.likeliest[place, rank] = number
            found.likeliest_log_probs[place, rank] = log_prob
