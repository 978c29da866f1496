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

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from vestige import _validate
from vestige.data.encoded import EncodedCorpus, EncodedPairs
from vestige.errors import AccessDenied
from vestige.models.pair_ranks import pair_ranks
from vestige.models.ranks import RankCounter
from vestige.models.seq2seq import Seq2SeqModel
from vestige.models.word_ranks import Progress, asked_places, collect, read_before

Masks = NDArray[np.bool_]


def random_maskings(width: int, fractions: Sequence[float], *, orders: int, seed: int) -> Masks:
    """Nested sets of units to silence, in several random orders.

    Args:
        width: h, units in all.
        fractions: parts of the units, in [0, 1).
        orders: o; within an order, units that are silent stay so at larger fractions.
        seed: decides the orders.

    Returns:
        (o, f, h), True where a unit is silent; round(fraction * h) of each row.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> random_maskings(4, [0.25, 0.5], orders=3, seed=0).sum(-1).tolist()
        [[1, 2], [1, 2], [1, 2]]
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
    *,
    where: ArrayLike,
    masks: ArrayLike,
    progress: Progress | None = None,
) -> NDArray[np.int32]:
    """Ranks of some words with hidden units silenced.

    Args:
        model: of next tokens with a linear head, or an encoder-decoder where the texts are pairs;
            it is not changed.
        texts: ids by the model's own vocabulary.
        where: w words to ask, see `word_ranks`. What was read before all of them is kept: w x h.
        masks: (s, h), True where a unit is silent.
        progress: told (maskings done, maskings in all).

    Returns:
        (s, w) in [1, v], words in the order of the texts; 1 is the most probable.

    Raises:
        AccessDenied: the model has no linear head that could be told apart.
        ValueError: masks or places do not fit, or the model is in training mode.
        ModelError: a logit is not a number.

    Example:
        >>> from vestige.data.vocabulary import WordVocabulary
        >>> from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
        >>> words = WordVocabulary(("<unk>", "<eos>", "to", "be"))
        >>> model = LSTMLanguageModel(words, LSTMConfig(hidden_size=2)).eval()
        >>> data = EncodedCorpus(np.array([2, 3, 1], np.int32), np.array([0, 3]))
        >>> silenced_ranks(model, data, where=[0, 1], masks=np.eye(2, dtype=bool)).shape
        (2, 2)
    """
    head = linear_head(model)
    silent = np.asarray(masks, dtype=bool)
    if silent.ndim != 2 or silent.shape[1] != head.in_features:
        raise ValueError(f"masks must be (s, {head.in_features}), got {silent.shape}")
    data = texts.targets if isinstance(texts, EncodedPairs) else texts
    places = asked_places(data, where=where)
    ask = _asker(model, texts, places)
    ranks = np.zeros((len(silent), len(places)), dtype=np.int32)
    for row, mask in enumerate(silent):
        ranks[row] = ask(_without(head, mask))
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


def _asker(
    model: Any, texts: EncodedCorpus | EncodedPairs, places: NDArray[np.int64]
) -> Callable[[nn.Linear], NDArray[np.int32]]:
    """Function that gives ranks under another head."""
    if isinstance(texts, EncodedPairs):
        return lambda head: pair_ranks(_with_head(model, head), texts, where=places).ranks
    reads = list(read_before(model, texts, places))
    return lambda head: collect(reads, RankCounter(head), places).ranks.numpy()


def _with_head(model: Seq2SeqModel, head: nn.Linear) -> Seq2SeqModel:
    """Model that shares all weights but has another head."""
    other = copy.copy(model)
    other._modules = {**model._modules, "head": head}
    return other


@torch.no_grad()
def _without(head: nn.Linear, mask: NDArray[np.bool_]) -> nn.Linear:
    """Head with the weights of some units set to zero."""
    heard = torch.from_numpy(~mask).to(head.weight)
    deaf = nn.Linear(head.in_features, head.out_features, bias=head.bias is not None, device="meta")
    deaf.weight = nn.Parameter(head.weight * heard, requires_grad=False)
    if head.bias is not None:
        deaf.bias = nn.Parameter(head.bias, requires_grad=False)
    return deaf
