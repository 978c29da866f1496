"""Users audited with the base, the model before it was fine-tuned.

The base gives the probability of each token before the fine-tune. A user's score is the mean, over
their tokens, of the calibrated gain over the base (`calibrated_gain`). If the target shows only its
most probable tokens, the gain of the others is estimated (`shown_tokens`).

The expectation is learned from all audited and compared users alike. An audited non-member could
change places with any of the compared ones, so that p-values are exact (Vovk, Gammerman and Shafer
2005, "Algorithmic Learning in a Random World", section 2.2), and none of the reference is spent on
learning. A function of 27 numbers cannot memorize the gains of a few members.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vestige import claims
from vestige.attacks.membership.membership_scores import Answers
from vestige.attacks.membership.query_policy import QueryPolicy
from vestige.attacks.membership.user_audit import UserAudit
from vestige.attacks.membership.user_checks import powerful
from vestige.attacks.membership.user_membership import judge_users
from vestige.attacks.texts.cached_outputs import CachedOutputs
from vestige.attacks.texts.calibrated_gain import CalibratedGain
from vestige.attacks.texts.shown_tokens import shown_only
from vestige.attacks.texts.statistics_of_parts import first_tokens
from vestige.attacks.texts.text_models import TextModels
from vestige.attacks.texts.token_statistics import TokenStatistics
from vestige.audits.membership.user_checks import require_finite, text_checks
from vestige.audits.membership.user_inputs import UserInputs
from vestige.claims import Check

if TYPE_CHECKING:
    from vestige.session import Session

LIKELIEST = 20
"""Most probable tokens that both models give at each position, at least."""


def based_users(
    run: "Session",
    inputs: UserInputs,
    policy: QueryPolicy,
    alpha: float,
    *,
    models: TextModels,
    outputs: CachedOutputs,
) -> UserAudit:
    """Read the texts with both models, calibrate the gains, and compare the users.

    Args:
        run: the session.
        inputs: texts, words and users.
        policy: which texts are queried.
        alpha: false-discovery rate, and level of the test.
        models: target and base.
        outputs: token statistics, cached.
    """
    queries, longest = inputs.queries.take(inputs.chosen(policy)), models.longest
    if longest is not None:
        queries = queries.take(queries.positions < longest)
    texts, text = np.unique(queries.texts, return_inverse=True)
    rows = [inputs.targets.document(one)[:-1].tolist()[:longest] for one in texts]
    everything = policy.k >= inputs.target.vocab_size
    likeliest = LIKELIEST if everything else max(LIKELIEST, policy.k)
    read = models.statistics(rows, outputs, of="the texts", likeliest=likeliest)
    target, base = read["target"], read["base"]
    require_finite({"the model": target.log_probs, "the base": base.log_probs})
    shown = target if everything else shown_only(target, base, likeliest=policy.k)
    learned = CalibratedGain.fit(shown, base)
    scores = (learned.token_scores if everything else learned.excesses)(shown, base)
    place = base.offsets[text] + queries.positions
    answers = Answers(
        asked=queries,
        ranks=np.minimum(shown.ranks[place] + 1, policy.k + 1),
        k=policy.k,
        vocab_size=max(inputs.target.vocab_size, policy.k),
    )
    run.log(f"Comparing {len(queries):,} tokens.")
    checks = (
        *_model_checks(inputs, texts, target, base),
        *text_checks(inputs, texts, _means(base), seed=policy.seed, longest=longest),
    )
    return _audit(inputs, policy, alpha, answers, scores[place], checks)


def _audit(
    inputs: UserInputs,
    policy: QueryPolicy,
    alpha: float,
    answers: Answers,
    scores: NDArray[np.float64],
    checks: tuple[Check, ...],
) -> UserAudit:
    counts = answers.asked.counts()
    known = [user for user in inputs.known.compared if counts[user]]
    judged = judge_users(answers, scores, inputs.audited, known, rate=alpha, seed=policy.seed)
    return UserAudit(
        users=judged.users,
        list_p_value=judged.list_p_value,
        test=judged.test,
        auc=judged.auc,
        calibrated_on=len(known),
        fitted_on=0,
        counted_on=0,
        references=0,
        k=answers.k,
        vocab_size=answers.vocab_size,
        rate=alpha,
        compared=tuple(judged.compared.tolist()),
        statistics={
            "select": policy.how,
            **dict.fromkeys(("words_asked", "queries"), len(answers.asked)),
            **dict.fromkeys(("words_unanswered", "useless_shadows"), 0),
            "shadow_perplexity_ratio": None,
        },
        checks=(*checks, powerful(judged.test, len(judged.users), len(known))),
        based=True,
    )


def _model_checks(
    inputs: UserInputs, texts: NDArray[np.integer], target: TokenStatistics, base: TokenStatistics
) -> list[Check]:
    """Alive, by the texts of the reference, and different, by all."""
    some = np.flatnonzero(np.isin(inputs.owners[texts], inputs.known.compared))
    checks = []
    for who, statistics in (("the model", target), ("the base", base)):
        rest = first_tokens(statistics, some)
        cuts = rest.offsets[1:-1]
        scores, tokens = (np.split(each, cuts) for each in (rest.log_probs, rest.tokens))
        checks.append(claims.alive(scores, tokens, who=who))
    return [*checks, claims.different(base.log_probs, target.log_probs)]


def _means(of: TokenStatistics) -> NDArray[np.float64]:
    """(n,) mean log-probability of each text."""
    sums = np.add.reduceat(of.log_probs.astype(np.float64), of.offsets[:-1])
    return np.asarray(sums / np.diff(of.offsets))
