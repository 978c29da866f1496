"""An audit of users against the model that the target was fine-tuned from.

The base says how probable every token was before the fine-tune. A user's score is the mean over
their tokens of the gain over the base, calibrated (`calibrated_gain`); where the target shows only
its most probable tokens, the gain of the others is estimated (`shown_tokens`). P-values are those
of every audit of users: against non-members, over as much text.

The expectation is learnt from all who are audited or compared, both sides alike: an audited user
who is out could have stood anywhere among the others, so that p-values are exact (Vovk, Gammerman
and Shafer 2005, "Algorithmic Learning in a Random World", section 2.2), and none of the reference
is spent on learning. A function of 27 numbers cannot learn the gains of a few members by heart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vestige import claims
from vestige.attacks.membership.membership_scores import Answers
from vestige.attacks.membership.query_policy import QueryPolicy
from vestige.attacks.membership.user_audit import UserAudit
from vestige.attacks.membership.user_checks import powerful
from vestige.attacks.membership.user_membership import judge_users
from vestige.attacks.texts.calibrated_gain import CalibratedGain
from vestige.attacks.texts.shown_tokens import shown_only
from vestige.attacks.texts.statistics_of_parts import first_tokens
from vestige.claims import Check
from vestige.data.encoded import EncodedCorpus
from vestige.monitor import Monitor
from vestige.workflows.audit_directory import STATISTICS
from vestige.workflows.audit_inputs import AuditInputs
from vestige.workflows.audit_options import ShadowSettings
from vestige.workflows.audit_target import Target
from vestige.workflows.inputs import shown
from vestige.workflows.text_models import TextModels
from vestige.workflows.user_text_checks import require_finite, text_checks

if TYPE_CHECKING:
    from vestige.attacks.texts.token_statistics import TokenStatistics

LIKELIEST = 20
"""Tokens of a place that are asked for, at least."""


def target_beside_base(model: Any, models: TextModels) -> Target:
    """The target of an audit, of two models that are read."""
    target = models.target
    return Target(
        name=shown(model),
        task="next-word",
        vocabulary=target.vocabulary,
        source_vocabulary=None,
        vocab_size=target.vocab_size,
        model=target,
        recorded=dict(models.recorded["target"]),  # type: ignore[call-overload]
    )


def refuse_shadows(settings: ShadowSettings, policy: QueryPolicy) -> None:
    """Refuse settings that an audit with a base has no use for.

    Raises:
        ValueError: a setting of shadow models or single words was given.
    """
    for name, default in vars(ShadowSettings()).items():
        if getattr(settings, name) not in (default, 0):
            raise ValueError(
                f"`{name}` must be left out with `base`, which takes the place of shadow models"
            )
    if policy.calls is not None:
        raise ValueError("`calls` must be left out with `base`: texts are asked as wholes")
    if policy.how == "informative":
        raise ValueError("`select` informative must come with shadow models, not with `base`")


@dataclass(frozen=True, kw_only=True)
class BaseAudit:
    """An audit of users with a base, that can be run."""

    inputs: AuditInputs
    models: TextModels
    policy: QueryPolicy
    rate: float
    out: Path
    monitor: Monitor

    @property
    def recorded(self) -> dict[str, object]:
        """What a run records of the models."""
        return self.models.recorded

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What decides the result; hashes in place of texts and weights."""
        parts, policy = self.inputs.parts, self.policy
        return {
            "format": 2,
            "models": {
                role: {k: v for k, v in dict(told).items() if k != "path"}  # type: ignore[call-overload]
                for role, told in self.models.recorded.items()
            },
            "texts": parts.texts.fingerprint(),
            "reference": parts.reference.fingerprint(),
            "settings": {
                "how": policy.how,
                "queries": policy.queries,
                "k": policy.k,
                "rate": self.rate,
                "seed": policy.seed,
            },
        }

    def run(self) -> UserAudit:
        """Ask both models, calibrate, compare."""
        policy, inputs = self.policy, self.inputs
        asked = inputs.asked.take(inputs.chosen(policy))
        longest = self.models.longest
        if longest is not None:
            asked = asked.take(asked.positions < longest)
        texts, text = np.unique(asked.texts, return_inverse=True)
        target, base = self._asked(texts)
        require_finite({"the model": target.log_probs, "the base": base.log_probs})
        every = policy.k >= inputs.target.vocab_size
        shown = target if every else shown_only(target, base, likeliest=policy.k)
        learnt = CalibratedGain.fit(shown, base)
        place = base.offsets[text] + asked.positions
        scores = (learnt.token_scores if every else learnt.excesses)(shown, base)[place]
        answers = Answers(
            asked=asked,
            ranks=np.minimum(shown.ranks[place] + 1, policy.k + 1),
            k=policy.k,
            vocab_size=max(inputs.target.vocab_size, policy.k),
        )
        self.monitor.log(f"Comparing {len(asked):,} tokens")
        known = [user for user in inputs.known.compared if asked.counts()[user]]
        judged = judge_users(
            answers, scores, inputs.audited, known, rate=self.rate, seed=policy.seed
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
            k=policy.k,
            vocab_size=answers.vocab_size,
            rate=self.rate,
            compared=tuple(judged.compared.tolist()),
            statistics=self._statistics(len(asked)),
            checks=(
                *self._model_checks(texts, target, base),
                *text_checks(inputs, texts, _text_means(base), seed=policy.seed, longest=longest),
                powerful(judged.test, len(judged.users), len(known)),
            ),
            based=True,
        )

    def _asked(self, texts: NDArray[np.integer]) -> "tuple[TokenStatistics, TokenStatistics]":
        """What target and base say of some texts."""
        encoded = self.inputs.texts
        assert isinstance(encoded, EncodedCorpus)  # of next tokens
        rows = [encoded.document(one)[:-1].tolist()[: self.models.longest] for one in texts]
        every = self.policy.k >= self.inputs.target.vocab_size
        said = self.models.statistics(
            rows,
            self.out / STATISTICS,
            of="the texts",
            monitor=self.monitor,
            likeliest=LIKELIEST if every else max(LIKELIEST, self.policy.k),
        )
        return said["target"], said["base"]

    def _model_checks(
        self, texts: NDArray[np.integer], target: "TokenStatistics", base: "TokenStatistics"
    ) -> list[Check]:
        """Alive, by the texts of the reference, and different, by all."""
        compared = np.isin(self.inputs.owners[texts], self.inputs.known.compared)
        some, checks = np.flatnonzero(compared), []
        for who, said in (("the model", target), ("the base", base)):
            rest = first_tokens(said, some)
            cuts = rest.offsets[1:-1]
            scores, tokens = (np.split(each, cuts) for each in (rest.log_probs, rest.tokens))
            checks.append(claims.alive(scores, tokens, who=who))
        return [*checks, claims.different(base.log_probs, target.log_probs)]

    def _statistics(self, asked: int) -> Mapping[str, object]:
        return {
            "select": self.policy.how,
            "words_asked": asked,
            "words_unanswered": 0,
            "shadow_perplexity_ratio": None,
            "useless_shadows": 0,
            "queries": asked,
        }


def _text_means(said: "TokenStatistics") -> NDArray[np.float64]:
    """(n,) mean log-probability of each text."""
    sums = np.add.reduceat(said.log_probs.astype(np.float64), said.offsets[:-1])
    return np.asarray(sums / np.diff(said.offsets))
