"""Ablation of hidden units: ranks of words with some units silenced.

Morcos et al. (2018), "On the Importance of Single Directions for Generalization", ICLR,
arXiv:1803.06959, section 3.1: units are set to zero, more and more of them, in random order. Song
and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD, arXiv:1811.00513,
section 5 and Figure 7, do so to models of text.

The units are those that the head reads: the outputs of the last layer. A unit that is zero adds
nothing to any logit, as does a head whose weights for it are zero; so a language model reads every
text once, and only the head's product is made again.

Differs from the paper: it does not say whether each word has units of its own silenced; here the
same units are silent for every word. What a recurrent layer hands on to its next step is left as
it is.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from vestige import _validate
from vestige.data.encoded import EncodedCorpus, EncodedPairs
from vestige.errors import AccessDenied
from vestige.models.predictions import Progress, finite, fold, of_spans, rank, reader_of
from vestige.models.reading import places_of, read
from vestige.models.seq2seq import Seq2SeqModel

Masks = NDArray[np.bool_]


def random_maskings(width: int, fractions: Sequence[float], *, orders: int, seed: int) -> Masks:
    """(o, f, h) nested sets of units to silence (True), in several random orders.

    `fractions` of the units, in [0, 1); within an order, silent units stay so at larger ones.
    """
    _validate.positive(width=width, orders=orders)
    _validate.fraction(**{f"fractions[{i}]": value for i, value in enumerate(fractions)})
    generator = np.random.default_rng(seed)
    turns = np.stack([generator.permutation(width) for _ in range(orders)])
    sizes = np.array([round(fraction * width) for fraction in fractions])
    return turns[:, None, :] < sizes[:, None]


def silenced_ranks(
    model: Any,
    texts: EncodedCorpus | EncodedPairs,
    positions: ArrayLike,
    masks: ArrayLike,
    *,
    progress: Progress | None = None,
) -> NDArray[np.int32]:
    """(s, w) ranks in [1, v] of words, in the order of the texts, with hidden units set to zero.

    Args:
        model: of next tokens with a linear head, or an encoder-decoder for pairs.
        positions: of w words, see `places_of`. Their hidden vectors are held in memory: w x h.
        masks: (s, h), True where a unit is zero.
        progress: called with (maskings done, maskings in all).

    Raises:
        AccessDenied: the model has no linear head of its own.
        ValueError: masks or positions do not fit, or the model is in training mode.
        ModelError: a logit is not finite.
    """
    head = linear_head(model)
    silent = np.asarray(masks, dtype=bool)
    if silent.ndim != 2 or silent.shape[1] != head.in_features:
        raise ValueError(f"masks must be (s, {head.in_features}), got {silent.shape}")
    model, data, context = reader_of(model, texts)
    places = np.unique(places_of(data, positions))
    spans = list(read(model, data, places, context=context))
    count = of_spans(model, [finite, rank])
    ranks = np.zeros((len(silent), len(places)), dtype=np.int32)
    for row, mask in enumerate(silent):
        active = torch.from_numpy(~mask)
        silenced = (replace(span, hidden=span.hidden * active.to(span.hidden)) for span in spans)
        ranks[row] = fold(silenced, count, places).get("ranks", 0)
        if progress is not None:
            progress(row + 1, len(silent))
    return ranks


def linear_head(model: Any) -> nn.Linear:
    """The head whose inputs are the hidden units.

    Raises:
        AccessDenied: there is none, or the model does more than that between the two.
    """
    head = getattr(model, "head", None)
    apart = isinstance(model, Seq2SeqModel) or getattr(model, "separate_head", False)
    if not apart or type(head) is not nn.Linear or head.weight.dtype != torch.float32:
        raise AccessDenied(
            f"{type(model).__name__} has no hidden layer followed by a plain linear head; its "
            "units cannot be ablated",
            remedy=(
                "Pass --orders 0, a model of `vestige train`, or a Hugging Face model in float32."
            ),
        )
    return head
