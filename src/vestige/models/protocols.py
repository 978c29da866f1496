"""Access protocols: what an attack can ask of a model defines its threat model.

Least access first. The signature of an attack names the least access that it needs.
Arrays at this boundary are torch tensors on the model's device; log-probabilities
are natural logs in float32.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

from vestige.data.vocabulary import Vocabulary
from vestige.errors import ModelError


class State(Protocol):
    """Decoder state for n sequences: an LSTM's (h, c), or a key/value cache.

    Immutable: `advance` returns a new one, and `state[index]` selects, repeats or
    re-orders its rows without touching the original.
    """

    @property
    def has_read(self) -> bool:
        """Whether the sequences have read a token or begin a text."""
        ...

    @property
    def nbytes(self) -> int: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: Tensor | slice) -> Self: ...


@runtime_checkable
class NextToken(Protocol):
    """Grey-box access: the next-token distribution after any text.

    Attributes:
        vocabulary: of the token ids.
        vocab_size: v, the width of `log_probs`; at least len(vocabulary).
        device: of states and results.
    """

    vocabulary: Vocabulary
    vocab_size: int

    @property
    def device(self) -> torch.device: ...

    def start(self, n: int, *, anywhere: bool = False) -> State:
        """State of n sequences at the beginning of a text.

        `anywhere`: the sequences have read nothing, as in the middle of a text; call `advance`
        before `log_probs`.
        """
        ...

    def advance(self, state: State, tokens: Tensor) -> State:
        """The n states after each has read one more token; tokens is int64 (n,)."""
        ...

    def read(self, state: State, tokens: Tensor) -> State:
        """The n states after each has read t more tokens, (n, t): as `advance`, t times."""
        ...

    def logits(self, state: State) -> Tensor:
        """(n, v) unnormalised log-probabilities, cheaper than `log_probs`."""
        ...

    def log_probs(self, state: State) -> Tensor:
        """(n, v) natural-log probabilities of the next token; call it on slices: n x v is large."""
        ...


@runtime_checkable
class TwoParts(Protocol):
    """Network with a body and a head that reads whole texts: `forward` is head after body.

    `separate_head` is False if the logits need more than the head; `body` then returns logits, and
    `predict` returns them unchanged. See `LanguageModel` for `carries_state`.
    """

    vocab_size: int
    separate_head: bool
    carries_state: bool

    @property
    def first_token(self) -> int:
        """Token before the first token of a text."""
        ...

    def body(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Hidden vectors (b, t, h) after each of the tokens (b, t), and a recurrent model's state.

        `state`: of b rows, before the tokens; it is not changed. None: nothing was read.
        """
        ...

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of hidden vectors (..., h)."""
        ...


class Network(nn.Module, ABC):
    """Trainable network with a vocabulary; `architecture` names its class in checkpoints."""

    architecture: ClassVar[str]
    vocabulary: Vocabulary
    config: Any = None

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    def write(self, folder: Path) -> None:
        """Write the network in its own format; called by `save_model`."""
        raise ValueError(f"model must be of a known architecture, got {self.architecture!r}")


class LanguageModel(Network):
    """Network with `forward` for training and `NextToken` for attacks.

    The methods of `NextToken` run without gradients, without dropout and in float32.
    States are typed `Any` here because each network accepts its own kind only.

    Attributes:
        carries_state: whether training passes the state of a window to the next one;
            such a state has `detach()`.
        longest: maximum number of tokens, with the beginning of a text; None: no limit.
        adapted: whether this is an adapter on a base and not a whole model.
        base: folder or hub name of an adapter's base.
    """

    carries_state: ClassVar[bool]
    vocab_size: int
    longest: int | None = None
    adapted: bool = False
    base: str | None = None

    @property
    def first_token(self) -> int:
        """Token before the first token of a text; `start` has read it."""
        return self.vocabulary.eos_id

    @abstractmethod
    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Logits (b, t, v) after each of the tokens (b, t), and the state after the last.

        A model that carries no state accepts and returns None.
        """

    @abstractmethod
    def start(self, n: int, *, anywhere: bool = False) -> Any: ...

    @abstractmethod
    def advance(self, state: Any, tokens: Tensor) -> Any: ...

    def read(self, state: Any, tokens: Tensor) -> Any:
        return read_each(self, state, tokens)

    @abstractmethod
    def logits(self, state: Any) -> Tensor: ...

    @torch.no_grad()
    def log_probs(self, state: Any) -> Tensor:
        return torch.log_softmax(self.logits(state), dim=-1)


