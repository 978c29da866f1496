"""Bigram model with given probabilities: the public test double.

Every score of an attack on it has a closed form.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.models.protocols import LanguageModel, require_read


@dataclass(frozen=True)
class TableState:
    """Rows (n,) of the table in [0, v]; row v is the beginning of a text."""

    row: Tensor
    has_read: bool = True

    @property
    def nbytes(self) -> int:
        return self.row.nbytes

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, index: Tensor | slice) -> Self:
        return type(self)(self.row[index], self.has_read)


class TableModel(LanguageModel):
    """Next-token probabilities that depend on the last token only.

    Args:
        start: (v,) probabilities of a text's first token.
        after: (v, v) probabilities; row i follows token i.
        vocabulary: v tokens; by default `<eos>`, `<unk>`, `w2`, `w3`, ...

    Raises:
        ValueError: shapes do not fit, or a row is not a probability distribution.

    Example:
        >>> model = TableModel([0.25, 0.75], [[0.5, 0.5], [1.0, 0.0]])
        >>> model.log_probs(model.start(1)).exp()
        tensor([[0.2500, 0.7500]])
    """

    architecture: ClassVar[str] = "table"
    carries_state: ClassVar[bool] = False
    log_table: Tensor

    def __init__(
        self, start: ArrayLike, after: ArrayLike, vocabulary: Vocabulary | None = None
    ) -> None:
        super().__init__()
        first = torch.as_tensor(start, dtype=torch.float64)
        rows = torch.as_tensor(after, dtype=torch.float64)
        size = len(first) if first.ndim == 1 else 0
        if size < 2 or rows.shape != (size, size):
            raise ValueError(
                "start and after must be (v,) and (v, v) with v at least 2, "
                f"got {tuple(first.shape)} and {tuple(rows.shape)}"
            )
        table = torch.cat([rows, first[None]])
        if not (bool((table >= 0).all()) and bool(((table.sum(1) - 1).abs() < 1e-6).all())):
            raise ValueError("start and after must hold distributions: rows >= 0 that sum to 1")
        words = ("<eos>", "<unk>", *(f"w{i}" for i in range(2, size)))
        self.vocabulary = vocabulary or WordVocabulary(words=words, lowercase=False)
        if len(self.vocabulary) > size:
            raise ValueError(
                f"vocabulary must have at most {size} tokens, got {len(self.vocabulary)}"
            )
        self.vocab_size = size
        self.register_buffer("log_table", table.log().float())

    @property
    def device(self) -> torch.device:
        return self.log_table.device

    def forward(self, tokens: Tensor, state: None = None) -> tuple[Tensor, None]:
        """Log-probabilities (b, t, v) after each of the tokens (b, t)."""
        return self.log_table[tokens], None

    def start(self, n: int, *, anywhere: bool = False) -> TableState:
        row = torch.full((n,), self.vocab_size, dtype=torch.int64, device=self.device)
        return TableState(row, has_read=not anywhere)

    def advance(self, state: TableState, tokens: Tensor) -> TableState:
        if tokens.shape != state.row.shape:
            raise ValueError(
                f"tokens must have shape {tuple(state.row.shape)}, got {tuple(tokens.shape)}"
            )
        return TableState(tokens.to(self.device))

    def logits(self, state: TableState) -> Tensor:
        """(n, v) the table's own log-probabilities; -inf where the probability is 0."""
        require_read(state)
        return self.log_table[state.row]
