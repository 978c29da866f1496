r"""Membership log-odds of a text's tokens, learnt from shadow fine-tunes.

Each shadow is the base, fine-tuned on some texts of the same kind and not on others. Boosting
learns from their tokens

.. math:: L = \ln \frac{P(\mathrm{seen} \mid d, r, x)}{P(\mathrm{unseen} \mid d, r, x)}

of the gain d over the base, the rank r under the target, and what is known without the target, x:
log-probability, rank, mean and deviation under the base, frequency and place. Of a target that
shows its likeliest tokens alone, x is joined by what these say (`shown_changes`). A text's score is
the sum over its tokens. The likelihood ratio is the strongest test (Neyman and Pearson); Carlini et
al. (2022), arXiv:2112.03570, estimate it for each example apart.

One rule for all: a text that is audited, or compared with, is fitted on by nobody. Then audited
texts that were never seen and those of the reference are exchangeable, whatever was learnt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.attacks.texts.shown_changes import shown_features
from vestige.attacks.texts.token_statistics import TokenStatistics

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

TOKENS = 200_000
"""Of all shadows together that boosting learns from, at most."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Shadow:
    """A fine-tune of which it is known what it saw.

    Attributes:
        target: its statistics of n texts.
        base: the base's, of the same texts.
        seen: (n,) whether it saw each.
    """

    target: TokenStatistics
    base: TokenStatistics
    seen: NDArray[np.bool_]


@dataclass(frozen=True)
class LearntLogOdds:
    """The log-odds of having been seen, by token.

    Attributes:
        boosting: scikit-learn's fitted classifier.
        frequencies: (v,) natural logs, of tokens in the texts fitted on.
        shown_only: whether what the shown tokens say of others is counted, too.
        outputs: (v, d) of the base's output layer, where it is known.
    """

    boosting: "HistGradientBoostingClassifier"
    frequencies: Floats
    shown_only: bool = False
    outputs: NDArray[np.float32] | None = None

    @classmethod
    def fit(
        cls,
        shadows: Sequence[Shadow],
        *,
        seed: int,
        outputs: NDArray[np.float32] | None = None,
    ) -> "LearntLogOdds":
        """Learn from the tokens of all shadows, seen and unseen texts weighing alike.

        Args:
            shadows: of which none has a text that is audited or in the reference. They tell as much
                as the target does: all, or the likeliest tokens alone (`shown_tokens.shown_only`).
            seed: of random draws and boosting.
            outputs: rows of the base's output layer (`models.output_layer`), for targets that show
                their likeliest tokens alone.

        Raises:
            ValueError: there is no shadow, or one saw all or none of its texts.
        """
        from sklearn.ensemble import HistGradientBoostingClassifier

        _validate.at_least(1, shadows=len(shadows))
        if any(one.seen.all() or not one.seen.any() for one in shadows):
            raise ValueError("shadows must each have seen some of its texts and not others")
        frequencies = token_frequencies([one.base for one in shadows])
        blind = all(np.isnan(one.target.means).all() for one in shadows)

        given = np.concatenate([_features(one.target, one.base, frequencies) for one in shadows])
        if blind:
            more = [shown_features(one.target, one.base, outputs) for one in shadows]
            given = np.concatenate([given, np.concatenate(more)], axis=1)
        seen = np.concatenate([np.repeat(one.seen, np.diff(one.base.offsets)) for one in shadows])
        if len(given) > TOKENS:
            drawn = np.random.default_rng(seed).choice(len(given), TOKENS, replace=False)
            given, seen = given[np.sort(drawn)], seen[np.sort(drawn)]
        given[:, np.isnan(given).all(0)] = 0.0  # what no shadow tells; boosting needs one number
        boosting = HistGradientBoostingClassifier(
            max_iter=150,
            learning_rate=0.08,
            max_leaf_nodes=15,
            min_samples_leaf=200 if len(given) > 20_000 else 20,
            class_weight="balanced",
            random_state=seed,
        )
        return cls(boosting.fit(given, seen), frequencies, blind, outputs)

    def scores(self, target: TokenStatistics, base: TokenStatistics) -> Floats:
        """(n,) log-odds of each text's tokens, summed: high where a text was used."""
        return np.asarray(np.add.reduceat(self.token_scores(target, base), target.offsets[:-1]))

    def token_scores(self, target: TokenStatistics, base: TokenStatistics) -> Floats:
        """(t,) log-odds of each token, high where its text was used."""
        given = _features(target, base, self.frequencies)
        if self.shown_only:
            given = np.concatenate([given, shown_features(target, base, self.outputs)], axis=1)
        return np.asarray(self.boosting.decision_function(given), dtype=np.float64)


def _features(target: TokenStatistics, base: TokenStatistics, frequencies: Floats) -> Floats:
    """(t, 9) of tokens; NaN where the target does not say."""
    columns = (
        target.log_probs - base.log_probs,
        np.log1p(target.ranks),
        target.means - base.means,
    )
    own = np.stack(columns, axis=1).astype(np.float64)
    return np.concatenate([own, unseen_features(base, frequencies)], axis=1)


def unseen_features(base: TokenStatistics, frequencies: Floats) -> Floats:
    """(t, 6) of tokens, that no target plays a part in.

    Args:
        base: statistics of n texts.
        frequencies: (v,) as `token_frequencies` gives them.
    """
    known = np.minimum(base.tokens, len(frequencies) - 1)
    place = np.arange(len(base.tokens)) - np.repeat(base.offsets[:-1], np.diff(base.offsets))
    columns = (
        base.log_probs,
        np.log1p(base.ranks),
        base.means,
        base.deviations,
        frequencies[known],
        np.log1p(place),
    )
    return np.stack(columns, axis=1).astype(np.float64)


def token_frequencies(texts: Sequence[TokenStatistics]) -> Floats:
    """(v + 1,) natural logs of shares, one occurrence added; the last is of tokens never read."""
    counts = np.bincount(np.concatenate([one.tokens for one in texts])) + 1.0
    counts = np.append(counts, 1.0)
    return np.asarray(np.log(counts / counts.sum()))
