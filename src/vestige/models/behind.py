"""A model that has read something before every text, such as a chat template's beginning."""

import torch
from torch import Tensor

from vestige.data.vocabulary import Vocabulary
from vestige.models.protocols import NextToken, State


class Behind:
    """A `NextToken` whose texts begin behind a prefix.

    Args:
        model: that answers.
        prefix: ids.
        anywhere: they are all that is read; otherwise they follow the beginning of a text.

    Raises:
        ValueError: the prefix is empty, or longer than the model reads.

    Example:
        >>> from vestige.models.table import TableModel
        >>> model = TableModel([0.25, 0.75], [[0.5, 0.5], [1.0, 0.0]])
        >>> Behind(model, [1]).log_probs(Behind(model, [1]).start(2)).exp()
        tensor([[1., 0.],
                [1., 0.]])
    """

    vocabulary: Vocabulary
    vocab_size: int

    def __init__(self, model: NextToken, prefix: list[int], *, anywhere: bool = False) -> None:
        longest = getattr(model, "longest", None)
        if not prefix or (longest is not None and len(prefix) >= longest):
            raise ValueError(
                f"prefix must have 1 to {longest or 'any number of'} tokens, got {len(prefix)}"
            )
        self.model, self.prefix = model, prefix
        self.vocabulary, self.vocab_size = model.vocabulary, model.vocab_size
        self._anywhere = anywhere
        self._read: State | None = None

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def longest(self) -> int | None:
        """Tokens of a text at most."""
        longest = getattr(self.model, "longest", None)
        return None if longest is None else longest - len(self.prefix)

    @property
    def reads_whole(self) -> bool:
        """Whether the model has `after_each`."""
        return bool(getattr(self.model, "reads_whole", False))

    def after_each(self, state: State, tokens: Tensor) -> State:
        """States of a model that `reads_whole`, one after each token; see there."""
        states: State = self.model.after_each(state, tokens)  # type: ignore[attr-defined]
        return states

    def start(self, n: int, *, anywhere: bool = False) -> State:
        """State of n sequences behind the prefix, which is read once."""
        if anywhere:
            return self.model.start(n, anywhere=True)
        if self._read is None:
            state = self.model.start(1, anywhere=self._anywhere)
            ids = torch.tensor([self.prefix], device=self.device)
            self._read = self.model.read(state, ids)
        return self._read[torch.zeros(n, dtype=torch.int64, device=self.device)]

    def advance(self, state: State, tokens: Tensor) -> State:
        """See `NextToken`."""
        return self.model.advance(state, tokens)

    def read(self, state: State, tokens: Tensor) -> State:
        """See `NextToken`."""
        return self.model.read(state, tokens)

    def logits(self, state: State) -> Tensor:
        """See `NextToken`."""
        return self.model.logits(state)

    def log_probs(self, state: State) -> Tensor:
        """See `NextToken`."""
        return self.model.log_probs(state)
