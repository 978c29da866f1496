"""The model of memaudit's demo as Vestige asks it: the same weights behind `LanguageModel`.

Its tokenizer reads `t12` as token 12 and any other word as a hash of it, which stays its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from vestige.models.protocols import LanguageModel


@dataclass(frozen=True)
class DemoVocabulary:
    """`DemoTokenizer` behind Vestige's face.

    Attributes:
        tokenizer: of memaudit.
    """

    tokenizer: Any
    bos_id: None = None
    unk_id: None = None

    @property
    def eos_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    def __len__(self) -> int:
        return len(self.tokenizer)

    def encode(self, text: str) -> list[int]:
        """Ids, without an end-of-text token."""
        return list(self.tokenizer.encode(text))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids."""
        return str(self.tokenizer.decode(ids))

    def piece(self, token: int) -> str:
        """Text of one token, behind a space."""
        return f" t{token}"

    def texts(self) -> Sequence[str]:
        """Text of each id."""
        return [self.piece(token) for token in range(len(self))]

    def settings(self) -> Mapping[str, object]:
        """There are none."""
        return {}

    def fingerprint(self) -> str:
        """A name for what ids stand for."""
        return f"memaudit-demo-{len(self)}"


@dataclass(frozen=True)
class Read:
    """All that n sequences have read, (n, t)."""

    tokens: Tensor

    @property
    def has_read(self) -> bool:
        return True

    @property
    def nbytes(self) -> int:
        return self.tokens.nbytes

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: Tensor | slice) -> Self:
        return type(self)(self.tokens[index])


class DemoModel(LanguageModel):
    """`TinyDemoLM`: a text begins behind nothing, as in its training.

    Args:
        network: of memaudit, in evaluation mode.
        tokenizer: its own.
    """

    architecture: ClassVar[str] = "memaudit-demo"
    carries_state: ClassVar[bool] = False

    def __init__(self, network: Any, tokenizer: Any) -> None:
        super().__init__()
        self.network = network
        self.vocabulary = DemoVocabulary(tokenizer)
        self.vocab_size = len(tokenizer)

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def forward(self, tokens: Tensor, state: None = None) -> tuple[Tensor, None]:
        """Logits (b, t, v)."""
        return self.network(tokens).logits, None

    def start(self, n: int, *, anywhere: bool = False) -> Read:
        """n rows that have read nothing."""
        return Read(torch.empty((n, 0), dtype=torch.int64, device=self.device))

    def advance(self, state: Read, tokens: Tensor) -> Read:
        """The rows with one more token."""
        return Read(torch.cat([state.tokens, tokens[:, None]], 1))

    @torch.no_grad()
    def logits(self, state: Read) -> Tensor:
        """(n, v); all alike before the first token, which this model is never taught."""
        if not state.tokens.shape[1]:
            return torch.zeros((len(state), self.vocab_size), device=self.device)
        logits: Tensor = self.network(state.tokens).logits
        return logits[:, -1].float()
