"""Membership scores of words and users.

Two audits give each user a score: the paper's histogram of ranks, and ours, the mean score of
words: learnt from shadow models (`membership_log_odds`) or, where these are too few, how much
better a word ranks than expected (`expected_rank`). Both ask everyone the same way: whoever is
compared with the audited users has had their queries selected by the same rule, from as much text.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.attacks.membership.expected_rank import ExpectedRank, WordCounts
from vestige.attacks.membership.membership_log_odds import MembershipLogOdds
from vestige.attacks.membership.rank_histogram import BINS, HistogramAudit, rank_histogram
from vestige.attacks.membership.reference_models import References
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError

Floats = NDArray[np.float64]
Users = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a target that shows its k likeliest words answered.

    Attributes:
        asked: the w words asked, of all users that play a part.
        ranks: int (w,) from 1; k + 1 where a word was not shown.
        k: words shown.
        vocab_size: words that could be shown.

    Raises:
        ValueError: the ranks do not fit.
    """

    asked: TokenQueries
    ranks: NDArray[np.integer]
    k: int
    vocab_size: int

    def __post_init__(self) -> None:
        _validate.at_least(1, k=self.k)
        _validate.at_least(self.k, vocab_size=self.vocab_size)
        if self.ranks.shape != (len(self.asked),):
            raise ValueError(
                f"ranks must be one a word, ({len(self.asked)},), got {self.ranks.shape}"
            )
        if len(self.ranks) and not 1 <= self.ranks.min() <= self.ranks.max() <= self.k + 1:
            raise ValueError(
                f"ranks must lie in [1, {self.k + 1}], got {self.ranks.min()} to {self.ranks.max()}"
            )

    @property
    def log_ranks(self) -> Floats:
        """(w,) natural logs."""
        return np.log(self.ranks.astype(np.float64))


def score_words(
    answers: Answers,
    counts: WordCounts,
    fitted_on: ArrayLike,
    *,
    references: References | None = None,
    seed: int = 0,
) -> Floats:
    """How much each word speaks for its user having been seen, 0 on average for who was not.

    With references enough it is learnt from them (`membership_log_odds`), else it is the surprise.

    Args:
        answers: of the target.
        counts: of public text.
        fitted_on: non-members, from whose words is learnt what to expect.
        references: models of the auditor's own; None: word counts alone.
        seed: of random draws.

    Returns:
        (w,); NaN for users with too few references.

    Raises:
        DataError: there are too few words to fit, or nobody has references enough.
    """
    asked, users = answers.asked, np.asarray(fitted_on, dtype=np.int64)
    learnt = None
    if references is not None:
        learnt = MembershipLogOdds.fit(asked, counts, references, users, k=answers.k, seed=seed)
    if references is None or learnt is None:
        return surprise_words(answers, counts, users, references=references, seed=seed)
    features, _ = _features(answers, counts, references, learnt.each, seed=seed)
    log_odds = learnt.log_odds(features, answers.log_ranks)
    known = np.isin(asked.users, users)
    words = asked.tokens
    expected = ExpectedRank.fit(
        features[known], log_odds[known], words[known], size=len(counts.words)
    )
    return -expected.surprise(features, log_odds, words)


def surprise_words(
    answers: Answers,
    counts: WordCounts,
    fitted_on: ArrayLike,
    *,
    references: References | None = None,
    each: int | None = None,
    seed: int = 0,
) -> Floats:
    """Expected less observed log rank of every word, in nats.

    Args:
        answers: of the target.
        counts: of public text.
        fitted_on: non-members, from whose words the expectation is learnt.
        references: models of the auditor's own; None: word counts alone.
        each: references for each user; None: as many as every user can have.
        seed: of random draws.

    Returns:
        (w,); NaN for users with too few references.

    Raises:
        DataError: there are too few words to fit, or nobody has references enough.
    """
    features, good = _features(answers, counts, references, each, seed=seed)
    learnt = good & np.isin(answers.asked.users, np.asarray(fitted_on))
    words, ranks = answers.asked.tokens, answers.log_ranks
    expected = ExpectedRank.fit(
        features[learnt], ranks[learnt], words[learnt], size=len(counts.words)
    )
    surprise = np.full(len(answers.asked), np.nan)
    surprise[good] = expected.surprise(features[good], ranks[good], words[good])
    return surprise


def _features(
    answers: Answers,
    counts: WordCounts,
    references: References | None,
    each: int | None,
    *,
    seed: int,
) -> tuple[Floats, NDArray[np.bool_]]:
    """(w, f) of the words, and (w,) whether there are references enough to tell."""
    features = counts.features(answers.asked)
    if references is None:
        return features, np.ones(len(answers.asked), dtype=bool)
    each = int(references.unseen().min()) if each is None else each
    if each < 1:
        raise DataError(
            "some users are members for every reference model",
            remedy="Train each pair of reference models on random halves of the users.",
        )
    drawn = references.draw(each, seed=seed)
    said = references.features(answers.asked, drawn, k=answers.k)
    return np.concatenate([features, said], axis=1), drawn[answers.asked.users, 0] >= 0


def histogram_scores(
    answers: Answers, references: References, learnt_from: ArrayLike, *, bins: int = BINS
) -> Floats:
    """The paper's score of every user.

    Args:
        answers: of the target.
        references: the shadow models.
        learnt_from: users of whom each shadow model saw about half.
        bins: of the histogram.

    Returns:
        (u,) distances to the plane, above 0 for members.
    """
    users = np.asarray(learnt_from)
    shape = {"k": answers.k, "vocab_size": answers.vocab_size, "bins": bins}
    shadows = [
        rank_histogram(answers.asked, np.minimum(ranks, answers.k + 1), **shape)[users]
        for ranks in references.ranks
    ]
    machine = HistogramAudit.fit(shadows, [seen[users] for seen in references.seen])
    return machine.scores(rank_histogram(answers.asked, answers.ranks, **shape))
