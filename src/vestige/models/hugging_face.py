"""Hugging Face causal language models, and LoRA adapters on them.

Body and head are called separately. The state keeps the last hidden vector of each row, and
`log_probs` applies the head only to the requested rows, so memory never holds rows x vocabulary.
Models whose head computes more than that (scaled or capped logits) keep their logits.

LoRA: Hu et al. (2021), "Low-Rank Adaptation of Large Language Models", arXiv:2106.09685.
"""

import copy
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from vestige.data.subwords import SubwordVocabulary
from vestige.errors import ModelError
from vestige.models.key_value_cache import KeysAndValues, all_rows
from vestige.models.protocols import BodyAndHead, LanguageModel, require_evaluation


class AppendedLayer(DynamicLayer):  # type: ignore[misc]
    """`KeysAndValues` as a layer of a transformers cache; copies are independent.

    Attributes:
        contents: keys and values read so far; None: none.
        stores: whether to store what is read next; False for a single forward pass.
    """

    contents: KeysAndValues | None = None
    stores: bool = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values; returns all of them."""
        if self.contents is None and not self.stores:
            return key_states, value_states
        new = (key_states, value_states)
        longer = KeysAndValues.of(*new) if self.contents is None else self.contents.extended(*new)
        if self.stores:
            self.contents = longer
        return longer.read()

    def batch_select_indices(self, indices: Tensor | slice) -> None:
        """Keep some rows."""
        self.contents = None if self.contents is None else self.contents[indices]

    def __copy__(self) -> Self:  # ten times as fast as copy.copy of an object
        new = type(self).__new__(type(self))
        new.__dict__.update(self.__dict__)
        return new

    def get_seq_length(self) -> int:
        """Number of tokens read."""
        return 0 if self.contents is None else self.contents.length


@dataclass(frozen=True)
class CacheState:
    """Decoder state for n sequences, as the layers of a `DynamicCache`.

    Attributes:
        layers: of the cache; each row of their keys and values is a row of the state.
        hidden: (n, d) last hidden vectors, or (n, v) logits if the head is not separate.
        length: tokens read.
    """

    layers: tuple[DynamicLayer, ...]
    hidden: Tensor
    length: int

    @property
    def has_read(self) -> bool:
        return self.length > 0

    @property
    def nbytes(self) -> int:
        return int(self.hidden.nbytes + sum(map(_layer_bytes, self.layers)))

    def __len__(self) -> int:
        return len(self.hidden)

    def __getitem__(self, index: Tensor | slice) -> Self:
        if all_rows(index, len(self)):
            return self
        layers, hidden = tuple(copy.copy(layer) for layer in self.layers), self.hidden[index]
        for layer in layers:
            if isinstance(index, Tensor) and layer.keys is not None:  # it may be on another device
                index = index.to(layer.keys.device)
            layer.batch_select_indices(index)
        return type(self)(layers, hidden, self.length)


def _layer_bytes(layer: DynamicLayer) -> int:
    if isinstance(layer, AppendedLayer):
        return 0 if layer.contents is None else layer.contents.nbytes
    return sum(t.nbytes for t in (layer.keys, layer.values) if t is not None)


class HuggingFaceLanguageModel(BodyAndHead, LanguageModel):
    """A `transformers` causal language model, or a `PeftModel` around one.

    Args:
        network: the model; its parameters are used as they are, not copied.
        vocabulary: its tokenizer.

    Raises:
        ModelError: the rows of the network's cache cannot be selected, or it has fewer outputs
            than the tokenizer has tokens.
    """

    architecture: ClassVar[str] = "hugging-face"
    carries_state: ClassVar[bool] = False
    network: nn.Module
    vocabulary: SubwordVocabulary

    def __init__(self, network: nn.Module, vocabulary: SubwordVocabulary) -> None:
        super().__init__()
        self.network, self.vocabulary = network, vocabulary
        self.adapted = hasattr(network, "peft_config")
        base = self._base_network()
        self.base = (base.name_or_path or None) if self.adapted else None
        self.settings = base.config.get_text_config(decoder=True)
        self.vocab_size = int(self.settings.vocab_size)
        needed = max(len(vocabulary), vocabulary.largest + 1)
        if needed > self.vocab_size:
            raise ModelError(
                f"the tokenizer has {needed} tokens; the model has {self.vocab_size} outputs",
                remedy="Pass the tokenizer that the model was trained with.",
            )
        self._require_plain_cache()
        parameters = inspect.signature(base.forward).parameters
        self._takes_positions = "position_ids" in parameters
        self._keeps_logits = "logits_to_keep" in parameters
        # transformers before 5.24 has no `cache`.
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self.longest = getattr(self.settings, "max_position_embeddings", None)
        self.separate_head = self._head_is_separate()
        self.training = network.training

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @property
    def first_token(self) -> int:
        """`<bos>`, or `<eos>` if there is none."""
        bos: int | None = self.vocabulary.tokenizer.bos_token_id
        return self.vocabulary.eos_id if bos is None else bos

    @property
    def head(self) -> Any:
        """Linear head; None if the network has none."""
        return self._base_network().get_output_embeddings()

    def forward(self, tokens: Tensor, state: None = None) -> tuple[Tensor, None]:
        """Logits (b, t, v) after each of the tokens (b, t).

        Raises:
            ValueError: t is larger than `longest`.
        """
        self._check_length(tokens.shape[1])
        # Each row has its own positions, so that each has its own gradient.
        positions = torch.arange(tokens.shape[1], device=tokens.device).repeat(len(tokens), 1)
        arguments = {"position_ids": positions} if self._takes_positions else {}
        return self.network(input_ids=tokens, use_cache=False, **arguments).logits, None

    def body(self, tokens: Tensor, state: CacheState | None = None) -> tuple[Tensor, None]:
        """The last hidden vectors (b, t, h) after each of the tokens (b, t).

        Logits (b, t, v) if the head is not separate.

        Args:
            tokens: ids.
            state: of b rows, before the tokens; it is not changed. None: nothing was read.

        Raises:
            ValueError: the text becomes longer than `longest`.
        """
        self._check_length(tokens.shape[1] + (0 if state is None else state.length))
        arguments: dict[str, Any] = {"use_cache": False}
        if state is not None:
            cache = DynamicCache()
            cache.layers = [copy.copy(layer) for layer in state.layers]
            for layer in cache.layers:
                layer.stores = False
            arguments = {"use_cache": True, self._cache_name: cache}
        if not self.separate_head:
            return self.network(input_ids=tokens, **arguments).logits, None
        return self._body()(input_ids=tokens, **arguments).last_hidden_state, None

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) from the result of `body`."""
        return super().predict(hidden) if self.separate_head else hidden

    def unread(self, n: int) -> CacheState:
        layers = DynamicCache(config=self.settings).layers
        appended = (AppendedLayer() if type(layer) is DynamicLayer else layer for layer in layers)
        return CacheState(tuple(appended), torch.empty(n, 0, device=self.device), 0)

    @torch.no_grad()
    def read(self, state: CacheState, tokens: Tensor) -> CacheState:
        """See `BodyAndHead`.

        Raises:
            ValueError: the text becomes longer than the model can read, or dropout is on.
        """
        require_evaluation(self)
        length = state.length + tokens.shape[1]
        self._check_length(length)
        if tokens.numel() == 0:  # transformers cannot reshape a batch without rows
            return CacheState(state.layers, state.hidden, length)
        cache = DynamicCache()
        # An update replaces the contents of a copy, and the state does not change.
        cache.layers = [copy.copy(layer) for layer in state.layers]
        network = self._body() if self.separate_head else self.network
        arguments: dict[str, Any] = {"use_cache": True, self._cache_name: cache}
        if self._keeps_logits and not self.separate_head:
            arguments["logits_to_keep"] = 1
        outputs = network(input_ids=tokens, **arguments)
        hidden = outputs.last_hidden_state if self.separate_head else outputs.logits
        # Keys and values are on the devices of their layers, everything else on the first device.
        hidden = hidden[:, -1].contiguous().to(self.device)
        return CacheState(tuple(cache.layers), hidden, length)

    def logits(self, state: CacheState) -> Tensor:
        """(n, v) unnormalised float32 log-probabilities of the next token, on the first device."""
        return super().logits(state).to(self.device)

    def write(self, folder: Path) -> None:
        """Write a model, or an adapter without its base, with the tokenizer.

        Raises:
            ModelError: the adapter's base was never saved.
        """
        network: Any = self.network
        if not self.adapted:
            network.save_pretrained(folder)
        elif network.peft_config["default"].base_model_name_or_path:
            # "auto" would query the hub for the size of the base's vocabulary.
            network.save_pretrained(str(folder), save_embedding_layers=False)
        else:
            raise ModelError(
                "the base of the adapter was never saved",
                remedy="Save the base with save_model, load it, and add the adapter to it.",
            )
        self.vocabulary.save(folder)

    def _check_length(self, tokens: int) -> None:
        if self.longest is not None and tokens > self.longest:
            raise ValueError(
                f"a text must have at most {self.longest} tokens (its beginning counts as one), "
                f"got {tokens}"
            )

    def _base_network(self) -> Any:
        network: Any = self.network
        # PEFT inserts its layers into the base's modules, so the base is adapted.
        return network.get_base_model() if self.adapted else network

    def _body(self) -> Any:
        return self._base_network().base_model

    def _require_plain_cache(self) -> None:
        for layer in DynamicCache(config=self.settings).layers:
            if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
                raise ModelError(
                    f"{type(self._base_network()).__name__} caches its context in a "
                    f"{type(layer).__name__}, whose rows cannot be selected",
                    remedy="Pass a model with plain attention (GPT-2, Llama, Qwen, ...).",
                )

    @torch.no_grad()
    def _head_is_separate(self) -> bool:
        """Whether the logits are exactly the head of the last hidden vector."""
        if self.head is None or self._body() is self._base_network():
            return False
        was_training = self.network.training
        self.network.eval()
        tokens = torch.arange(min(8, len(self.vocabulary)), device=self.device)[None]
        logits = self.network(input_ids=tokens, use_cache=False).logits
        hidden = self._body()(input_ids=tokens, use_cache=False).last_hidden_state
        self.network.train(was_training)
        predicted = self.head(hidden)
        if predicted.shape != logits.shape:
            return False
        return torch.allclose(predicted.float(), logits.float(), rtol=1e-4, atol=1e-4)
