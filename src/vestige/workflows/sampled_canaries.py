"""Canaries sampled from a language model before a training.

Mitchell, Andrew, Ganesh, McMahan and Kairouz (2026), "Advancing the State-of-the-Art in Empirical
Privacy Auditing", arXiv:2606.10481: texts drawn at a high temperature (0.8 or more), behind prompts
like the private text, look like it and are outliers of it; nobody wrote them, so that they may be
read and repeated.

Differs from the paper: a canary is one line, that the tokenizer reads back as it was drawn, and
that stands neither in the corpus nor in another canary; what does is drawn again. Planted ones and
controls are told apart by coins that are flipped without regard to the texts.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from vestige.errors import DataError
from vestige.monitor import SILENT, Monitor

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.manifest import Sampling
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.protocols import NextToken

LENGTH = 32
"""Tokens of a sampled canary at most, by default."""

_BLOCK = 64
"""Texts drawn side by side."""
_PATIENCE = 30
"""Texts drawn at most for each that is asked for, and as many more blocks."""
_SHORTEST = 2
_LONGEST = 10_000
"""Letters of a phrase that a manifest holds at most."""

UNREADABLE, WRITTEN, INSIDE = "no readable line", "in the corpus", "in one another"


@dataclass(frozen=True, kw_only=True)
class CanarySampler:
    """What canaries are sampled from.

    Attributes:
        model: any language model that has not read the text in which they will be planted.
        temperature: T of softmax(logits / T), above 0.
        prompts: texts, each read with the end of its line before a canary; in turn where there are
            several; without one a canary begins a text.
        length: tokens of a canary at most, at least 2; the end of the text or of the line ends it.
    """

    model: "NextToken"
    temperature: float = 1.0
    prompts: Sequence[str] = ()
    length: int = LENGTH

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"`temperature` must be above 0 and finite, got {self.temperature}")
        if self.length < _SHORTEST:
            raise ValueError(
                f"`length` must be at least {_SHORTEST} of sampled canaries, got {self.length}"
            )

    def phrases(
        self,
        corpus: "Corpus",
        *,
        number: int,
        seed: Sequence[int],
        vocabulary: "Vocabulary | None" = None,
        monitor: Monitor = SILENT,
    ) -> list[str]:
        """Different phrases that the corpus does not hold, none of them inside another.

        Args:
            corpus: in which they will be planted.
            number: phrases.
            seed: decides them.
            vocabulary: that must have their words, too, such as that of the model to be trained.
            monitor: told how many there are.

        Raises:
            DataError: too few of the texts drawn are such phrases.
        """
        kept = _Kept(corpus, self.model.vocabulary, vocabulary)
        most = _PATIENCE * (number + _BLOCK)
        with monitor.progress("sampling canaries") as step:
            for texts in self._blocks(seed):
                kept.add(texts, number)
                step(len(kept.phrases), number)
                if len(kept.phrases) == number:
                    return list(kept.phrases)
                if kept.drawn >= most:
                    break
        raise DataError(
            f"only {len(kept.phrases)} of {number} canaries were found among {kept.drawn} texts "
            f"that the model wrote; the others were {kept.reasons}",
            remedy=kept.remedy,
        )

    def _blocks(self, seed: Sequence[int]) -> Iterator[list[list[int]]]:
        """Texts of ids without end, behind each prompt in turn."""
        import numpy as np
        import torch

        from vestige.models.sampling import sample

        vocabulary = self.model.vocabulary
        chance = torch.Generator().manual_seed(int(np.random.default_rng(seed).integers(2**63)))
        prompts = [vocabulary.encode(f"{text}\n") for text in self.prompts] or [[]]
        _check_room(self.model, prompts, self.length)
        draw = partial(
            sample,
            self.model,
            -(-_BLOCK // len(prompts)),
            length=self.length,
            temperature=self.temperature,
            ends=line_ends(vocabulary, self.model.vocab_size),
            never=[] if vocabulary.unk_id is None else [vocabulary.unk_id],
            generator=chance,
        )
        while True:
            each = [draw(prompt=prompt) for prompt in prompts]
            yield [text for behind in zip(*each, strict=True) for text in behind]


def _check_room(model: "NextToken", prompts: Sequence[Sequence[int]], length: int) -> None:
    """Raise ValueError where a prompt with a canary is longer than what the model reads."""
    longest: int | None = getattr(model, "longest", None)
    needed = 1 + max(map(len, prompts)) + length
    if longest is not None and needed > longest:
        raise ValueError(
            f"`prompt` and `length` must come to at most the {longest} tokens that the model "
            f"reads, got {needed}: shorten the prompt or the canaries"
        )


def requested(given: Mapping[str, Any]) -> "tuple[CanarySampler | None, Sampling | None]":
    """The sampler that the arguments of `plant` ask for, and its record; None for other kinds.

    Raises:
        ValueError: it lacks its model, or another kind of canaries has its options.
        ModelError: the model cannot be read.
    """
    from vestige.data.manifest import Sampling
    from vestige.models.provenance import sha256_of
    from vestige.workflows.inputs import open_model, several

    model, prompts = given["sampled_from"], several(given["prompt"])
    if given["canary_kind"] != "sampled":
        for name in ("sampled_from", "temperature", "prompt"):
            if given[name]:
                raise ValueError(f"`{name}` must come with `canary_kind` sampled, whose it is")
        return None, None
    if model is None:
        raise ValueError(
            "`sampled_from` must be given with `canary_kind` sampled: the language model that "
            "writes the canaries, such as the one from which the training starts"
        )
    sampler = CanarySampler(
        model=open_model(model, device=given["device"]),
        temperature=1.0 if given["temperature"] is None else float(given["temperature"]),
        prompts=prompts,
        length=LENGTH if given["length"] is None else given["length"],
    )
    return sampler, Sampling(
        model=fspath(model) if isinstance(model, str | PathLike) else "",
        weights=sha256_of(model),
        temperature=sampler.temperature,
        length=sampler.length,
        prompts=list(prompts),
    )


def line_ends(vocabulary: "Vocabulary", size: int) -> set[int]:
    """Ids that end a line: the end of a text, other special tokens, line breaks.

    Args:
        vocabulary: of the ids.
        size: of the model's head, which may have ids that stand for nothing.
    """
    texts = vocabulary.texts()
    special = getattr(getattr(vocabulary, "tokenizer", None), "all_special_ids", ())
    ends = {vocabulary.eos_id, *special, *range(len(texts), size)}
    if vocabulary.bos_id is not None:
        ends.add(vocabulary.bos_id)
    ends |= {token for token in range(len(texts)) if "\n" in vocabulary.piece(token)}
    return ends - {vocabulary.unk_id}


@dataclass
class _Kept:
    """Phrases that can be planted, of the texts drawn so far.

    Attributes:
        folded: the phrases without case.
        drawn: texts so far.
        refused: how many are no such phrases, by the reason.
    """

    corpus: "Corpus"
    own: "Vocabulary"
    other: "Vocabulary | None"
    phrases: list[str] = field(default_factory=list)
    folded: list[str] = field(default_factory=list)
    drawn: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, texts: Sequence[Sequence[int]], number: int) -> None:
        """Keep what can be planted, until there are so many."""
        from vestige.data.canary import occurrences

        read = [self._readable(ids) for ids in texts]
        made = [phrase for phrase in read if phrase is not None]
        counts = iter(occurrences(self.corpus, made))
        for phrase in read:
            if len(self.phrases) == number:
                return
            self.drawn += 1
            if phrase is None:
                self.refused[UNREADABLE] += 1
            elif next(counts):
                self.refused[WRITTEN] += 1
            elif self._inside(phrase.casefold()):
                self.refused[INSIDE] += 1
            else:
                self.phrases.append(phrase)
                self.folded.append(phrase.casefold())

    @property
    def reasons(self) -> str:
        """How many texts were refused why, the most frequent reason first."""
        return ", ".join(f"{count} {why}" for why, count in self.refused.most_common())

    @property
    def remedy(self) -> str:
        """What would make more of them phrases that can be planted."""
        if self.refused.most_common(1)[0][0] == UNREADABLE:
            return (
                "Lower the `temperature`, ask for shorter canaries (`length`) or behind another "
                "`prompt`, or give a model that writes better."
            )
        return (
            "Raise the `temperature`, or ask for fewer canaries, for longer ones (`length`) or "
            "behind another `prompt`."
        )

    def _readable(self, ids: Sequence[int]) -> str | None:
        """One line that both vocabularies read, the own one as it was drawn; else None."""
        phrase = self.own.decode(ids)
        plain = phrase == " ".join(phrase.split()) and phrase.isprintable()
        if not plain or len(phrase) > _LONGEST or self.own.encode(phrase) != list(ids):
            return None
        others = ids if self.other is None else self.other.encode(phrase)
        unknown = self.other is not None and self.other.unk_id in others
        return None if unknown or min(len(ids), len(others)) < _SHORTEST else phrase

    def _inside(self, phrase: str) -> bool:
        """Whether it stands in a phrase that was kept, or that in it, whatever their case."""
        return any(phrase in one or one in phrase for one in self.folded)
