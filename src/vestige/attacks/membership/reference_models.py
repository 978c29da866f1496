"""Reference models: ranks of words under models that never saw their users.

Shadow models serve as references, each for the users who were not in its training data. Everyone
is given the same number of them, drawn at random among those that qualify, and one of each pair at
most: the users who are learnt from are out of one model of each pair, those who are compared and
those who are audited are out of both. With more references for some than for others, or others,
scores would not be comparable.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class References:
    """m models of the auditor's own, asked for the same w words of u users.

    Models 2 i and 2 i + 1 are a pair: of the users that the auditor trains on each has seen one
    half (`training.shadow_jobs`).

    Attributes:
        ranks: int (m, w), from 1, over the whole vocabulary.
        log_probs: float32 (m, w), natural logs.
        seen: (m, u) whether each user was in each model's training data.

    Raises:
        ValueError: the shapes do not fit each other.
    """

    ranks: NDArray[np.integer]
    log_probs: NDArray[np.floating]
    seen: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if not (self.ranks.shape == self.log_probs.shape and len(self.seen) == len(self.ranks)):
            raise ValueError(
                "ranks, log_probs and seen must be (m, w), (m, w) and (m, u), got "
                f"{self.ranks.shape}, {self.log_probs.shape} and {self.seen.shape}"
            )

    @classmethod
    def of(
        cls,
        ranks: Sequence[tuple[NDArray[np.integer], NDArray[np.floating]]],
        members: Sequence[Sequence[str]],
        names: Sequence[str],
    ) -> "References":
        """Stack what each model says.

        Args:
            ranks: of each model (w,) ranks and (w,) log-probabilities.
            members: of each model the users whose text it has learnt.
            names: the u users.
        """
        learnt = [set(each) for each in members]
        return cls(
            ranks=np.stack([each for each, _ in ranks]),
            log_probs=np.stack([known for _, known in ranks]),
            seen=np.array([[name in each for name in names] for each in learnt], dtype=bool),
        )

    def __len__(self) -> int:
        return len(self.ranks)

    def without(self, model: int) -> "References":
        """All but one, which plays the target, and its pair.

        Of the users whom that one has not seen, the other has seen every one; as a reference for
        those whom it has seen, it would tell who they are.
        """
        kept = np.arange(len(self)) // 2 != model // 2
        return References(
            ranks=self.ranks[kept], log_probs=self.log_probs[kept], seen=self.seen[kept]
        )

    def of_words(self, chosen: NDArray[np.int64]) -> "References":
        """The same models on some of the words, given as places."""
        return References(
            ranks=self.ranks[:, chosen], log_probs=self.log_probs[:, chosen], seen=self.seen
        )

    def unseen(self) -> NDArray[np.int64]:
        """(u,) models that did not see each user."""
        return np.asarray((~self.seen).sum(axis=0), dtype=np.int64)

    def draw(self, count: int, *, seed: int) -> NDArray[np.int64]:
        """(u, count) places of models that did not see each user; -1 where there are too few.

        Both of a pair are drawn only where one of each is not enough.
        """
        _validate.at_least(1, count=count)
        lots = np.random.default_rng(seed).random(self.seen.shape)
        paired = len(self) // 2 * 2
        first, second = lots[0:paired:2], lots[1:paired:2]
        both = ~self.seen[0:paired:2] & ~self.seen[1:paired:2]
        later = first > second
        first += both & later
        second += both & ~later
        lots[self.seen] = 3.0
        drawn = np.argsort(lots, axis=0)[:count].T
        enough = self.unseen() >= count
        return np.where(enough[:, None], drawn, -1)

    def typical_ranks(self, asked: TokenQueries, *, seed: int) -> Floats:
        """(w,) geometric mean rank over models that did not see the word's user, as many for all.

        Args:
            asked: the w words.
            seed: of the draw of models.

        Raises:
            DataError: some user was seen by all.
        """
        each = int(self.unseen().min())
        if each < 1:
            raise DataError(
                "some users are members for every reference model",
                remedy="Train each pair of reference models on random halves of the users.",
            )
        drawn = self.draw(each, seed=seed)[asked.users]
        logs = np.log(self.ranks[drawn, np.arange(len(asked))[:, None]].astype(np.float64))
        return np.asarray(np.exp(logs.mean(axis=1)), dtype=np.float64)

    def features(self, asked: TokenQueries, drawn: NDArray[np.int64], *, k: int) -> Floats:
        """What the drawn models say of each word.

        Args:
            asked: the w words.
            drawn: (u, count), of `draw`.
            k: words that the target shows.

        Returns:
            (w, 6): mean log rank; mean log rank with those beyond k cut to k + 1; mean
            log-probability; the least log rank; the share of models that rank it within k; the
            deviation of log ranks. Meaningless for users without enough models.
        """
        chosen = np.maximum(drawn, 0)[asked.users]
        words = np.arange(len(asked))[:, None]
        ranks = self.ranks[chosen, words].astype(np.float64)
        logs = np.log(ranks)
        return np.stack(
            [
                logs.mean(axis=1),
                np.log(np.minimum(ranks, k + 1)).mean(axis=1),
                self.log_probs[chosen, words].astype(np.float64).mean(axis=1),
                logs.min(axis=1),
                (ranks <= k).mean(axis=1),
                logs.std(axis=1),
            ],
            axis=1,
        )
