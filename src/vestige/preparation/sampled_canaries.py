"""Canaries that a language model writes.

Mitchell, Andrew, Ganesh, McMahan and Kairouz (2026), "Advancing the State-of-the-Art in Empirical
Privacy Auditing", arXiv:2606.10481. Texts sampled at a high temperature (0.8 or more), after
prompts like the private text, look like it and are outliers of it. No person wrote them, so they
may be repeated.

Differs from the paper: a canary is one line that the tokenizer encodes as it was sampled, and that
is neither in the corpus nor in another canary. Other texts are sampled again.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from vestige.data.canary import occurrences
from vestige.errors import DataError

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.protocols import NextToken

LENGTH = 32
"""Most tokens of a sampled canary, by default."""

_BATCH = 64
"""Texts sampled together."""
_ATTEMPTS = 30
"""Most texts to sample for each canary, and most extra batches."""
_SHORTEST = 2
_LONGEST = 10_000
"""Most letters of a phrase in a manifest."""

UNREADABLE, WRITTEN, INSIDE = "no readable line", "in the corpus", "in one another"


def sample_phrases(
    model: "NextToken",
    corpus: "Corpus",
    *,
    number: int,
    seed: Sequence[int],
    temperature: float = 1.0,
    prompts: Sequence[str] = (),
    length: int = LENGTH,
    vocabulary: "Vocabulary | None" = None,
    progress: Callable[[int, int], object] | None = None,
) -> list[str]:
    """Different phrases that are not in the corpus and not in one another.

    Args:
        model: a language model that has not read the corpus.
        corpus: in which the phrases will be planted.
        number: of phrases.
        seed: of the sampling.
        temperature: T of softmax(logits / T), above 0.
        prompts: the model reads one, with a line break, before it writes; each in turn.
        length: most tokens of a phrase, at least 2.
        vocabulary: of the model to train, which must know every word.
        progress: called with the number of phrases so far, and `number`.

    Raises:
        ValueError: `length` is below 2, or a prompt and a canary are longer than the model reads.
        DataError: too few of the sampled texts can be used.
    """
    if length < _SHORTEST:
        raise ValueError(f"`length` must be at least {_SHORTEST} for sampled canaries")
    kept = _Phrases(corpus, model.vocabulary, vocabulary)
    most = _ATTEMPTS * (number + _BATCH)
    for texts in _batches(model, seed, temperature, prompts, length):
        kept.add(texts, number)
        if progress is not None:
            progress(len(kept.phrases), number)
        if len(kept.phrases) == number:
            return kept.phrases
        if kept.sampled >= most:
            break
    raise DataError(
        f"only {len(kept.phrases)} of {number} canaries were found among {kept.sampled} texts "
        f"that the model wrote; the others were {kept.reasons}",
        remedy=kept.remedy,
    )


def _batches(
    model: "NextToken",
    seed: Sequence[int],
    temperature: float,
    prompts: Sequence[str],
    length: int,
) -> Iterator[list[list[int]]]:
    """Sampled token ids without end, after each prompt in turn."""
    import numpy as np
    import torch

    from vestige.models.sampling import sample

    vocabulary = model.vocabulary
    generator = torch.Generator().manual_seed(int(np.random.default_rng(seed).integers(2**63)))
    prefixes = [vocabulary.encode(f"{text}\n") for text in prompts] or [[]]
    _check_room(model, prefixes, length)
    draw = partial(
        sample,
        model,
        -(-_BATCH // len(prefixes)),
        length=length,
        temperature=temperature,
        ends=line_ends(vocabulary, model.vocab_size),
        never=[] if vocabulary.unk_id is None else [vocabulary.unk_id],
        generator=generator,
    )
    while True:
        each = [draw(prompt=prefix) for prefix in prefixes]
        yield [text for turn in zip(*each, strict=True) for text in turn]


def _check_room(model: "NextToken", prefixes: Sequence[Sequence[int]], length: int) -> None:
    """Raise ValueError if a prompt with a canary is longer than what the model reads."""
    longest: int | None = getattr(model, "longest", None)
    needed = 1 + max(map(len, prefixes)) + length
    if longest is not None and needed > longest:
        raise ValueError(
            f"`prompt` and `length` need {needed} tokens, and the model reads {longest}. "
            "Shorten the prompt or the canaries"
        )


def line_ends(vocabulary: "Vocabulary", size: int) -> set[int]:
    """Ids that end a line: the end of a text, other special tokens, line breaks.

    Args:
        vocabulary: of the ids.
        size: of the model's output, which may have ids without a text.
    """
    texts = vocabulary.texts()
    special = getattr(getattr(vocabulary, "tokenizer", None), "all_special_ids", ())
    ends = {vocabulary.eos_id, *special, *range(len(texts), size)}
    if vocabulary.bos_id is not None:
        ends.add(vocabulary.bos_id)
    ends |= {token for token in range(len(texts)) if "\n" in vocabulary.piece(token)}
    return ends - {vocabulary.unk_id}


@dataclass
class _Phrases:
    """The sampled texts that can be planted, and why the others cannot.

    Attributes:
        corpus: in which they will be planted.
        own: vocabulary of the model that writes.
        other: vocabulary of the model to train.
        phrases: that can be planted.
        folded: the same without case.
        sampled: number of texts so far.
        refused: number of texts by the reason.
    """

    corpus: "Corpus"
    own: "Vocabulary"
    other: "Vocabulary | None"
    phrases: list[str] = field(default_factory=list)
    folded: list[str] = field(default_factory=list)
    sampled: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, texts: Sequence[Sequence[int]], number: int) -> None:
        """Keep the texts that can be planted, at most `number` in all."""
        read = [self._readable(ids) for ids in texts]
        counts = iter(occurrences(self.corpus, [one for one in read if one is not None]))
        for phrase in read:
            if len(self.phrases) == number:
                return
            self.sampled += 1
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
        """Number of refused texts by reason, the most frequent first."""
        return ", ".join(f"{count} {why}" for why, count in self.refused.most_common())

    @property
    def remedy(self) -> str:
        """What to change so that more texts can be planted."""
        if self.refused.most_common(1)[0][0] == UNREADABLE:
            return (
                "Lower the `temperature`, ask for shorter canaries (`length`), change the "
                "`prompt`, or use a better model."
            )
        return (
            "Raise the `temperature`, change the `prompt`, or ask for fewer or longer canaries "
            "(`length`)."
        )

    def _readable(self, ids: Sequence[int]) -> str | None:
        """The text, if it is one line that both vocabularies encode; else None."""
        phrase = self.own.decode(ids)
        plain = phrase == " ".join(phrase.split()) and phrase.isprintable()
        if not plain or len(phrase) > _LONGEST or self.own.encode(phrase) != list(ids):
            return None
        others = ids if self.other is None else self.other.encode(phrase)
        unknown = self.other is not None and self.other.unk_id in others
        return None if unknown or min(len(ids), len(others)) < _SHORTEST else phrase

    def _inside(self, phrase: str) -> bool:
        """Whether it contains another phrase or is part of one, ignoring case."""
        return any(phrase in one or one in phrase for one in self.folded)
