"""What an attack may ask of a model: the protocol that it names is its threat model.

Least access first. An attack's signature names the least access that it needs.
Arrays at this boundary are torch tensors on the model's own device; log-probabilities
are natural logs in float32.
"""

from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from vestige.data.vocabulary import Vocabulary


class State(Protocol):
    """What n models-in-waiting have read: an LSTM's (h, c), or a key/value cache.

    Immutable: `advance` returns a new one, and `state[index]` selects, repeats or
    re-orders its rows without touching the original.
    """

    def __len__(self) -> int:
        """The number of rows, n."""
        ...

    def __getitem__(self, index: Tensor | slice) -> Self:
        """The rows that an int64 (m,) index or a slice selects."""
        ...


@runtime_checkable
class NextToken(Protocol):
    """Grey-box access: the whole next-token distribution after any text.

    Attributes:
        vocabulary: what the ids mean.
        vocab_size: v, the width of `log_probs`; at least len(vocabulary).
        device: where states and answers live.
    """

    vocabulary: Vocabulary
    vocab_size: int

    @property
    def device(self) -> torch.device: ...

    def start(self, n: int, *, anywhere: bool = False) -> State:
        """n rows that stand at the beginning of a text.

        Args:
            n: rows.
            anywhere: the rows have read nothing at all, as if dropped into the middle of a
                text; `log_probs` may be asked only after a first `advance`.
        """
        ...

    def advance(self, state: State, tokens: Tensor) -> State:
        """The n states after each has read one more token; tokens is int64 (n,)."""
        ...

    def log_probs(self, state: State) -> Tensor:
        """(n, v) natural-log probabilities of the next token. Ask in slices: it is n x v large."""
        ...
