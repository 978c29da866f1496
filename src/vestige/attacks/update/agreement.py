r"""Fragments that independent samples agree on, joined from the trigrams that they share.

Samples err each in its own way, and what the update taught comes again: a trigram that the update
made likelier and that several samples hold is seldom chance. As a genome is put together from short
reads (Idury and Waterman 1995, "A new algorithm for DNA sequence assembly"), trigrams that overlap
in two tokens are joined, from the most frequent on, as long as the next one is free. What few
samples hold beside a way that many took is an error of these samples and is left out.

.. math:: S = \sum_i \log n_i

with n_i the samples that hold the i-th trigram. No model is asked, and no null search scores
phrases so: fragments are listed behind phrases and never reported as found.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from vestige.attacks.update.phrases import Phrase, ScoredText

Trigram = tuple[int, int, int]
Pair = tuple[int, int]

SAMPLES = 2
"""Samples that hold a trigram, at least."""

LIKELIER = 2.0
"""Nats by which the update made a trigram's tokens likelier, on average, at least."""

SHARE = 1 / 3
"""Of the samples that hold the most frequent trigram with the same two tokens at an end."""


def agreed(texts: Iterable[ScoredText], *, longest: int) -> list[Phrase]:
    """The fragments of samples, best first.

    Args:
        texts: of a search; what is no sample has no log-ratios and adds nothing.
        longest: tokens of a fragment, at most.

    Example:
        >>> sample = ScoredText((0, 5, 6, 7, 8), (0.0,) * 5, ratios=(3.0,) * 4)
        >>> other = ScoredText((0, 9, 5, 6, 7), (0.0,) * 5, ratios=(3.0,) * 4)
        >>> [one.tokens for one in agreed([sample, other], longest=48)]
        [(5, 6, 7)]
    """
    samples = [text for text in texts if text.ratios]
    counts = Counter(chain.from_iterable(set(_likelier(text)) for text in samples))
    held = _sure({gram: number for gram, number in counts.items() if number >= SAMPLES})
    context = {gram: text.context for text in reversed(samples) for gram in _likelier(text)}
    after, before = _most(held)
    free, fragments = set(held), list[Phrase]()
    for seed in _order(held):
        if seed not in free:
            continue
        free.remove(seed)
        joined = deque([seed])
        while len(joined) + 2 < longest and (gram := after.get(joined[-1][1:])) in free:
            free.remove(gram)
            joined.append(gram)
        while len(joined) + 2 < longest and (gram := before.get(joined[0][:2])) in free:
            free.remove(gram)
            joined.appendleft(gram)
        tokens = (*joined[0][:2], *(gram[2] for gram in joined))
        gains = (0.0, 0.0, *(math.log(held[gram]) for gram in joined))
        score = math.log(math.prod(held[gram] for gram in joined))
        fragments.append(Phrase(tokens, gains, score, samples[0].proposal, context[seed]))
    return sorted(fragments, key=lambda one: (-one.score, one.tokens))


def _likelier(text: ScoredText) -> Iterator[Trigram]:
    """Trigrams of what was drawn that the update made likelier."""
    for i in range(len(text.ratios) - 2):
        if sum(text.ratios[i : i + 3]) >= 3 * LIKELIER:
            first, second, third = text.tokens[text.first + i : text.first + i + 3]
            yield first, second, third


def _sure(held: Mapping[Trigram, int]) -> dict[Trigram, int]:
    """Trigrams but those beside which, at either end, another is far more frequent."""
    after, before = _most(held)
    return {
        gram: number
        for gram, number in held.items()
        if number >= SHARE * max(held[after[gram[:2]]], held[before[gram[1:]]])
    }


def _most(held: Mapping[Trigram, int]) -> tuple[dict[Pair, Trigram], dict[Pair, Trigram]]:
    """For any two tokens the trigram that most samples hold: of those that go on from them, and of
    those that end with them."""
    order = _order(held)[::-1]
    return {gram[:2]: gram for gram in order}, {gram[1:]: gram for gram in order}


def _order(held: Mapping[Trigram, int]) -> list[Trigram]:
    """Most frequent first, then by ids."""
    return sorted(held, key=lambda gram: (-held[gram], gram))
