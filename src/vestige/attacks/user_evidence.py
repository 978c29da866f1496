"""How much does each word of a user speak for their text having been learnt?

Two audits give each user a score: the paper's histogram of ranks, and ours, the mean surprise of
words (`expected_rank`). Both ask everyone the same way: whoever is compared with the audited users
has had their queries selected by the same rule, from as much text.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.attacks.expected_rank import ExpectedRank, WordCounts
from vestige.attacks.rank_histogram import BINS, HistogramAudit, rank_histogram
from vestige.attacks.reference_models import References
from vestige.data.asked_words import AskedWords
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

    asked: AskedWords
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


def surprise_of_words(
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
        fitted_on: users known to be out, from whose words the expectation is learnt.
        references: models of the auditor's own; None: word counts alone.
        each: references for each user; None: as many as every user can have.
        seed: of lots and boosting.

    Returns:
        (w,); NaN for users with too few references.

    Raises:
        DataError: there are too few words to fit, or nobody has references enough.
    """
    features = counts.features(answers.asked)
    good = np.ones(len(answers.asked), dtype=bool)
    if references is not None:
        each = int(references.unseen().min()) if each is None else each
        if each < 1:
            raise DataError(
                "some users were seen by every reference model, which so tells nothing of them",
                remedy="Train the references on random halves of the users, in pairs.",
            )
        drawn = references.draw(each, seed=seed)
        good = drawn[answers.asked.users, 0] >= 0
        features = np.concatenate(
            [features, references.features(answers.asked, drawn, k=answers.k)], axis=1
        )
    learnt = good & np.isin(answers.asked.users, np.asarray(fitted_on))
    expected = ExpectedRank.fit(features[learnt], answers.log_ranks[learnt], seed=seed)
    surprise = np.full(len(answers.asked), np.nan)
    surprise[good] = expected.surprise(features[good], answers.log_ranks[good])
    return surprise


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
