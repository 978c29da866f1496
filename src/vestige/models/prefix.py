"""What a model reads before a text: a prefix, such as the earlier turns of a chat."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige.data.vocabulary import Vocabulary
from vestige.errors import DataError
from vestige.models.protocols import NextToken, State

if TYPE_CHECKING:
    from vestige.data.canaries.texts import Manifest, Role

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class ReadContext:
    """What a model has read before each text.

    Attributes:
        token: the last token before the text; None: the text's first token is context.
        state: state before that token, for given indices of texts; None: nothing was read.
        length: tokens that the state has read.
        groups: (texts,) only texts of one group are read together; None: one group.
    """

    token: int | None
    state: Callable[[Ids], Any] | None = None
    length: int = 0
    groups: Ids | None = None


class PrefixedModel:
    """A `NextToken` whose texts begin after a prefix of ids.

    `anywhere`: nothing precedes the prefix; otherwise it follows the beginning of a text.

    Raises:
        ValueError: the prefix is empty, or longer than the model reads.
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
        self.anywhere = anywhere
        self._state: State | None = None

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def longest(self) -> int | None:
        """Most tokens of a text."""
        longest = getattr(self.model, "longest", None)
        return None if longest is None else longest - len(self.prefix)

    @cached_property
    def context(self) -> ReadContext:
        """The prefix, read once, for models that `read` reads as whole texts."""
        *before, last = self.prefix
        length = len(before) + (not self.anywhere)
        if not length:
            return ReadContext(last)
        with torch.no_grad():
            state: Any = self.model.start(1, anywhere=self.anywhere)
            if before:
                state = self.model.read(state, torch.tensor([before], device=self.device))
        zero = torch.zeros(1, dtype=torch.int64, device=self.device)
        return ReadContext(last, lambda texts: state[zero.expand(len(texts))], length)

    def start(self, n: int, *, anywhere: bool = False) -> State:
        if anywhere:
            return self.model.start(n, anywhere=True)
        if self._state is None:
            state = self.model.start(1, anywhere=self.anywhere)
            ids = torch.tensor([self.prefix], device=self.device)
            self._state = self.model.read(state, ids)
        return self._state[torch.zeros(n, dtype=torch.int64, device=self.device)]

    def advance(self, state: State, tokens: Tensor) -> State:
        return self.model.advance(state, tokens)

    def read(self, state: State, tokens: Tensor) -> State:
        return self.model.read(state, tokens)

    def logits(self, state: State) -> Tensor:
        return self.model.logits(state)

    def log_probs(self, state: State) -> Tensor:
        return self.model.log_probs(state)


def in_learned_context(model: NextToken, manifest: "Manifest") -> NextToken:
    """The model after its chat template's text before the turn that contained the canaries."""
    turn = manifest.turn
    return model if turn is None else in_turn(model, turn.role, turn.question)


def in_turn(model: NextToken, role: "Role", question: str) -> NextToken:
    """The model after its chat template's text before a turn, with the user's `question`.

    Raises:
        DataError: there is no usable template.
    """
    from vestige.data.chat_template import assistant_turn, users_turn

    template = template_of(model)
    if template is None:
        raise DataError(
            "a turn of a conversation needs a chat template; the tokenizer has none",
            remedy="Pass the model with its tokenizer.",
        )
    if role == "assistant":
        text_before = assistant_turn(*template, message=question)
    else:
        parts = users_turn(*template)
        if parts is None:
            raise DataError(
                "the chat template does not contain the user's text exactly once",
                remedy="Plant the canaries in the assistant's turn.",
            )
        text_before = parts[0]
    ids = list(model.vocabulary.encode(text_before))
    has_first_token = ids[:1] == [getattr(model, "first_token", None)]
    return PrefixedModel(
        model, ids[has_first_token:] if len(ids) > 1 else ids, anywhere=not has_first_token
    )


def template_of(model: NextToken) -> tuple[str, dict[str, str]] | None:
    """The chat template and special tokens of a model's tokenizer; None without a template."""
    tokenizer = getattr(model.vocabulary, "tokenizer", None)
    source = getattr(tokenizer, "chat_template", None)
    if isinstance(source, dict):  # several, by name
        source = source.get("default")
    if not isinstance(source, str):
        return None
    special_tokens = getattr(tokenizer, "special_tokens_map", {})
    return source, {name: token for name, token in special_tokens.items() if isinstance(token, str)}
