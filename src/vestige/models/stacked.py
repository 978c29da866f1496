"""Stacked intent-and-slot models of one shape, queried in one batch.

One small model alone is slow for want of work: each of its many operations reads a few numbers.
Here weights stand along a leading dimension, so that m models take as many operations as one, and
both directions of a layer run beside each other. The weights are constants: a gradient goes to
the words' vectors only.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vestige.errors import IncompatibleModels
from vestige.models.bilstm_crf import IntentSlotModel
from vestige.models.crf import TransitionFactors, chain_loss
from vestige.models.recurrence import Cells, recur
from vestige.models.white_box import Losses

ORDER = (3, 0, 1, 2)
"""The gates of `nn.LSTM` (input, forget, cell, output) in the order of `recur`."""
_KINDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
IRRELEVANT = {"input_dropout", "hidden_dropout", "frozen_embeddings"}
"""Settings of the training, which may differ from model to model."""


class StackedModels:
    """m intent-and-slot models in one batch; a `WhiteBox`, made by `stack`.

    Rows come in m blocks of one size, a block for each model, in the models' order. It answers as
    the models were when it was made, in evaluation mode.

    Attributes:
        intents: the labels of utterances.
        tags: the labels of words.
        models: m.
    """

    @torch.no_grad()
    def __init__(self, models: Sequence[IntentSlotModel]) -> None:
        first = models[0]
        self.intents, self.tags, self.models = first.intents, first.tags, len(models)
        self._first = first
        words = torch.arange(len(first.vocabulary), device=first.device)
        self._vectors = torch.cat([model.embed(words[None])[0] for model in models])
        self._starts = torch.arange(len(models), device=first.device) * len(words)
        self._layers = [_cells(models, layer) for layer in range(first.config.layers)]
        self._intent_head = _Affine.of([(m.intent_head.weight, m.intent_head.bias) for m in models])
        self._tag_head = _Affine.of([(m.tag_head.weight, m.tag_head.bias) for m in models])
        chains = [(m.crf.begin, m.crf.transitions, m.crf.end) for m in models]
        self._chain = tuple(torch.stack(parts) for parts in zip(*chains, strict=True))
        self._moves = TransitionFactors.of(self._chain[1])

    @property
    def device(self) -> torch.device:
        return self._vectors.device

    def read(self, words: Sequence[str]) -> list[tuple[int, ...]]:
        """The id of each word; an empty tuple for one that the vocabulary lacks."""
        return self._first.read(words)

    def embed(self, tokens: Tensor) -> Tensor:
        """The vectors (b, t, d) of tokens (b, t), each block's by its own model.

        Raises:
            ValueError: b is no multiple of m.
        """
        starts = self._starts.repeat_interleave(self._block(tokens))
        return self._vectors[tokens + starts.unsqueeze(1)]

    def losses(self, vectors: Tensor, intents: Tensor, tags: Tensor) -> Losses:
        """Losses in nats, each block's under its own model; see `WhiteBox`.

        Raises:
            ValueError: b is no multiple of m.
        """
        m, k, t = self.models, self._block(vectors), vectors.shape[1]
        read = vectors.view(m, k, t, -1).transpose(1, 2)  # (m, t, k, d)
        for layer in self._layers:
            hidden = recur(torch.cat([read, read.flip(1)]), layer)  # (2m, t, k, h)
            forwards, backwards = torch.split(hidden, m)
            read = torch.cat([forwards, backwards.flip(1)], -1)
        ends = torch.cat(torch.split(hidden[:, -1], m), -1)
        logits = self._intent_head(ends).flatten(0, 1)
        emissions = self._tag_head(read.flatten(1, 2)).view(m, t, k, -1).transpose(1, 2)
        costs = chain_loss(emissions, tags.view(m, k, t), *self._chain, moves=self._moves)
        return Losses(cross_entropy(logits, intents, reduction="none"), costs.flatten())

    def _block(self, rows: Tensor) -> int:
        block, left = divmod(len(rows), self.models)
        if left:
            raise ValueError(
                f"the rows must come in {self.models} blocks of one size, a block for each model, "
                f"got {len(rows)} rows"
            )
        return block


class _Affine(NamedTuple):
    """m linear maps: weights (m, d, e), biases (m, 1, e)."""

    weights: Tensor
    biases: Tensor

    @classmethod
    def of(cls, maps: Sequence[tuple[Tensor, Tensor]]) -> "_Affine":
        """Maps of weights (e, d) and biases (e,)."""
        weights, biases = zip(*maps, strict=True)
        return cls(
            torch.stack(weights).transpose(1, 2).contiguous(), torch.stack(biases).unsqueeze(1)
        )

    def __call__(self, rows: Tensor) -> Tensor:
        """(m, n, e) of rows (m, n, d)."""
        return torch.baddbmm(self.biases, rows, self.weights)


def _cells(models: Sequence[IntentSlotModel], layer: int) -> Cells:
    """Weights of an `nn.LSTM` layer, first one direction, then the other."""
    names = [f"l{layer}", f"l{layer}_reverse"]
    parts = [
        {kind: model.lstm.get_parameter(f"{kind}_{name}") for kind in _KINDS}
        for name in names
        for model in models
    ]
    weights = torch.stack([_ordered(part["weight_ih"]) for part in parts])
    biases = torch.stack([_ordered(part["bias_ih"] + part["bias_hh"]) for part in parts])
    states = torch.stack([_ordered(part["weight_hh"]) for part in parts])
    by_input, by_state = (part.transpose(1, 2).contiguous() for part in (weights, states))
    return Cells(by_input, biases.unsqueeze(1), by_state, states)


def _ordered(gates: Tensor) -> Tensor:
    """(4h, ...) with the gates in the order of `recur`."""
    return gates.view(4, -1, *gates.shape[1:])[list(ORDER)].flatten(0, 1)


def stack(models: Sequence[IntentSlotModel]) -> StackedModels:
    """Stack models of one shape into one `WhiteBox`.

    Args:
        models: at least one.

    Raises:
        ValueError: there are none.
        IncompatibleModels: they differ in shape, vocabulary or the order of their labels.

    Example:
        >>> from vestige.data.vocabulary import WordVocabulary
        >>> from vestige.models.bilstm_crf import IntentSlotConfig
        >>> words = WordVocabulary(("<unk>", "<eos>", "hello"))
        >>> shape = IntentSlotConfig(intents=("Greet",), tags=("O",))
        >>> both = stack([IntentSlotModel(words, shape) for _ in range(2)])
        >>> both.models, both.embed(torch.tensor([[2], [2]])).shape
        (2, torch.Size([2, 1, 50]))
    """
    if not models:
        raise ValueError("models must hold at least one model, got none")
    first = models[0]
    for number, model in enumerate(models[1:], 2):
        problem = _difference(first, model)
        if problem is not None:
            raise IncompatibleModels(
                f"models 1 and {number} cannot be stacked: {problem}",
                remedy="Stack models with one architecture and one vocabulary.",
            )
    return StackedModels(models)


def _difference(first: IntentSlotModel, other: IntentSlotModel) -> str | None:
    if first.vocabulary != other.vocabulary:
        return (
            f"their vocabularies differ ({len(first.vocabulary)} and {len(other.vocabulary)} words)"
        )
    shapes = [asdict(model.config) for model in (first, other)]
    unlike = [
        key for key in shapes[0] if key not in IRRELEVANT and shapes[0][key] != shapes[1][key]
    ]
    if unlike:
        return f"their {unlike[0]} differ ({shapes[0][unlike[0]]} and {shapes[1][unlike[0]]})"
    if first.device != other.device:
        return f"one is on {first.device}, the other is on {other.device}"
    return None
