"""Users audited by the ranks of their words, beside shadow models that never saw them."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.membership.membership_scores import Answers
from vestige.attacks.membership.query_answers import known_of, narrowed, ranks_of
from vestige.attacks.membership.query_policy import QueryPolicy
from vestige.attacks.membership.reference_models import References
from vestige.attacks.membership.user_audit import UserAudit
from vestige.attacks.membership.user_membership import membership_audit
from vestige.audits.membership.service import Service
from vestige.audits.membership.shadow_options import ShadowOptions
from vestige.audits.membership.user_checks import require_finite, text_checks
from vestige.audits.membership.user_inputs import UserInputs
from vestige.audits.membership.user_shadows import train_planned
from vestige.data.token_queries import TokenQueries
from vestige.models.checkpoints import load_model, load_seq2seq
from vestige.training.shadow_jobs import ShadowPlan
from vestige.training.shadows import Shadow

if TYPE_CHECKING:
    from vestige.session import Session

Ranks = tuple[NDArray[np.int32], NDArray[np.float32]]
"""(w,) ranks from 1, and (w,) natural logarithms of probabilities."""


@dataclass(kw_only=True)
class RankedUsers:
    """An audit of users without a base.

    Attributes:
        run: the session.
        inputs: texts, words and users.
        policy: which words are queried.
        alpha: false-discovery rate, and level of the test.
        service: a remote target; None for a local one.
        plan: of shadow models; None for none.
        options: of shadow models.
        folder: of shadow models.
        cluster: address of a Ray cluster to train them on.
    """

    run: "Session"
    inputs: UserInputs
    policy: QueryPolicy
    alpha: float
    service: Service | None
    plan: ShadowPlan | None
    options: ShadowOptions
    folder: Path
    cluster: str | None = None
    _shadows: list[Shadow] = field(default_factory=list, init=False)

    def audit(self) -> UserAudit:
        """Query the target and the shadow models, and compare the users."""
        answers, references, answered = self._answers()
        self.run.log(f"Comparing {len(answers.asked):,} words.")
        found = membership_audit(
            answers,
            self.inputs.counts,
            audited=self.inputs.audited,
            known=self.inputs.known,
            references=references,
            rate=self.alpha,
            seed=self.policy.seed,
        )
        checks = text_checks(
            self.inputs,
            np.unique(answers.asked.texts),
            seed=self.policy.seed,
            answered=float(answered.mean()),
        )
        statistics = self._statistics(answered)
        return replace(found, statistics=statistics, checks=(*found.checks, *checks))

    def _answers(self) -> tuple[Answers, References | None, NDArray[np.bool_]]:
        """Ranks of the answered words, those under shadow models, and which were answered."""
        if self.policy.how == "informative":
            return self._informative()
        queries = self.inputs.queries.take(self.inputs.chosen(self.policy))
        answers, answered = self._of_target(queries)  # first: a failure comes before training
        return answers, self._references(answers.asked), answered

    def _informative(self) -> tuple[Answers, References | None, NDArray[np.bool_]]:
        """The same for words that shadow models select."""
        every = self.inputs.queries
        if self.service is not None:
            self.service.probe(every)
        references = self._references(every)
        mask = self.inputs.chosen(self.policy, references)
        queries = every.take(mask)
        if self.service is not None:
            self.service.afford(queries)
        answers, answered = self._of_target(queries)
        if references is not None:
            references = references.of_words(mask.nonzero()[0][answered])
        return answers, references, answered

    def _of_target(self, queries: TokenQueries) -> tuple[Answers, NDArray[np.bool_]]:
        """The target's ranks of the words that it answered; and (w,) which those are."""
        target, k = self.inputs.target, self.policy.k
        if self.service is None:
            sha256 = str(target.record["sha256"])
            ranks, log_probs = self._ranks(target.model, sha256, queries, "reading the texts")
            require_finite({"the model": log_probs})
        else:
            ranks = self.service.ranks(queries)
        answered = ranks > 0
        if not answered.all():
            self.run.log(f"{int((~answered).sum())} of {len(queries)} words have no answer.")
        size = max(target.vocab_size, k)
        asked = queries.take(answered)
        return narrowed(asked, ranks[answered], k=k, vocab_size=size), answered

    def _references(self, queries: TokenQueries) -> References | None:
        """Ranks under the shadow models, and whose texts each was trained on."""
        if self.plan is None:
            return None
        texts, seed = self.inputs.texts, self.policy.seed
        counted, fitted, _ = texts.groups(seed=seed)
        self._shadows = train_planned(
            self.run,
            self.plan,
            self.options,
            self.inputs.target,
            texts.reference_of(counted, fitted),
            self.folder,
            cluster=self.cluster,
        )
        found = [
            self._ranks(
                shadow.directory, shadow.sha256, queries,
                f"reading the texts with shadow model {number} of {len(self._shadows)}",
            )
            for number, shadow in enumerate(self._shadows, 1)
        ]  # fmt: skip
        return References.of(found, [shadow.members for shadow in self._shadows], queries.names)

    def _ranks(self, model: Any, sha256: str, queries: TokenQueries, task: str) -> Ranks:
        """Ranks under a local model, which is loaded only if they are not in the store."""
        part, key = self.run.store.part("ranks/"), self.inputs.key(sha256, queries)
        if key not in part:
            load = load_seq2seq if self.inputs.target.source_vocabulary else load_model
            if isinstance(model, Path):
                model = load(model, device=self.run.device)
            with self.run.progress(task) as step:
                found = ranks_of(model, self.inputs.encoded, queries, progress=step)
            part[key] = {"ranks": found.ranks, "log_probs": known_of(found)}
        kept = part[key]
        return kept["ranks"], kept["log_probs"]

    def _statistics(self, answered: NDArray[np.bool_]) -> dict[str, object]:
        """Statistics of the queries about all users, who are treated alike."""
        count = int(answered.sum())
        counted = {"queries": count} if self.service is None else self.service.statistics
        shadows = self._shadows
        ratios = [one.outside.perplexity / one.inside.perplexity for one in shadows]
        return {
            "select": self.policy.how,
            "words_asked": len(answered),
            "words_unanswered": len(answered) - count,
            "shadow_perplexity_ratio": fmean(ratios) if ratios else None,
            "useless_shadows": sum(one.useless for one in shadows),
            **counted,
        }
