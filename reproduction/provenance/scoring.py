r"""Rows of tables: how well the paper's audit and ours tell members from others.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.1: accuracy, AUC, precision and recall over as many members as others.
The paper's audit (section 3, Algorithm 1) counts ranks in d bins of equal width |V| / d, and if a
model shows its k most probable words only, how many words were not among them (section 4.3). A
linear support vector machine learns from shadow models which counts are a member's.

Differs from the paper: intervals beside every number, and the share of members that is found where
1 % of the others is called. The paper does not state d; ours is 100. Its audit calls whom its
machine puts on the members' side; ours whose p-value is at most 0.05, which states the
false-positive rate. The machine is scikit-learn's LinearSVC, the paper's own choice, in its primal
form: the dual one has the same solution, but does not converge to it if counts go into the
thousands.
"""

from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reproduction.papers import Row
from reproduction.provenance.audits import Observations
from vestige import _validate
from vestige.audits.membership.ranked_words import Floats, RankedWords, score_words
from vestige.audits.membership.user_audit import judge_users
from vestige.metrics.estimates import Estimate, auc, columns, finite_scores, rate

Method = Literal["paper", "ours"]
METHODS: tuple[Method, ...] = get_args(Method)
LEVEL = 0.05
"""Users with a p-value of at most this are called."""
BINS = 100
RESAMPLES = 1000


def audit_row(observed: Observations, method: Method, *, k: int, **labels: object) -> Row:
    """A row: who audits, what the target shows, how far it overfits, how well the audit does."""
    return {
        **labels,
        "audit": method,
        "k": min(k, observed.words.vocab_size),
        "ratio": observed.ratio,
        **decide(observed, method, k=k).row(),
    }


@dataclass(frozen=True, kw_only=True)
class AuditDecisions:
    """Scores and decisions of one audit.

    Attributes:
        members, others: (n,) and (m,) scores.
        called: (n + m,) whether each was called a member, members first.
        p_values: (n + m,) likewise; None for the paper's audit, which has none.
    """

    members: Floats
    others: Floats
    called: NDArray[np.bool_]
    p_values: Floats | None = None

    def row(self) -> dict[str, float | None]:
        """AUC, shares of decisions and of members found, with the ends of their intervals.

        Intervals of decisions are Clopper and Pearson's. Precision is None if nobody was called.
        """
        member = np.arange(len(self.called)) < len(self.members)
        point = true_positives_at(self.members, self.others, false_positive_rate=0.01)
        return {
            **columns("auc", auc(self.members, self.others)),
            **columns("tpr_at_fpr_1", point),
            **columns("accuracy", rate((self.called == member).tolist())),
            **columns("precision", rate(member[self.called].tolist())),
            **columns("recall", rate(self.called[member].tolist())),
            **columns("false_positive_rate", rate(self.called[~member].tolist())),
        }


def decide(observed: Observations, method: Method, *, k: int, seed: int = 0) -> AuditDecisions:
    """Audit members and others where the target shows k words.

    Raises:
        ValueError: there is no such method.
    """
    _validate.one_of(METHODS, method=method)
    words, members = observed.shown(k), len(observed.members)
    if method == "paper":
        scores = histogram_scores(words, observed.shadowed)[list(observed.audited)]
        return AuditDecisions(members=scores[:members], others=scores[members:], called=scores > 0)
    known = observed.known
    word_scores = score_words(words, known.fitted, seed=seed)
    judged = judge_users(words.queries, word_scores, observed.audited, known.compared, seed=seed)
    # Users without words have no score: nothing suggests that they are members.
    found = judged.column("score")
    least = min((score for score in found if score is not None), default=0.0)
    scores = np.array([least if score is None else score for score in found])
    p_values = np.array(judged.column("p_value"))
    return AuditDecisions(
        members=scores[:members],
        others=scores[members:],
        called=p_values <= LEVEL,
        p_values=p_values,
    )


def histogram_scores(words: RankedWords, learned_from: ArrayLike, *, bins: int = BINS) -> Floats:
    """(u,) the paper's scores of users: distances to the machine's plane, above 0 for members.

    It learns from users of whom each shadow model was trained on about half; ValueError if these
    are all members, or none.
    """
    from sklearn.svm import LinearSVC

    assert words.shadows is not None
    users = np.asarray(learned_from)
    shadows = range(len(words.shadows))
    given = np.concatenate(
        [rank_histogram(words.with_shadow_as_target(n), bins=bins)[users] for n in shadows]
    )
    members: NDArray[np.bool_] = words.shadows.members[:, users].ravel()
    if members.all() or not members.any():
        raise ValueError(
            f"members must hold both kinds, got {members.sum()} members of {members.size}"
        )
    machine = LinearSVC(dual=False, random_state=0, max_iter=20_000).fit(given, members)
    return cast("Floats", machine.decision_function(rank_histogram(words, bins=bins)))


def rank_histogram(words: RankedWords, *, bins: int = BINS) -> Floats:
    """(u, d + 1) counts of each user's ranks: d bins over all ranks, and the words not shown."""
    _validate.at_least(1, bins=bins)
    shown = words.shown.astype(np.int64)
    # As in Algorithm 1, a rank r is in bin i if (i - 1) b <= r < i b; r is counted from 0.
    column = np.where(shown > words.k, bins, (shown - 1) * bins // words.vocab_size)
    cells = words.queries.users.astype(np.int64) * (bins + 1) + column
    counts = np.bincount(cells, minlength=len(words.queries.names) * (bins + 1))
    return counts.reshape(-1, bins + 1).astype(np.float64)


def true_positives_at(
    members: ArrayLike, others: ArrayLike, *, false_positive_rate: float = 0.01, seed: int = 0
) -> Estimate | None:
    """The share of members above the threshold that lets through few enough others.

    The threshold is the lowest score of others that keeps floor(rate * m) of them strictly above;
    members count who are strictly above it. The interval is from resampling both sides, which pays
    for the choice of the threshold. None where m * rate is below 1: no non-member may be called,
    and the rate cannot be estimated.

    Example:
        >>> true_positives_at([3, 2, 1, 0], range(-7, 3), false_positive_rate=0.1).value
        0.5
    """
    inside, outside = finite_scores(members, "members"), finite_scores(others, "others")
    _validate.open_fraction(false_positive_rate=false_positive_rate)
    allowed = int(np.floor(false_positive_rate * outside.size + 1e-9))
    if allowed < 1:
        return None

    def share_above(inside: Floats, outside: Floats) -> float:
        last = outside.size - 1 - allowed
        return float((inside > np.partition(outside, last)[last]).mean())

    generator = np.random.default_rng(seed)
    drawn = [
        share_above(generator.choice(inside, inside.size), generator.choice(outside, outside.size))
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    found = share_above(inside, outside)
    ends = min(low, found), max(high, found)
    return Estimate("true-positive rate", found, *ends, n=inside.size + outside.size)
