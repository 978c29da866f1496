"""Synthetic scores of texts and statistics of tokens, and what tests read from results."""

import numpy as np

from vestige.claims import Check
from vestige.metrics.listed import CutScores, ladder
from vestige.models.token_statistics import TokenStatistics

RUNGS = ladder(400)
PASSED = tuple(
    Check(name, "passed", f"The check {name} passed.")
    for name in ("alive", "read", "independent", "comparable")
)
"""The checks of an audit without a base that do not depend on scores."""


def cut_scores(count, gain, rng, *, mean_length=60, author=0.0, per=1):
    """Synthetic mean token scores over the first tokens of texts.

    Args:
        count: texts.
        gain: mean of their tokens' scores.
        rng: random generator.
        mean_length: mean of the geometric lengths.
        author: standard deviation between authors, who write `per` texts each.
    """
    lengths = np.clip(rng.geometric(1 / mean_length, count), 5, 400)
    author_means = np.repeat(rng.normal(0, author, -(-count // per)), per)[:count]
    means = rng.normal(gain, 0.3, count) + author_means
    sums = [np.cumsum(rng.normal(m, 1, n)) for m, n in zip(means, lengths, strict=True)]

    def mean_scores(texts, cut):
        return np.array([sums[text][cut - 1] / cut for text in texts])

    return CutScores.of(mean_scores, lengths, RUNGS)


def statistics_of(log_probs, *, length, tokens=None):
    """Statistics of texts of one length; only their log-probabilities matter."""
    zeros = np.zeros(log_probs.size, dtype=np.float32)
    tokens = zeros.astype(np.int32) if tokens is None else tokens.astype(np.int32)
    return TokenStatistics(
        offsets=np.arange(0, log_probs.size + 1, length, dtype=np.int64),
        tokens=tokens,
        log_probs=log_probs.astype(np.float32),
        ranks=1 + np.floor(np.maximum(-log_probs, 0) * 3).astype(np.int32),
        means=zeros - 2,
        deviations=zeros + 1,
        likeliest=tokens[:, None],
        likeliest_log_probs=log_probs[:, None].astype(np.float32),
    )


def audited(result, column="p_value"):
    """(n,) a column of the rows of audited texts or users."""
    return np.array([row[column] for row in result.rows if row["kind"] == "audited"])


def failed(result):
    """Names of the checks that failed."""
    return {check.name for check in result.claim.checks if check.state == "failed"}


def auc(scores, members):
    """The share of pairs in which a member scores above a non-member."""
    return (scores[members][:, None] > scores[~members]).mean()
