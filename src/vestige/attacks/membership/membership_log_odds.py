r"""Membership log-odds of a word: the likelihood ratio of its rank, learnt from shadow models.

Shadow models answer: each has seen some of the non-members of the target's
training data, and not the others. A logistic regression learns from their words the log odds of
having been seen, given the rank, what reference models say and how common the word is,

.. math:: L_w = \log \frac{P(\mathrm{seen} \mid r_w, x_w)}{P(\mathrm{unseen} \mid r_w, x_w)}, \qquad
    e_w = L_w - \mathrm{E}[L_w \mid x_w, \mathrm{unseen\ by\ the\ target}]

and the expectation, fitted on the target's own answers, takes out what is the target's: how far it
was trained, and on what. The likelihood ratio is the strongest test there is (Neyman and Pearson);
Carlini, Chien, Nasr, Song, Terzis and Tramer (2022), "Membership Inference Attacks From First
Principles", IEEE S&P, estimate it from shadow models for every example, here it is one function of
all words, so that few shadow models do.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.membership.expected_rank import WordCounts
from vestige.attacks.membership.reference_models import References
from vestige.attacks.quadratic import fit_log_odds, predicted
from vestige.data.token_queries import TokenQueries

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

Floats = NDArray[np.float64]
WORDS = 200_000
"""Of all shadow models together that the regression learns from, at most."""
FEWEST = 2_000
"""Words below which it learns nothing."""


@dataclass(frozen=True)
class MembershipLogOdds:
    """The log odds of having been seen, by word.

    Attributes:
        regression: scikit-learn's fitted classifier.
        each: references that stand behind the features of every word.
    """

    regression: "Pipeline"
    each: int

    @classmethod
    def fit(
        cls,
        asked: TokenQueries,
        counts: WordCounts,
        references: References,
        users: NDArray[np.int64],
        *,
        k: int,
        seed: int = 0,
    ) -> "MembershipLogOdds | None":
        """Let each reference play the target, and learn from whom it saw.

        Args:
            asked: w words of u users.
            counts: of public text.
            references: of which each has seen some of the users.
            users: the fitted (`non_members`).
            k: words that the target shows.
            seed: of random draws.

        Returns:
            None where the references are too few, or have seen too little.
        """
        left = [references.without(model) for model in range(len(references))]
        each = min(int(others.unseen().min()) for others in left)
        if each < 1:
            return None
        pieces = [
            _played(asked, counts, references, model, users=users, each=each, k=k, seed=seed)
            for model in range(len(references))
        ]
        given = np.concatenate([features for features, _ in pieces])
        seen = np.concatenate([labels for _, labels in pieces])
        if len(given) < FEWEST or not 0.1 <= seen.mean() <= 0.9:
            return None
        return cls(fit_log_odds(given, seen), each)

    def log_odds(self, features: Floats, log_ranks: Floats) -> Floats:
        """(w,) natural logs of the odds.

        Args:
            features: (w, f) counts' and references', of `each` of them.
            log_ranks: (w,) under the target; log(k + 1) where it did not show the word.
        """
        given = np.concatenate([features, log_ranks[:, None]], axis=1)
        return predicted(self.regression, given)


def _played(
    asked: TokenQueries,
    counts: WordCounts,
    references: References,
    model: int,
    *,
    users: NDArray[np.int64],
    each: int,
    k: int,
    seed: int,
) -> tuple[Floats, NDArray[np.bool_]]:
    """Features of users' words under one reference, and whether it saw them."""
    others = references.without(model)
    drawn = others.draw(each, seed=seed + model)
    chosen = np.flatnonzero(np.isin(asked.users, users) & (drawn[asked.users, 0] >= 0))
    limit = WORDS // len(references)
    if len(chosen) > limit:
        generator = np.random.default_rng([seed, model])
        chosen = np.sort(generator.choice(chosen, limit, replace=False))
    some = asked.take(chosen)
    said = others.of_words(chosen).features(some, drawn, k=k)
    shown = np.minimum(references.ranks[model, chosen], k + 1).astype(np.float64)
    features = np.concatenate([counts.features(some), said, np.log(shown)[:, None]], axis=1)
    return features, references.seen[model, some.users]
