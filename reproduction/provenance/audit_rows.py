"""Rows of tables: how well an audit tells members from others.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.1: accuracy, AUC, precision and recall over as many members as others.

Differs from the paper: intervals stand beside every number, and the share of members that is found
where 1 % of the others is called. The paper's audit calls whom its support vector machine puts on
the members' side; ours whose p-value is at most 0.05, which states the false-positive rate.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from reproduction.papers import Row
from reproduction.provenance.audit_trials import Observations
from reproduction.provenance.decisions import judge_decisions, true_positives_at
from reproduction.provenance.rank_histogram import histogram_scores
from vestige import _validate
from vestige.audits.membership.ranked_words import score_words
from vestige.audits.membership.user_audit import judge_users
from vestige.metrics.estimates import auc, columns

Method = Literal["paper", "ours"]
LEVEL = 0.05
"""Of p-values: whose is no larger is called."""
METHODS: tuple[Method, ...] = get_args(Method)


@dataclass(frozen=True, kw_only=True)
class AuditDecisions:
    """Scores and decisions of one audit.

    Attributes:
        members: (n,) scores of members.
        others: (m,) scores of others.
        called: (n + m,) whether each was called a member, members first.
        p_values: (n + m,) likewise; None for the paper's audit, which has none.
    """

    members: NDArray[np.float64]
    others: NDArray[np.float64]
    called: NDArray[np.bool_]
    p_values: NDArray[np.float64] | None = None

    def row(self) -> dict[str, float | None]:
        """AUC, decisions and the share of members found, with the ends of their intervals."""
        truth = np.arange(len(self.called)) < len(self.members)
        point = true_positives_at(self.members, self.others, false_positive_rate=0.01)
        return {
            **columns("auc", auc(self.members, self.others)),
            **columns("tpr_at_fpr_1", point),
            **judge_decisions(self.called, truth),
        }


def decide(observed: Observations, method: Method, *, k: int, seed: int = 0) -> AuditDecisions:
    """Audit members and others where the target shows k words.

    Raises:
        ValueError: there is no such method.
    """
    _validate.one_of(get_args(Method), method=method)
    words = observed.shown(k)
    if method == "paper":
        scores = histogram_scores(words, observed.shadowed)[list(observed.audited)]
        called, p_values = scores > 0, None
    else:
        known = observed.known
        word_scores = score_words(words, known.fitted, seed=seed)
        judged = judge_users(
            words.queries, word_scores, observed.audited, known.compared, seed=seed
        )
        # Who has no words left has no score: nothing speaks for membership.
        found = judged.column("score")
        least = min((score for score in found if score is not None), default=0.0)
        scores = np.array([least if score is None else score for score in found])
        p_values = np.array(judged.column("p_value"))
        called = p_values <= LEVEL
    members = len(observed.members)
    return AuditDecisions(
        members=scores[:members], others=scores[members:], called=called, p_values=p_values
    )


def audit_row(observed: Observations, method: Method, *, k: int, **labels: object) -> Row:
    """A row: who audits, what the target shows, how far it overfits, how well the audit does."""
    return {
        **labels,
        "audit": method,
        "k": min(k, observed.words.vocab_size),
        "ratio": observed.ratio,
        **decide(observed, method, k=k).row(),
    }
