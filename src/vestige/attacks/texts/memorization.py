r"""How much of a text comes back from a model: extraction from token statistics alone.

A text's tokens are read with the true ones before them. Greedy decoding says a passage word for
word exactly where each of its tokens is the likeliest, and sampling says it with the product of its
tokens' probabilities, so no text is generated:

- (n, p)-discoverable extraction (Hayes et al. 2024, "Measuring memorization in language models via
  probabilistic extraction", arXiv:2410.19482, section 3): a suffix is said at least once in n
  samples with probability :math:`1 - (1 - p_z)^n \ge p`;
- extraction strength (Carlini et al. 2021; Wang et al. 2025, OpenUnlearning):
  :math:`1 - \frac{1}{|y|} \min \{k : f(y_{<k}) = y_{\ge k}\}`;
- exact memorization (Tirumala et al. 2022, arXiv:2205.10770): the share of likeliest tokens.

Differs from the papers: a suffix stands behind all of the text before it, not 50 tokens alone, and
every passage of a text is asked for, not its first. Ties among likeliest tokens go to the smaller
id.
"""

from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.models.token_statistics import TokenStatistics

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


def sampled_log_probs(
    statistics: TokenStatistics, *, top_k: int, temperature: float = 1.0
) -> Floats:
    """(t,) log-probability of each token where the next one is drawn from the k likeliest.

    Args:
        statistics: with at least `top_k` likeliest tokens of each place; where columns are NaN,
            it is drawn from those that are known.
        top_k: k, at least 1; 1 is greedy decoding.
        temperature: of the draw, above 0; a probability is raised to its inverse first.

    Returns:
        natural logs, -inf for tokens that are never drawn.
    """
    _validate.at_least(1, top_k=top_k)
    _validate.positive(temperature=temperature)
    held = statistics.likeliest_log_probs.shape[1]
    if top_k > held:
        raise ValueError(
            f"top_k must be at most the {held} most probable tokens stored, got {top_k}"
        )
    drawn = statistics.likeliest_log_probs[:, :top_k].astype(np.float64) / temperature
    largest = drawn[:, :1]
    with np.errstate(divide="ignore"):  # where nothing is known
        whole = largest[:, 0] + np.log(np.nansum(np.exp(drawn - largest), axis=1))
    own = statistics.log_probs.astype(np.float64) / temperature - whole
    return np.where(statistics.ranks < top_k, np.minimum(own, 0.0), -np.inf)


def tries_needed(log_prob: ArrayLike, *, chance: float) -> Floats:
    r"""How many samples say a passage at least once with a probability of `chance`.

    .. math:: n = \frac{\ln(1 - p)}{\ln(1 - p_z)}, \text{ at least } 1

    Args:
        log_prob: of the passage in one sample, natural logs.
        chance: p, in (0, 1).

    Example:
        >>> tries_needed(np.log([1.0, 0.5, 0.01]), chance=0.5).round(1).tolist()
        [1.0, 1.0, 69.0]
    """
    _validate.open_fraction(chance=chance)
    logs = np.minimum(np.asarray(log_prob, dtype=np.float64), 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        # Below e^-37, 1 - p_z is 1 to machine precision, and ln(1 - p_z) is -p_z.
        never = np.where(logs < -37, -np.exp(np.maximum(logs, -700)), np.log1p(-np.exp(logs)))
        found = np.log1p(-chance) / never
    return np.where(np.isneginf(logs), np.inf, np.maximum(found, 1.0))


def passages(length: int, *, prefix: int, suffix: int) -> Whole:
    """Where the passages of a text begin: one behind the other, the first after `prefix` tokens.

    Example:
        >>> passages(11, prefix=2, suffix=4).tolist()
        [2, 6]
    """
    return np.arange(prefix, length - suffix + 1, suffix, dtype=np.int64)


def passage_sums(values: ArrayLike, starts: ArrayLike, suffix: int) -> Floats:
    """(w,) the sum of a text's values over each passage, -inf where one of them is."""
    index = np.asarray(starts)[:, None] + np.arange(suffix)
    return cast("Floats", np.asarray(values, dtype=np.float64)[index].sum(axis=1))


def extraction_strength(ranks: ArrayLike) -> float:
    """The share of a text, from its end, that greedy decoding says after all before it.

    Differs from OpenUnlearning's code, which gives 1 / n where the definition gives 0: where the
    last token is not the likeliest, so that nothing comes back.

    Example:
        >>> extraction_strength([3, 0, 1, 0, 0]), extraction_strength([0, 0, 5])
        (0.4, 0.0)
    """
    wrong = np.flatnonzero(_of_tokens(ranks))
    n = np.asarray(ranks).size
    return 1.0 if not wrong.size else (n - 1 - int(wrong[-1])) / n


def exact_memorization(ranks: ArrayLike) -> float:
    """The share of tokens that are the likeliest.

    Example:
        >>> exact_memorization([3, 0, 1, 0])
        0.5
    """
    return float((_of_tokens(ranks) == 0).mean())


def longest_run(ranks: ArrayLike) -> int:
    """The most tokens in a row that greedy decoding says word for word.

    Example:
        >>> longest_run([3, 0, 0, 1, 0])
        2
    """
    wrong = np.flatnonzero(_of_tokens(ranks))
    ends = np.concatenate([[-1], wrong, [np.asarray(ranks).size]])
    return int(np.diff(ends).max()) - 1


def edit_similarity(first: ArrayLike, second: ArrayLike) -> float:
    """1 less Levenshtein's distance of two token sequences over the longer one's length.

    Example:
        >>> edit_similarity([1, 2, 3, 4], [1, 3, 4, 5])
        0.5
    """
    one, other = np.asarray(first), np.asarray(second)
    if not max(one.size, other.size):
        return 1.0
    steps = np.arange(other.size + 1)
    row = steps.copy()
    for place, token in enumerate(one.tolist(), start=1):
        changed = np.minimum(row[:-1] + (other != token), row[1:] + 1)
        # Insertions go along the row: the least of what stands before, and one for each step.
        row = np.minimum.accumulate(np.concatenate([[place], changed]) - steps) + steps
    return 1 - int(row[-1]) / max(one.size, other.size)


def bleu(said: ArrayLike, true: ArrayLike) -> float:
    """BLEU-4 of a continuation against the true one, tokens as words, in [0, 1].

    Ippolito et al. (2022, arXiv:2210.17546) call 0.75 and more approximate memorization.
    """
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize="none", effective_order=True, smooth_method="exp")
    texts = [" ".join(map(str, np.asarray(ids).tolist())) for ids in (said, true)]
    return min(1.0, float(metric.sentence_score(texts[0], [texts[1]]).score) / 100)


def _of_tokens(ranks: ArrayLike) -> Whole:
    found = np.asarray(ranks, dtype=np.int64)
    if found.ndim != 1 or not found.size:
        raise ValueError(f"ranks must be (n,) of at least one token, got {found.shape}")
    return found
