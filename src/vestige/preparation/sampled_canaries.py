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
from functools import partial
from typing import TYPE_CHECKING

from vestige.data.canaries.planting import occurrences
from vestige.errors import DataError
from vestige.models.protocols import length_limit

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.protocols import NextToken

LENGTH = 32
"""Most tokens of a sampled canary, by default."""

_BATCH = 64  # texts sampled together
_ATTEMPTS = 30  # most texts to sample for each canary, and most extra batches
_SHORTEST = 2
_LONGEST = 10_000  # most letters of a phrase in a manifest


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
        temperature: T of softmax(logits / T), above 0.
        prompts: the model reads one, with a line break, before it writes; each in turn.
        length: most tokens of a phrase, at least 2.
        vocabulary: encodes them without unknown tokens, besides the model's own.
        progress: called with the number of phrases so far, and `number`.

    Raises:
        ValueError: `length` is below 2, or a prompt and a canary are longer than the model reads.
        DataError: too few of the sampled texts can be used.
    """
    if length < _SHORTEST:
        raise ValueError(f"`length` must be at least {_SHORTEST} for sampled canaries")
    phrases: dict[str, str] = {}  # by their text in lower case
    refused: Counter[str] = Counter()
    most = _ATTEMPTS * (number + _BATCH)
    for texts in _batches(model, seed, temperature, prompts, length):
        read = [_readable(ids, model.vocabulary, vocabulary) for ids in texts]
        counts = iter(occurrences(corpus, [phrase for phrase in read if phrase is not None]))
        for phrase in read:
            if len(phrases) == number:
                break
            folded = "" if phrase is None else phrase.casefold()
            if phrase is None:
                refused["no readable line"] += 1
            elif next(counts):
                refused["in the corpus"] += 1
            elif any(folded in one or one in folded for one in phrases):
                refused["in one another"] += 1
            else:
                phrases[folded] = phrase
        if progress is not None:
            progress(len(phrases), number)
        if len(phrases) == number or len(phrases) + refused.total() >= most:
            break
    if len(phrases) < number:
        sampled = len(phrases) + refused.total()
        reasons = ", ".join(f"{count} {why}" for why, count in refused.most_common())
        unreadable = refused.most_common(1)[0][0] == "no readable line"
        raise DataError(
            f"only {len(phrases)} of {number} canaries were found among {sampled} texts that the "
            f"model wrote; the others were {reasons}",
            remedy="Lower the `temperature`, ask for shorter canaries (`length`), change the "
            "`prompt`, or use a better model."
            if unreadable
            else "Raise the `temperature`, change the `prompt`, or ask for fewer or longer "
            "canaries (`length`).",
        )
    return list(phrases.values())


def _readable(ids: Sequence[int], own: "Vocabulary", other: "Vocabulary | None") -> str | None:
    """The text, if it is one line that both vocabularies encode; else None."""
    phrase = own.decode(ids)
    plain = phrase == " ".join(phrase.split()) and phrase.isprintable()
    if not plain or len(phrase) > _LONGEST or own.encode(phrase) != list(ids):
        return None
    others = ids if other is None else other.encode(phrase)
    unknown = other is not None and other.unk_id in others
    return None if unknown or min(len(ids), len(others)) < _SHORTEST else phrase


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
    longest = length_limit(model)
    needed = 1 + max(map(len, prefixes)) + length
    if longest is not None and needed > longest:
        raise ValueError(
            f"`prompt` and `length` need {needed} tokens, and the model reads {longest}. "
            "Shorten the prompt or the canaries"
        )
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


def line_ends(vocabulary: "Vocabulary", size: int) -> set[int]:
    """Ids that end a line: of the end of a text, other special tokens, line breaks, and no text."""
    known = len(vocabulary.texts())
    special = getattr(getattr(vocabulary, "tokenizer", None), "all_special_ids", ())
    ends = {vocabulary.eos_id, vocabulary.bos_id, *special, *range(known, size)}
    ends |= {token for token in range(known) if "\n" in vocabulary.piece(token)}
    return {token for token in ends if token not in (None, vocabulary.unk_id)}
