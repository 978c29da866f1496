"""Near-copies folded into the best phrase of each group, and fragments that samples share."""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, count

from vestige.audits.update.pair import Tokens
from vestige.audits.update.phrases import Text

Rest = Callable[[Text, Sequence[bool]], Iterable[Text]]
"""The remaining parts of a near-copy, given which of its tokens better phrases contain."""

Folded = list[tuple[Text, int]]  # phrases, each with the number of near-copies folded into it


def fold(
    phrases: Iterable[Text],
    *,
    rest: Rest = lambda *_: (),
    long: int = 0,
    already: Iterable[Text] = (),
) -> Folded:
    """Distinct phrases, best first, each with the number of its near-copies.

    A phrase is a near-copy if better ones contain at least half of its n-grams; n is 3, or 2 for
    phrases of at most five tokens. It counts for the phrase that shares most, and its remaining
    parts compete as phrases.

    Args:
        phrases: in any order; of equal scores the first comes first.
        rest: the remaining parts of a near-copy.
        long: phrases of at least this many tokens precede all shorter ones, whatever their scores.
        already: near-copies of these are dropped.

    Example:
        >>> tokens = [(1, 2, 3, 4), (9, 8, 7), (1, 2, 3, 5), (2, 3, 4)]
        >>> folded = fold(Text(ids, (), score=9.0 - i) for i, ids in enumerate(tokens))
        >>> [(phrase.tokens, copies) for phrase, copies in folded]
        [((1, 2, 3, 4), 2), ((9, 8, 7), 0)]
    """
    order = count()

    def entry(phrase: Text) -> tuple[bool, float, int, Text]:
        return len(phrase.phrase) < long, -phrase.score, next(order), phrase

    queue = [entry(phrase) for phrase in phrases]
    heapify(queue)
    distinct = list(already)
    owners: dict[Tokens, int] = {}  # index of the best phrase that contains an n-gram
    for index, phrase in enumerate(distinct):
        _add_ngrams(owners, phrase, index)
    known, copies = len(distinct), Counter[int]()
    while queue:
        *_, phrase = heappop(queue)
        tokens = phrase.phrase
        n = 3 if len(tokens) > 5 else 2
        gram_owners = [owners.get(gram) for gram in _ngrams(tokens, n)]
        shared = [owner for owner in gram_owners if owner is not None]
        if not shared or 2 * len(shared) < len(gram_owners):
            _add_ngrams(owners, phrase, len(distinct))
            distinct.append(phrase)
            continue
        copies[max(set(shared), key=lambda owner: (shared.count(owner), -owner))] += 1
        covered = [
            any(owner is not None for owner in gram_owners[max(0, i - n + 1) : i + 1])
            for i in range(len(tokens))
        ]
        for part in rest(phrase, covered):
            heappush(queue, entry(part))
    return [(phrase, copies[i]) for i, phrase in enumerate(distinct) if i >= known]


def _add_ngrams(owners: dict[Tokens, int], phrase: Text, index: int) -> None:
    """Record the n-grams that no better phrase contains."""
    for gram in _ngrams(phrase.phrase, 2) + _ngrams(phrase.phrase, 3):
        owners.setdefault(gram, index)


def _ngrams(tokens: Tokens, n: int) -> list[Tokens]:
    return [tokens[i : i + n] for i in range(len(tokens) - n + 1)]


# Fragments that independent samples share. Each sample has its own errors, but text that the update
# taught recurs. As in assembly from short reads (Idury and Waterman 1995, "A new algorithm for DNA
# sequence assembly"), trigrams that overlap in two tokens are joined, the most frequent first.

Trigram = tuple[int, int, int]
Bigram = tuple[int, int]

MIN_SAMPLES = 2  # least number of samples that contain a trigram
MIN_LOG_RATIO = 2.0  # least mean of log p' - log p over a trigram's tokens, in nats
MIN_SHARE = 1 / 3  # of the count of the most frequent trigram with the same two tokens at one end


def agreed(texts: Iterable[Text], *, longest: int) -> list[Text]:
    r"""Fragments shared by several samples, best first; the score is :math:`\sum_i \log n_i`.

    n_i is the number of samples with the i-th trigram. Null searches have no such scores, so
    fragments are not tested. Texts without log-ratios are no samples.

    Example:
        >>> sample = Text((0, 5, 6, 7, 8), (0.0,) * 5, log_ratios=(3.0,) * 4)
        >>> other = Text((0, 9, 5, 6, 7), (0.0,) * 5, log_ratios=(3.0,) * 4)
        >>> [fragment.tokens for fragment in agreed([sample, other], longest=48)]
        [(5, 6, 7)]
    """
    samples = [text for text in texts if text.log_ratios]
    counts = Counter(chain.from_iterable(set(_promoted(text)) for text in samples))
    trigrams = _unambiguous({gram: n for gram, n in counts.items() if n >= MIN_SAMPLES})
    prompts = {gram: text.prompt for text in reversed(samples) for gram in _promoted(text)}
    following, preceding = _most_frequent(trigrams)
    unused, fragments = set(trigrams), list[Text]()
    for seed in _by_frequency(trigrams):
        if seed not in unused:
            continue
        unused.remove(seed)
        joined = deque([seed])
        while len(joined) + 2 < longest and (gram := following.get(joined[-1][1:])) in unused:
            unused.remove(gram)
            joined.append(gram)
        while len(joined) + 2 < longest and (gram := preceding.get(joined[0][:2])) in unused:
            unused.remove(gram)
            joined.appendleft(gram)
        tokens = (*joined[0][:2], *(gram[2] for gram in joined))
        gains = (0.0, 0.0, *(math.log(trigrams[gram]) for gram in joined))
        score = math.log(math.prod(trigrams[gram] for gram in joined))
        source, prompt = samples[0].source, prompts[seed]
        fragments.append(Text(tokens, gains, source=source, prompt=prompt, score=score))
    return sorted(fragments, key=lambda fragment: (-fragment.score, fragment.tokens))


def _promoted(text: Text) -> Iterator[Trigram]:
    """Sampled trigrams that the update made more probable."""
    for i in range(len(text.log_ratios) - 2):
        if sum(text.log_ratios[i : i + 3]) >= 3 * MIN_LOG_RATIO:
            first, second, third = text.tokens[text.first + i : text.first + i + 3]
            yield first, second, third


def _unambiguous(trigrams: Mapping[Trigram, int]) -> dict[Trigram, int]:
    """Trigrams, except those with a far more frequent alternative at either end."""
    following, preceding = _most_frequent(trigrams)
    return {
        gram: n
        for gram, n in trigrams.items()
        if n >= MIN_SHARE * max(trigrams[following[gram[:2]]], trigrams[preceding[gram[1:]]])
    }


def _most_frequent(
    trigrams: Mapping[Trigram, int],
) -> tuple[dict[Bigram, Trigram], dict[Bigram, Trigram]]:
    """For two tokens, the most frequent trigram that begins with them, and that ends with them."""
    rising = _by_frequency(trigrams)[::-1]
    return {gram[:2]: gram for gram in rising}, {gram[1:]: gram for gram in rising}


def _by_frequency(trigrams: Mapping[Trigram, int]) -> list[Trigram]:
    return sorted(trigrams, key=lambda gram: (-trigrams[gram], gram))