class BodyAndHead:
    """`forward` and `NextToken` from `body`, `predict`, `unread`, `read` and `hidden_of`."""

    separate_head: bool = True
    device: Any
    first_token: Any

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Logits (b, t, v) after each of the tokens (b, t), and the state after the last."""
        hidden, after = self.body(tokens, state)
        return self.predict(hidden), after

    def body(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """See `TwoParts`."""
        raise NotImplementedError

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of hidden vectors (..., h)."""
        logits: Tensor = self.head(hidden)  # type: ignore[attr-defined]
        return logits

    def unread(self, n: int) -> Any:
        """State of n sequences that have read nothing."""
        raise NotImplementedError

    def read(self, state: Any, tokens: Tensor) -> Any:
        """The n states after each has read t more tokens, (n, t), in one call."""
        raise NotImplementedError

    def hidden_of(self, state: Any) -> Tensor:
        """(n, h) hidden vectors of a state, the input of the head."""
        hidden: Tensor = state.hidden
        return hidden

    @torch.no_grad()
    def start(self, n: int, *, anywhere: bool = False) -> Any:
        """State of n sequences that have read `first_token`."""
        if anywhere:
            return self.unread(n)
        state = self.advance(self.unread(1), torch.tensor([self.first_token], device=self.device))
        return state[torch.zeros(n, dtype=torch.int64, device=self.device)]

    def advance(self, state: Any, tokens: Tensor) -> Any:
        """The n states after each has read one more token; tokens is int64 (n,)."""
        return self.read(state, tokens[:, None])

    @torch.no_grad()
    def logits(self, state: Any) -> Tensor:
        """(n, v) unnormalised float32 log-probabilities of the next token."""
        require_read(state)
        return self.predict(self.hidden_of(state)).float()

    @torch.no_grad()
    def log_probs(self, state: Any) -> Tensor:
        """(n, v) natural-log probabilities of the next token."""
        return torch.log_softmax(self.logits(state), dim=-1)


def length_limit(*models: object) -> int | None:
    """Most tokens that all models read at once; None: no limit. `longest` is optional."""
    limits = [getattr(model, "longest", None) for model in models]
    return min((limit for limit in limits if limit is not None), default=None)


def read_each(model: NextToken, state: Any, tokens: Tensor) -> Any:
    """`NextToken.read`, token by token."""
    for column in tokens.T:
        state = model.advance(state, column)
    return state


def require_read(state: State) -> None:
    """Raise ValueError if the sequences have read nothing: then there is no next token."""
    if not state.has_read:
        raise ValueError(
            "state must have read at least one token, got start(n, anywhere=True): advance it first"
        )


def require_numbers(column: Tensor) -> None:
    """Raise ModelError if a column of a softmax has NaN. If one does, the whole row is NaN."""
    if column.isnan().any():
        raise ModelError(
            "the scores of a model are not finite",
            remedy="Save the model again, or pass an earlier checkpoint.",
        )


def require_evaluation(model: Any, *, drops: object = True) -> None:
    """Raise ValueError if a model is in training mode, where it drops units."""
    if drops and getattr(model, "training", False):
        raise ValueError("the model must be in evaluation mode, got training: call eval()")


def choose_device(name: str = "auto") -> torch.device:
    """The named device; "auto" is CUDA if there is one. ValueError if it is missing."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        probe = torch.zeros(1, device=name)  # fails if the index does not exist
    except (RuntimeError, AssertionError, ImportError, OverflowError) as error:
        raise ValueError(f"device must be one that this machine has, got {name!r}") from error
    if probe.is_meta:
        raise ValueError(f"device must be one that computes, got {name!r}")
    return probe.device


def single_device(name: str) -> torch.device | None:
    """The named device; None for "balanced", which spreads layers over all GPUs."""
    return None if name == "balanced" else choose_device(name)
