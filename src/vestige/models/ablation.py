"""Ablation of hidden units: ranks of words with some units silenced.

Morcos et al. (2018), "On the Importance of Single Directions for Generalization", ICLR,
arXiv:1803.06959, section 3.1: units are set to zero, more and more of them, in random order. Song
and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD, arXiv:1811.00513,
section 5 and Figure 7, do this to models of text.

The units are the inputs of the head: the outputs of the last layer. A unit set to zero adds nothing
to any logit. So a language model reads every text once, and only the head's product is repeated.

Differs from the paper: it does not say whether the silenced units differ between words; here they
are the same for every word. The state of a recurrent layer is not changed.
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
from vestige.models.predictions import Progress, finite, fold, rank, reader_inputs, span_statistics
from vestige.models.reading import read, target_positions
from vestige.models.seq2seq import Seq2SeqModel

Masks = NDArray[np.bool_]


def random_maskings(width: int, fractions: Sequence[float], *, orders: int, seed: int) -> Masks:
    """(o, f, h) nested sets of units to silence (True), in several random orders.

    `fractions` of the units, in [0, 1); a unit silenced at one fraction is silent at larger ones.
    """
    _validate.positive(width=width, orders=orders)
    _validate.fraction(**{f"fractions[{i}]": value for i, value in enumerate(fractions)})
    rng = np.random.default_rng(seed)
    ranks = np.stack([rng.permutation(width) for _ in range(orders)])
    sizes = np.array([round(fraction * width) for fraction in fractions])
    return ranks[:, None, :] < sizes[:, None]


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
        positions: of w words, see `target_positions`. Memory holds their hidden vectors, w x h.
        masks: (s, h), True where a unit is zero.
        progress: called with (maskings done, maskings in all).

    Raises:
        AccessDenied: the head of the model is not linear.
        ValueError: masks or positions do not fit, or the model is in training mode.
        ModelError: a logit is not finite.
    """
    head = linear_head(model)
    silent = np.asarray(masks, dtype=bool)
    if silent.ndim != 2 or silent.shape[1] != head.in_features:
        raise ValueError(f"masks must be (s, {head.in_features}), got {silent.shape}")
    model, data, context = reader_inputs(model, texts)
    wanted = np.unique(target_positions(data, positions))
    spans = list(read(model, data, wanted, context=context))
    count = span_statistics(model, [finite, rank])
    ranks = np.zeros((len(silent), len(wanted)), dtype=np.int32)
    for row, mask in enumerate(silent):
        active = torch.from_numpy(~mask)
        silenced = (replace(span, hidden=span.hidden * active.to(span.hidden)) for span in spans)
        ranks[row] = fold(silenced, count, wanted).get("ranks", 0)
        if progress is not None:
            progress(row + 1, len(silent))
    return ranks


def linear_head(model: Any) -> nn.Linear:
    """The head, whose inputs are the hidden units.

    Raises:
        AccessDenied: there is none, or the logits need more than the head.
    """
    head = getattr(model, "head", None)
    separate = isinstance(model, Seq2SeqModel) or getattr(model, "separate_head", False)
    if not separate or type(head) is not nn.Linear or head.weight.dtype != torch.float32:
        raise AccessDenied(
            f"{type(model).__name__} has no hidden layer followed by a plain linear head; its "
            "units cannot be ablated",
            remedy=(
                "Pass --orders 0, a model of `vestige train`, or a Hugging Face model in float32."
            ),
        )
    return head
