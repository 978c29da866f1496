"""Access protocols: what an attack may ask of a model is its threat model.

Least access first. An attack's signature names the least access that it needs.
Arrays at this boundary are torch tensors on the model's own device; log-probabilities
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
    """Grey-box access: the whole next-token distribution after any text.

    Attributes:
        vocabulary: of the token ids.
        vocab_size: v, the width of `log_probs`; at least len(vocabulary).
        device: where states and answers live.
    """

    vocabulary: Vocabulary
    vocab_size: int

    @property
    def device(self) -> torch.device: ...

    def start(self, n: int, *, anywhere: bool = False) -> State:
        """State of n sequences at the beginning of a text.

        `anywhere`: the rows have read nothing at all, as if dropped into the middle of a text;
        `log_probs` needs a first `advance`.
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
        """(n, v) natural-log probabilities of the next token; ask in slices, n x v is large."""
        ...


@runtime_checkable
class TwoParts(Protocol):
    """Network that reads whole texts, with body and head: `forward` is head after body.

    `separate_head` is False where the logits are more than the head of hidden vectors; `body` then
    returns logits, and `predict` returns them unchanged. See `LanguageModel` for `carries_state`.
    """

    vocab_size: int
    separate_head: bool
    carries_state: bool

    @property
    def first_token(self) -> int:
        """Token before a text's first."""
        ...

    def body(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Hidden vectors (b, t, h) after each of the tokens (b, t), and the state, if recurrent.

        `state`: b rows, read before the tokens and not changed; None: nothing.
        """
        ...

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of hidden vectors (..., h)."""
        ...


class Network(nn.Module, ABC):
    """Trainable network with a vocabulary; checkpoints find the class by `architecture`."""

    architecture: ClassVar[str]
    vocabulary: Vocabulary
    config: Any = None

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    def write(self, folder: Path) -> None:
        """Write a network that has a format of its own, for `save_model`."""
        raise ValueError(f"model must be of a known architecture, got {self.architecture!r}")


class LanguageModel(Network):
    """Network with `forward` for training and `NextToken` for attacks.

    The attacker's face runs without gradients, without dropout and in float32.
    States are typed `Any` here because each network accepts its own kind only.

    Attributes:
        carries_state: whether training hands the state of one window to the next;
            such a state has `detach()`.
        longest: maximum number of tokens, the beginning of a text counted; None for any.
        adapted: whether this is an adapter on a base rather than a whole model.
        base: of an adapter: the folder or hub name that its base was read from.
    """

    carries_state: ClassVar[bool]
    vocab_size: int
    longest: int | None = None
    adapted: bool = False
    base: str | None = None

    @property
    def first_token(self) -> int:
        """Token before a text's first, which `start` has read."""
        return self.vocabulary.eos_id

    @abstractmethod
    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Logits (b, t, v) after each of the tokens (b, t), and the state after the last.

        A model that carries no state takes and gives None for it.
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
    """`forward` and `NextToken` made of `body`, `predict`, `unread`, `read` and `hidden_of`."""

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
        """(n, h) what the head reads of a state."""
        hidden: Tensor = state.hidden
        return hidden

    @torch.no_grad()
    def start(self, n: int, *, anywhere: bool = False) -> Any:
        """n rows at the beginning of a text, where `first_token` was read."""
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
    """Tokens that all of some models read at once; a `NextToken` of users need not say."""
    limits = [getattr(model, "longest", None) for model in models]
    return min((one for one in limits if one is not None), default=None)


def read_each(model: NextToken, state: Any, tokens: Tensor) -> Any:
    """`NextToken.read`, token by token."""
    for column in tokens.T:
        state = model.advance(state, column)
    return state


def require_read(state: State) -> None:
    """Raise ValueError when the rows have read nothing, so that nothing can come next."""
    if not state.has_read:
        raise ValueError(
            "state must have read at least one token, got start(n, anywhere=True): advance it first"
        )


def require_numbers(column: Tensor) -> None:
    """Raise ModelError where one column of a softmax is NaN: then all of its row is."""
    if column.isnan().any():
        raise ModelError(
            "the scores of a model are not finite",
            remedy="Save the model again, or pass an earlier checkpoint.",
        )


def require_evaluation(model: Any, *, drops: object = True) -> None:
    """Raise ValueError when a model is in training mode and drops units there."""
    if drops and getattr(model, "training", False):
        raise ValueError("the model must be in evaluation mode, got training: call eval()")


def choose_device(name: str = "auto") -> torch.device:
    """The device that `name` asks for; "auto" is CUDA where there is one. ValueError without it."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.zeros(1, device=name)  # an index that is not there is noticed only now
    except (RuntimeError, AssertionError, ImportError, OverflowError) as error:
        raise ValueError(f"device must be one that this machine has, got {name!r}") from error
    if found.is_meta:  # which has no numbers
        raise ValueError(f"device must be one that computes, got {name!r}")
    return found.device


def placed(name: str) -> torch.device | None:
    """The device that `name` asks for; None for "balanced": all of them, layer after layer."""
    return None if name == "balanced" else choose_device(name)
