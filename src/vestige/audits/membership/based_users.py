"""Users audited with the base, the model before it was fine-tuned.

The base gives the probability of each token before the fine-tune. A user's score is the mean, over
their tokens, of the calibrated gain over the base (`calibrated_gain`). If the target shows only its
most probable tokens, the gain of the others is estimated (`shown_tokens`).

The expectation is learned from all audited and compared users alike. An audited non-member could
change places with any of the compared ones, so that p-values are exact (Vovk, Gammerman and Shafer
2005, "Algorithmic Learning in a Random World", section 2.2), and none of the reference is spent on
learning. A function of 27 numbers cannot memorize the gains of a few members.
"""

from dataclasses import dataclass
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
from vestige.audits.membership.user_checks import require_finite, text_checks
from vestige.audits.membership.user_inputs import UserInputs
from vestige.claims import Check
from vestige.data.encoded import EncodedCorpus

if TYPE_CHECKING:
    from vestige.attacks.texts.token_statistics import TokenStatistics
    from vestige.session import Session

LIKELIEST = 20
"""Most probable tokens that both models give at each position, at least."""


@dataclass(frozen=True, kw_only=True)
class BasedUsers:
    """An audit of users with a base.

    Attributes:
        run: the session.
        inputs: texts, words and users.
        models: target and base.
        policy: which texts are queried.
        alpha: false-discovery rate, and level of the test.
        outputs: token statistics, cached.
    """

    run: "Session"
    inputs: UserInputs
    models: TextModels
    policy: QueryPolicy
    alpha: float
    outputs: CachedOutputs

    def audit(self) -> UserAudit:
        """Read the texts with both models, calibrate the gains, and compare the users."""
        policy, inputs, longest = self.policy, self.inputs, self.models.longest
        queries = inputs.queries.take(inputs.chosen(policy))
        if longest is not None:
            queries = queries.take(queries.positions < longest)
        texts, text = np.unique(queries.texts, return_inverse=True)
        target, base = self._read(texts)
        require_finite({"the model": target.log_probs, "the base": base.log_probs})
        everything = policy.k >= inputs.target.vocab_size
        shown = target if everything else shown_only(target, base, likeliest=policy.k)
        learned = CalibratedGain.fit(shown, base)
        score = learned.token_scores if everything else learned.excesses
        place = base.offsets[text] + queries.positions
        answers = Answers(
            asked=queries,
            ranks=np.minimum(shown.ranks[place] + 1, policy.k + 1),
            k=policy.k,
            vocab_size=max(inputs.target.vocab_size, policy.k),
        )
        self.run.log(f"Comparing {len(queries):,} tokens.")
        checks = (
            *self._model_checks(texts, target, base),
            *text_checks(inputs, texts, _means(base), seed=policy.seed, longest=longest),
        )
        return self._judged(answers, score(shown, base)[place], checks)

    def _judged(
        self, answers: Answers, scores: NDArray[np.float64], checks: tuple[Check, ...]
    ) -> UserAudit:
        counts = answers.asked.counts()
        known = [user for user in self.inputs.known.compared if counts[user]]
        judged = judge_users(
            answers, scores, self.inputs.audited, known, rate=self.alpha, seed=self.policy.seed
        )
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
            rate=self.alpha,
            compared=tuple(judged.compared.tolist()),
            statistics={
                "select": self.policy.how,
                "words_asked": len(answers.asked),
                "words_unanswered": 0,
                "shadow_perplexity_ratio": None,
                "useless_shadows": 0,
                "queries": len(answers.asked),
            },
            checks=(*checks, powerful(judged.test, len(judged.users), len(known))),
            based=True,
        )

    def _read(self, texts: NDArray[np.integer]) -> "tuple[TokenStatistics, TokenStatistics]":
        """Statistics of some texts under target and base."""
        encoded = self.inputs.encoded
        assert isinstance(encoded, EncodedCorpus)  # of next tokens
        rows = [encoded.document(one)[:-1].tolist()[: self.models.longest] for one in texts]
        everything = self.policy.k >= self.inputs.target.vocab_size
        found = self.models.statistics(
            rows,
            self.outputs,
            of="the texts",
            likeliest=LIKELIEST if everything else max(LIKELIEST, self.policy.k),
        )
        return found["target"], found["base"]

    def _model_checks(
        self, texts: NDArray[np.integer], target: "TokenStatistics", base: "TokenStatistics"
    ) -> list[Check]:
        """Alive, by the texts of the reference, and different, by all."""
        compared = np.isin(self.inputs.owners[texts], self.inputs.known.compared)
        some, checks = np.flatnonzero(compared), []
        for who, statistics in (("the model", target), ("the base", base)):
            rest = first_tokens(statistics, some)
            cuts = rest.offsets[1:-1]
            scores, tokens = (np.split(each, cuts) for each in (rest.log_probs, rest.tokens))
            checks.append(claims.alive(scores, tokens, who=who))
        return [*checks, claims.different(base.log_probs, target.log_probs)]


def _means(of: "TokenStatistics") -> NDArray[np.float64]:
    """(n,) mean log-probability of each text."""
    sums = np.add.reduceat(of.log_probs.astype(np.float64), of.offsets[:-1])
    return np.asarray(sums / np.diff(of.offsets))
