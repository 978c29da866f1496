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

from vestige.data.planting import occurrences
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
                refused[UNREADABLE] += 1
            elif next(counts):
                refused[WRITTEN] += 1
            elif any(folded in one or one in folded for one in phrases):
                refused[INSIDE] += 1
            else:
                phrases[folded] = phrase
        if progress is not None:
            progress(len(phrases), number)
        if len(phrases) == number:
            return list(phrases.values())
        if len(phrases) + refused.total() >= most:
            break
    raise _too_few(len(phrases), number, refused)


def _too_few(found: int, number: int, refused: Counter[str]) -> DataError:
    reasons = refused.most_common()
    remedy = (
        "Raise the `temperature`, change the `prompt`, or ask for fewer or longer canaries "
        "(`length`)."
    )
    if reasons[0][0] == UNREADABLE:
        remedy = (
            "Lower the `temperature`, ask for shorter canaries (`length`), change the `prompt`, "
            "or use a better model."
        )
    return DataError(
        f"only {found} of {number} canaries were found among {found + refused.total()} texts that "
        f"the model wrote; the others were {', '.join(f'{count} {why}' for why, count in reasons)}",
        remedy=remedy,
    )


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
    from vestige.models.protocols import length_limit

    longest = length_limit(model)
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
