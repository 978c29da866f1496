"""Near-copies folded into the best phrase of each group, and fragments that samples agree on."""

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
    phrases of at most five tokens. It counts for the phrase that shares most, and its `rest`
    competes as phrases of its own. Near-copies of phrases in `already` are dropped. Phrases of at
    least `long` tokens precede all shorter ones, whatever their scores.

    Example:
        >>> tokens = [(1, 2, 3, 4), (9, 8, 7), (1, 2, 3, 5), (2, 3, 4)]
        >>> found = fold(Text(one, (), score=9.0 - i) for i, one in enumerate(tokens))
        >>> [(phrase.tokens, copies) for phrase, copies in found]
        [((1, 2, 3, 4), 2), ((9, 8, 7), 0)]
    """
    order = count()  # of equal scores the first comes first

    def entry(phrase: Text) -> tuple[bool, float, int, Text]:
        return len(phrase.phrase) < long, -phrase.score, next(order), phrase

    queue = [entry(phrase) for phrase in phrases]
    heapify(queue)
    leaders: list[Text] = []
    owners: dict[Tokens, int] = {}
    for phrase in already:
        _own(owners, phrase, len(leaders))
        leaders.append(phrase)
    known, copies = len(leaders), Counter[int]()
    while queue:
        *_, phrase = heappop(queue)
        tokens = phrase.phrase
        n = 3 if len(tokens) > 5 else 2
        held = [owners.get(gram) for gram in _ngrams(tokens, n)]
        shared = [owner for owner in held if owner is not None]
        if not shared or 2 * len(shared) < len(held):
            _own(owners, phrase, len(leaders))
            leaders.append(phrase)
            continue
        copies[max(set(shared), key=lambda owner: (shared.count(owner), -owner))] += 1
        covered = [
            any(owner is not None for owner in held[max(0, i - n + 1) : i + 1])
            for i in range(len(tokens))
        ]
        for part in rest(phrase, covered):
            heappush(queue, entry(part))
    return [(phrase, copies[i]) for i, phrase in enumerate(leaders) if i >= known]


def _own(owners: dict[Tokens, int], phrase: Text, leader: int) -> None:
    """Give a phrase the n-grams that no better one has."""
    for gram in _ngrams(phrase.phrase, 2) + _ngrams(phrase.phrase, 3):
        owners.setdefault(gram, leader)


def _ngrams(tokens: Tokens, n: int) -> list[Tokens]:
    return [tokens[i : i + n] for i in range(len(tokens) - n + 1)]


# Fragments that independent samples agree on. Each sample errs in its own way, and what the update
# taught recurs. As in assembly from short reads (Idury and Waterman 1995, "A new algorithm for DNA
# sequence assembly"), trigrams that overlap in two tokens are joined, the most frequent first.

Trigram = tuple[int, int, int]
Bigram = tuple[int, int]

MIN_SAMPLES = 2  # that contain a trigram
MIN_LOG_RATIO = 2.0  # mean log p' - log p of a trigram's tokens, in nats, at least
MIN_SHARE = 1 / 3  # of the samples with the most frequent trigram that shares two tokens at one end


def agreed(texts: Iterable[Text], *, longest: int) -> list[Text]:
    r"""Fragments shared by several samples, best first; the score is :math:`\sum_i \log n_i`.

    n_i is the number of samples with the i-th trigram. Null searches have no such scores, so a
    fragment is never called found. Texts without log-ratios are no samples.

    Example:
        >>> sample = Text((0, 5, 6, 7, 8), (0.0,) * 5, log_ratios=(3.0,) * 4)
        >>> other = Text((0, 9, 5, 6, 7), (0.0,) * 5, log_ratios=(3.0,) * 4)
        >>> [one.tokens for one in agreed([sample, other], longest=48)]
        [(5, 6, 7)]
    """
    samples = [text for text in texts if text.log_ratios]
    counts = Counter(chain.from_iterable(set(_promoted(text)) for text in samples))
    held = _unambiguous({gram: n for gram, n in counts.items() if n >= MIN_SAMPLES})
    prompts = {gram: text.prompt for text in reversed(samples) for gram in _promoted(text)}
    following, preceding = _most_frequent(held)
    free, fragments = set(held), list[Text]()
    for seed in _by_frequency(held):
        if seed not in free:
            continue
        free.remove(seed)
        joined = deque([seed])
        while len(joined) + 2 < longest and (gram := following.get(joined[-1][1:])) in free:
            free.remove(gram)
            joined.append(gram)
        while len(joined) + 2 < longest and (gram := preceding.get(joined[0][:2])) in free:
            free.remove(gram)
            joined.appendleft(gram)
        tokens = (*joined[0][:2], *(gram[2] for gram in joined))
        gains = (0.0, 0.0, *(math.log(held[gram]) for gram in joined))
        score = math.log(math.prod(held[gram] for gram in joined))
        source, prompt = samples[0].source, prompts[seed]
        fragments.append(Text(tokens, gains, source=source, prompt=prompt, score=score))
    return sorted(fragments, key=lambda one: (-one.score, one.tokens))


def _promoted(text: Text) -> Iterator[Trigram]:
    """Sampled trigrams that the update made more probable."""
    for i in range(len(text.log_ratios) - 2):
        if sum(text.log_ratios[i : i + 3]) >= 3 * MIN_LOG_RATIO:
            first, second, third = text.tokens[text.first + i : text.first + i + 3]
            yield first, second, third


def _unambiguous(held: Mapping[Trigram, int]) -> dict[Trigram, int]:
    """Trigrams without those next to which, at either end, another is far more frequent."""
    following, preceding = _most_frequent(held)
    return {
        gram: n
        for gram, n in held.items()
        if n >= MIN_SHARE * max(held[following[gram[:2]]], held[preceding[gram[1:]]])
    }


def _most_frequent(
    held: Mapping[Trigram, int],
) -> tuple[dict[Bigram, Trigram], dict[Bigram, Trigram]]:
    """For two tokens, the most frequent trigram that begins with them, and that ends with them."""
    rising = _by_frequency(held)[::-1]
    return {gram[:2]: gram for gram in rising}, {gram[1:]: gram for gram in rising}


def _by_frequency(held: Mapping[Trigram, int]) -> list[Trigram]:
    return sorted(held, key=lambda gram: (-held[gram], gram))
