r"""Rows of tables: how well the paper's audit and ours separate members from others.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.1: accuracy, AUC, precision and recall over as many members as others.
The paper's audit (section 3, Algorithm 1) counts ranks in d bins of equal width |V| / d, and if a
model shows only its k most probable words, the words not shown (section 4.3). From shadow models, a
linear support vector machine learns to classify these counts.

Differs from the paper: intervals for every number, and the true-positive rate at a false-positive
rate of 1 %. The paper does not state d; ours is 100. Its audit flags users with a positive decision
function; ours those with a p-value of at most 0.05, which states the false-positive rate. The
machine is scikit-learn's LinearSVC, the paper's own choice, in its primal
form: the dual one has the same solution, but does not converge to it if counts go into the
thousands.
"""

from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reproduction.papers import Row
from reproduction.provenance.audits import Observations, perplexity_ratio
from vestige.audits.membership.ranked_words import Floats, RankedWords, score_words
from vestige.audits.membership.user_audit import judge_users
from vestige.metrics.estimates import Estimate, auc, columns, finite_scores, rate

Method = Literal["paper", "ours"]
METHODS: tuple[Method, ...] = get_args(Method)
LEVEL = 0.05
"""Users with a p-value of at most this are flagged."""
BINS = 100
RESAMPLES = 1000


def audit_row(observed: Observations, method: Method, *, k: int, **labels: object) -> Row:
    """A row: the method, the number of words shown, the ratio of perplexities, and the results."""
    scores, flagged = decide(observed, method, k=k)
    members = len(observed.members)
    return {
        **labels,
        "audit": method,
        "k": min(k, observed.words.vocab_size),
        "ratio": perplexity_ratio(observed.target),
        **result_columns(scores[:members], scores[members:], flagged),
    }


def result_columns(members: Floats, others: Floats, flagged: NDArray[np.bool_]) -> Row:
    """AUC of the scores, and shares of decisions and of flagged users, with intervals.

    `flagged` is (n + m,), members first. Intervals of decisions are Clopper and Pearson's.
    Precision is None if nobody was flagged.
    """
    is_member = np.arange(len(flagged)) < len(members)
    return {
        **columns("auc", auc(members, others)),
        **columns("tpr_at_fpr_1", true_positives_at(members, others, false_positive_rate=0.01)),
        **columns("accuracy", rate((flagged == is_member).tolist())),
        **columns("precision", rate(is_member[flagged].tolist())),
        **columns("recall", rate(flagged[is_member].tolist())),
        **columns("false_positive_rate", rate(flagged[~is_member].tolist())),
    }


def decide(observed: Observations, method: Method, *, k: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Scores of members, then others, where the target shows k words; whether each is flagged."""
    words = observed.shown(k)
    if method == "paper":
        scores = histogram_scores(words, observed.shadowed)[list(observed.audited)]
        return scores, scores > 0
    known = observed.known
    word_scores = score_words(words, known.fitted, seed=0)
    judged = judge_users(words.queries, word_scores, observed.audited, known.compared, seed=0)
    # Users without words have no score; they get the lowest.
    column = judged.column("score")
    lowest = min((score for score in column if score is not None), default=0.0)
    scores = np.array([lowest if score is None else score for score in column])
    return scores, np.array(judged.column("p_value")) <= LEVEL


def histogram_scores(words: RankedWords, learned_from: ArrayLike) -> Floats:
    """(u,) the paper's scores of users: distances to the machine's plane, above 0 for members.

    The support vector machine learns from users. Each shadow model was trained on about half.
    """
    from sklearn.svm import LinearSVC

    assert words.shadows is not None
    users = np.asarray(learned_from)
    targets = [words.with_shadow_as_target(shadow) for shadow in range(len(words.shadows))]
    features = np.concatenate([rank_histogram(target)[users] for target in targets])
    members: NDArray[np.bool_] = words.shadows.members[:, users].ravel()
    machine = LinearSVC(dual=False, random_state=0, max_iter=20_000).fit(features, members)
    return cast("Floats", machine.decision_function(rank_histogram(words)))


def rank_histogram(words: RankedWords, *, bins: int = BINS) -> Floats:
    """(u, d + 1) counts of each user's ranks: d bins over all ranks, and the words not shown."""
    shown = words.shown.astype(np.int64)
    # As in Algorithm 1, a rank r is in bin i if (i - 1) b <= r < i b; r is counted from 0.
    column = np.where(shown > words.k, bins, (shown - 1) * bins // words.vocab_size)
    cells = words.queries.users.astype(np.int64) * (bins + 1) + column
    counts = np.bincount(cells, minlength=len(words.queries.names) * (bins + 1))
    return counts.reshape(-1, bins + 1).astype(np.float64)


def true_positives_at(
    members: ArrayLike, others: ArrayLike, *, false_positive_rate: float = 0.01, seed: int = 0
) -> Estimate | None:
    """The share of members above the threshold of a false-positive rate.

    The threshold is the lowest score of others that keeps floor(rate * m) of them strictly above;
    members count if they are strictly above it. The interval is from resampling both sides, which
    includes the choice of the threshold. None where m * rate is below 1: no non-member may be
    flagged, and the rate cannot be estimated.

    Example:
        >>> true_positives_at([3, 2, 1, 0], range(-7, 3), false_positive_rate=0.1).value
        0.5
    """
    inside, outside = finite_scores(members, "members"), finite_scores(others, "others")
    allowed = int(np.floor(false_positive_rate * outside.size + 1e-9))
    if allowed < 1:
        return None

    def share_above(inside: Floats, outside: Floats) -> float:
        last = outside.size - 1 - allowed
        return float((inside > np.partition(outside, last)[last]).mean())

    rng = np.random.default_rng(seed)
    resampled = [
        share_above(rng.choice(inside, inside.size), rng.choice(outside, outside.size))
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(resampled, [0.025, 0.975]).tolist()
    share = share_above(inside, outside)
    ends = min(low, share), max(high, share)
    return Estimate("true-positive rate", share, *ends, n=inside.size + outside.size)
