"""Texts as token scores alone, their scores over first tokens, and what a model says of tokens."""

import numpy as np

from vestige.claims import Check
from vestige.metrics.listed import CutScores, ladder
from vestige.models.token_statistics import TokenStatistics

RUNGS = ladder(400)
PASSED = tuple(
    Check(name, "passed", f"The check {name} passed.")
    for name in ("alive", "read", "independent", "comparable")
)
"""The checks of an audit without a base that scores alone cannot make."""


def cut_scores(count, gain, chance, *, mean_length=60, author=0.0, per=1):
    """Mean token scores over first tokens.

    Args:
        count: texts.
        gain: mean of their tokens' scores.
        chance: generator.
        mean_length: of their lengths, which are geometric.
        author: deviation of authors, of `per` texts each.
    """
    lengths = np.clip(chance.geometric(1 / mean_length, count), 5, 400)
    of_author = np.repeat(chance.normal(0, author, -(-count // per)), per)[:count]
    of_text = chance.normal(gain, 0.3, count) + of_author
    sums = [np.cumsum(chance.normal(m, 1, n)) for m, n in zip(of_text, lengths, strict=True)]
    return CutScores.of(
        lambda places, cut: np.array([sums[place][cut - 1] / cut for place in places]),
        lengths,
        RUNGS,
    )


def said_of(log_probs, *, length, tokens=None):
    """Statistics of texts of one length, of which the log-probabilities alone matter."""
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


def audited(found, column="p_value"):
    """(n,) a column of the rows of the audited."""
    return np.array([row[column] for row in found.rows if row["kind"] == "audited"])


def failed(found):
    """Names of the checks that failed."""
    return {check.name for check in found.claim.checks if check.state == "failed"}


def auc(scores, seen):
    """The chance that a seen text scores above an unseen one."""
    return (scores[seen][:, None] > scores[~seen]).mean()
