"""A search's own forward passes, recorded and done again with nothing between them."""

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vestige.models.hugging_face import AppendedLayer, CacheState, HuggingFaceLanguageModel
from vestige.models.key_value_cache import KeysAndValues


@dataclass(frozen=True)
class Pass:
    """One forward pass of the body, or of the head where it reads no tokens.

    Attributes:
        rows: read side by side, or asked for.
        behind: tokens that each has read before.
        tokens: of each row.
    """

    rows: int
    behind: int = 0
    tokens: int = 0


@dataclass
class Recorder:
    """A model that notes the shapes of its passes."""

    model: HuggingFaceLanguageModel
    passes: list[Pass] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    @property
    def forward_tokens(self) -> int:
        return sum(one.rows * one.tokens for one in self.passes)

    def start(self, n: int, *, anywhere: bool = False) -> CacheState:
        if not anywhere:
            self.passes.append(Pass(1, 0, 1))
        return self.model.start(n, anywhere=anywhere)

    def read(self, state: CacheState, tokens: Tensor) -> CacheState:
        if tokens.numel():
            self.passes.append(Pass(len(tokens), state.length, tokens.shape[1]))
        return self.model.read(state, tokens)

    def advance(self, state: CacheState, tokens: Tensor) -> CacheState:
        return self.read(state, tokens[:, None])

    def logits(self, state: CacheState) -> Tensor:
        self.passes.append(Pass(len(state)))
        return self.model.logits(state)

    def log_probs(self, state: CacheState) -> Tensor:
        return self.logits(state).log_softmax(1)


@torch.no_grad()
def seconds_of(model: HuggingFaceLanguageModel, passes: list[Pass]) -> float:
    """Time of the passes alone: keys and values go into memory that was made before."""
    rows = max(one.rows for one in passes)
    longest = max(one.behind + one.tokens for one in passes)
    tokens = torch.randint(0, len(model.vocabulary), (rows, longest), device=model.device)
    probe = model.read(model.start(1, anywhere=True), tokens[:1, :1])
    room = [_room(layer, rows, longest) for layer in probe.layers]
    output = probe.hidden.repeat(rows, 1)
    started = now(model.device)
    for one in passes:
        layers = tuple(_behind(held, one) for held in room) if one.tokens else ()
        state = CacheState(layers, output[: one.rows], one.behind if one.tokens else 1)
        if one.tokens:
            model.read(state, tokens[: one.rows, : one.tokens])
        else:
            model.logits(state)
    return now(model.device) - started


def _room(layer: Any, rows: int, tokens: int) -> tuple[Tensor, Tensor]:
    def wide(one: Tensor) -> Tensor:
        return one.new_zeros(rows, one.shape[1], tokens, one.shape[3])

    return wide(layer.held.keys), wide(layer.held.values)


def _behind(room: tuple[Tensor, Tensor], one: Pass) -> AppendedLayer:
    layer = AppendedLayer()
    if one.behind:
        keys, values = (part[: one.rows] for part in room)
        layer.held = KeysAndValues(keys, values, length=one.behind, written=[one.behind])
    return layer


def now(device: torch.device) -> float:
    """Seconds; of the processor where one thread computes, so that no other program counts."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif torch.get_num_threads() == 1:
        return time.process_time()
    return time.perf_counter()


def weight_bytes(*models: HuggingFaceLanguageModel) -> int:
    """Memory of the tensors of models, those that they share once."""
    tensors = {t.data_ptr(): t for m in models for t in (*m.parameters(), *m.buffers())}
    return sum(t.nbytes for t in tensors.values())
