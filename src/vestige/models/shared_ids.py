"""One set of token ids for two snapshots whose vocabularies differ.

A fine-tune often adds tokens (of a chat, of padding), pads its head to another width or begins its
texts with another token. The ids that both snapshots have still stand for the same texts, and are
compared. An id that one of them lacks has probability 0 there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from vestige.data.vocabulary import Vocabulary, setting_differences
from vestige.errors import IncompatibleModels
from vestige.models.protocols import LanguageModel


@dataclass(frozen=True)
class SharedVocabulary:
    """The token ids of two snapshots.

    Attributes:
        vocabulary: of the snapshot that has more of the ids; the later one if both have as many.
        texts: text of each id that either of them has, "" where neither has one.
        width: outputs of a model over the shared ids.
    """

    vocabulary: Vocabulary
    texts: tuple[str, ...]
    width: int

    @classmethod
    def of(cls, before: LanguageModel, after: LanguageModel) -> Self:
        """The ids of two snapshots together.

        Raises:
            IncompatibleModels: an id stands for different texts.
        """
        ours, theirs = before.vocabulary.texts(), after.vocabulary.texts()
        texts = _joined(ours, theirs)
        more = after if sum(map(bool, theirs)) >= sum(map(bool, ours)) else before
        same = tuple(ours) == tuple(theirs) and before.vocab_size == after.vocab_size
        return cls(more.vocabulary, texts, after.vocab_size if same else len(texts))

    def lacked_by(self, model: LanguageModel) -> list[int]:
        """The ids with a text that a model has no text of its own for.

        Raises:
            IncompatibleModels: an id stands for different texts.
        """
        own = model.vocabulary.texts()
        _joined(self.texts, own)
        known = [bool(text) for text in own] + [False] * len(self.texts)
        return [id for id, text in enumerate(self.texts) if text and not known[id]]

    def read_by(self, model: LanguageModel) -> LanguageModel:
        """The model over the shared ids: itself if these are its own.

        Raises:
            IncompatibleModels: an id stands for different texts.
        """
        lacked, shared = self.lacked_by(model), self.vocabulary
        alike = model.vocab_size == self.width and model.vocabulary.bos_id == shared.bos_id
        if alike and not lacked:
            return model
        return SharedIds(model, shared, width=self.width, lacked=lacked).eval()

    def differences(self, models: Mapping[str, LanguageModel]) -> list[str]:
        """A sentence for each difference of the two snapshots, by role, that still are compared."""
        (one, before), (other, after) = list(models.items())[:2]
        found = [
            f"{role} lacks {lacked:,} of the tokens: it reads them as the end of a text, with "
            "probability 0."
            for role, model in models.items()
            if (lacked := len(self.lacked_by(model)))
        ]
        if before.vocab_size != after.vocab_size:
            found.append(
                f"The models have {before.vocab_size:,} and {after.vocab_size:,} outputs; those of "
                f"{self.width:,} tokens are compared."
            )
        same = before.vocabulary.fingerprint() == after.vocabulary.fingerprint()
        differing = () if same else setting_differences(before.vocabulary, after.vocabulary)
        if differing:
            found.append(
                f"The vocabularies of {one.upper()} and {other.upper()} differ in: "
                f"{', '.join(differing)}. The search uses tokens; texts are split by each model's "
                "own tokenizer."
            )
        return found


class SharedIds(LanguageModel):
    """A snapshot over shared ids: what it lacks is read as the end of a text, with probability 0.

    Outputs beyond the shared ids, such as the padding of a head, are left out.

    Args:
        model: the snapshot; used as it is.
        vocabulary: of the shared ids.
        width: outputs.
        lacked: ids that the snapshot has no text for.
    """

    architecture: ClassVar[str] = "shared ids"
    carries_state: ClassVar[bool] = False
    model: Any
    _own_ids: Tensor
    _lacked: Tensor

    def __init__(
        self, model: LanguageModel, vocabulary: Vocabulary, *, width: int, lacked: Sequence[int]
    ) -> None:
        super().__init__()
        self.model, self.vocabulary, self.vocab_size = model, vocabulary, width
        self.longest = model.longest
        ids = torch.arange(width, device=model.device)
        lacks = ids >= model.vocab_size
        lacks[list(lacked)] = True
        own = ids.where(~lacks, model.vocabulary.eos_id)
        self.register_buffer("_own_ids", own, persistent=False)  # it goes where the model goes
        self.register_buffer("_lacked", lacks.nonzero()[:, 0], persistent=False)

    @property
    def device(self) -> torch.device:
        return self.model.device  # type: ignore[no-any-return]

    @property
    def first_token(self) -> int:
        """The snapshot's own, which need not be the shared vocabulary's."""
        return int(self.model.first_token)

    @property
    def separate_head(self) -> bool:
        """Whether the snapshot's is; absent where the snapshot has no `body`."""
        return bool(self.model.separate_head)

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        logits, state = self.model(self._own_ids[tokens], state)
        return self._shared(logits), state

    def body(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The snapshot's hidden vectors (b, t, h) after each of the tokens (b, t)."""
        return self.model.body(self._own_ids[tokens], state)  # type: ignore[no-any-return]

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of hidden vectors, if `separate_head`."""
        return self._shared(self.model.predict(hidden))

    def start(self, n: int, *, anywhere: bool = False) -> Any:
        return self.model.start(n, anywhere=anywhere)

    def advance(self, state: Any, tokens: Tensor) -> Any:
        return self.model.advance(state, self._own_ids[tokens])

    def read(self, state: Any, tokens: Tensor) -> Any:
        return self.model.read(state, self._own_ids[tokens])

    def logits(self, state: Any) -> Tensor:
        """(n, v) unnormalised log-probabilities, -inf for tokens that the snapshot lacks."""
        return self._shared(self.model.logits(state))

    def _shared(self, logits: Tensor) -> Tensor:
        width = min(self.vocab_size, logits.shape[-1])
        if not len(self._lacked):
            return logits[..., :width]
        shared = logits.new_full((*logits.shape[:-1], self.vocab_size), -torch.inf)
        shared[..., :width] = logits[..., :width]
        return shared.index_fill_(-1, self._lacked, -torch.inf)


def _joined(ours: Sequence[str], theirs: Sequence[str]) -> tuple[str, ...]:
    """Text of each id of either vocabulary."""
    for id, (mine, yours) in enumerate(zip(ours, theirs, strict=False)):
        if mine and yours and mine != yours:
            raise IncompatibleModels(
                f"vocabularies differ at token {id}",
                remedy=(
                    "Train the second with --from the first, or train both with one vocabulary. "
                    "The second may append tokens."
                ),
            )
    longer = ours if len(ours) >= len(theirs) else theirs
    both = min(len(ours), len(theirs))
    return (*(mine or yours for mine, yours in zip(ours, theirs, strict=False)), *longer[both:])
