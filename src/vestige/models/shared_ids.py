"""One set of token ids for two snapshots with different vocabularies.

Fine-tuning often adds tokens (of a chat, of padding), pads the head to another width or changes the
first token of texts. Ids of both snapshots still have the same texts and are compared. An id that
one snapshot lacks has probability 0 there.
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
        vocabulary: of the snapshot with more ids; the later one if both have the same number.
        texts: text of each id in either snapshot; "": none.
        width: number of outputs over the shared ids.
    """

    vocabulary: Vocabulary
    texts: tuple[str, ...]
    width: int

    @classmethod
    def of(cls, before: LanguageModel, after: LanguageModel) -> Self:
        """The ids of two snapshots together.

        Raises:
            IncompatibleModels: an id has different texts.
        """
        texts_before, texts_after = before.vocabulary.texts(), after.vocabulary.texts()
        texts = _merged_texts(texts_before, texts_after)
        larger = after if sum(map(bool, texts_after)) >= sum(map(bool, texts_before)) else before
        same = tuple(texts_before) == tuple(texts_after) and before.vocab_size == after.vocab_size
        return cls(larger.vocabulary, texts, after.vocab_size if same else len(texts))

    def missing_ids(self, model: LanguageModel) -> list[int]:
        """The ids with a text that the model does not have.

        Raises:
            IncompatibleModels: an id has different texts.
        """
        model_texts = model.vocabulary.texts()
        _merged_texts(self.texts, model_texts)
        has_text = [bool(text) for text in model_texts] + [False] * len(self.texts)
        return [id for id, text in enumerate(self.texts) if text and not has_text[id]]

    def adapt(self, model: LanguageModel) -> LanguageModel:
        """The model over the shared ids; unchanged if its ids are the shared ones.

        Raises:
            IncompatibleModels: an id has different texts.
        """
        missing, shared = self.missing_ids(model), self.vocabulary
        same_outputs = model.vocab_size == self.width and model.vocabulary.bos_id == shared.bos_id
        if same_outputs and not missing:
            return model
        return SharedIds(model, shared, width=self.width, missing=missing).eval()

    def differences(self, models: Mapping[str, LanguageModel]) -> list[str]:
        """A sentence for each difference between the first two models, by role."""
        (role_before, before), (role_after, after) = list(models.items())[:2]
        sentences = [
            f"{role} lacks {missing:,} of the tokens: it reads them as the end of a text, with "
            "probability 0."
            for role, model in models.items()
            if (missing := len(self.missing_ids(model)))
        ]
        if before.vocab_size != after.vocab_size:
            sentences.append(
                f"The models have {before.vocab_size:,} and {after.vocab_size:,} outputs; those of "
                f"{self.width:,} tokens are compared."
            )
        same = before.vocabulary.fingerprint() == after.vocabulary.fingerprint()
        settings = () if same else setting_differences(before.vocabulary, after.vocabulary)
        if settings:
            sentences.append(
                f"The vocabularies of {role_before.upper()} and {role_after.upper()} differ in: "
                f"{', '.join(settings)}. The search uses tokens; texts are split by each model's "
                "own tokenizer."
            )
        return sentences


class SharedIds(LanguageModel):
    """A snapshot over shared ids: missing ids are read as the end of a text, with probability 0.

    Outputs beyond the shared ids, such as the padding of a head, are left out.

    Args:
        model: the snapshot; not copied.
        vocabulary: of the shared ids.
        width: number of outputs.
        missing: ids that the snapshot does not have.
    """

    architecture: ClassVar[str] = "shared ids"
    carries_state: ClassVar[bool] = False
    model: Any
    _model_ids: Tensor
    _missing: Tensor

    def __init__(
        self, model: LanguageModel, vocabulary: Vocabulary, *, width: int, missing: Sequence[int]
    ) -> None:
        super().__init__()
        self.model, self.vocabulary, self.vocab_size = model, vocabulary, width
        self.longest = model.longest
        ids = torch.arange(width, device=model.device)
        is_missing = ids >= model.vocab_size
        is_missing[list(missing)] = True
        model_ids = ids.where(~is_missing, model.vocabulary.eos_id)
        self.register_buffer("_model_ids", model_ids, persistent=False)  # moves with the model
        self.register_buffer("_missing", is_missing.nonzero()[:, 0], persistent=False)

    @property
    def device(self) -> torch.device:
        return self.model.device  # type: ignore[no-any-return]

    @property
    def first_token(self) -> int:
        """The snapshot's first token, which may differ from that of the shared vocabulary."""
        return int(self.model.first_token)

    @property
    def separate_head(self) -> bool:
        """Whether the snapshot's head is separate; AttributeError if it has no `body`."""
        return bool(self.model.separate_head)

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        logits, state = self.model(self._model_ids[tokens], state)
        return self._shared(logits), state

    def body(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The snapshot's hidden vectors (b, t, h) after each of the tokens (b, t)."""
        return self.model.body(self._model_ids[tokens], state)  # type: ignore[no-any-return]

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of hidden vectors, if `separate_head`."""
        return self._shared(self.model.predict(hidden))

    def start(self, n: int, *, anywhere: bool = False) -> Any:
        return self.model.start(n, anywhere=anywhere)

    def advance(self, state: Any, tokens: Tensor) -> Any:
        return self.model.advance(state, self._model_ids[tokens])

    def read(self, state: Any, tokens: Tensor) -> Any:
        return self.model.read(state, self._model_ids[tokens])

    def logits(self, state: Any) -> Tensor:
        """(n, v) unnormalised log-probabilities, -inf for tokens that the snapshot lacks."""
        return self._shared(self.model.logits(state))

    def _shared(self, logits: Tensor) -> Tensor:
        width = min(self.vocab_size, logits.shape[-1])
        if not len(self._missing):
            return logits[..., :width]
        shared = logits.new_full((*logits.shape[:-1], self.vocab_size), -torch.inf)
        shared[..., :width] = logits[..., :width]
        return shared.index_fill_(-1, self._missing, -torch.inf)


def _merged_texts(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """Text of each id in either vocabulary."""
    for id, (text, other) in enumerate(zip(first, second, strict=False)):
        if text and other and text != other:
            raise IncompatibleModels(
                f"vocabularies differ at token {id}",
                remedy=(
                    "Train the second with --from the first, or train both with one vocabulary. "
                    "The second may append tokens."
                ),
            )
    longer = first if len(first) >= len(second) else second
    both = min(len(first), len(second))
    return (*(text or other for text, other in zip(first, second, strict=False)), *longer[both:])
