"""Steps of an audit of users: shadow models, ranks, scores; each is kept once it is done."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.membership.membership_scores import Answers
from vestige.attacks.membership.query_answers import narrowed, ranks_of
from vestige.attacks.membership.query_policy import QueryPolicy
from vestige.attacks.membership.reference_models import References
from vestige.attacks.membership.user_audit import UserAudit
from vestige.attacks.membership.user_membership import membership_audit
from vestige.data.encoded_pairs import EncodedPairs
from vestige.data.token_queries import TokenQueries
from vestige.models.checkpoints import load_model, load_seq2seq
from vestige.models.rank_cache import RankCache, Ranks
from vestige.monitor import Monitor
from vestige.training.shadow_jobs import ShadowPlan
from vestige.training.shadows import Shadow
from vestige.workflows.audit_directory import RANKS
from vestige.workflows.audit_inputs import AuditInputs
from vestige.workflows.audit_options import ShadowSettings
from vestige.workflows.audit_service import Service
from vestige.workflows.audit_shadows import described, train_planned
from vestige.workflows.user_text_checks import require_finite, text_checks

FORMAT = 3


@dataclass(frozen=True, kw_only=True)
class Audit:
    """An audit that can be run."""

    inputs: AuditInputs
    policy: QueryPolicy
    rate: float
    settings: ShadowSettings
    plan: ShadowPlan | None
    service: Service | None
    out: Path
    shadow_dir: Path
    device: str
    monitor: Monitor

    def check_budget(self) -> None:
        """Refuse a budget that cannot be enough, before anything is trained or queried."""
        if self.service is None:
            return
        if self.policy.how == "informative":
            self.service.afford_most(self.inputs.asked)
        else:
            self.service.afford(self.inputs.asked.take(self.inputs.chosen(self.policy)))

    @property
    def recorded(self) -> dict[str, object]:
        """What a run records of the models."""
        return {"target": self.inputs.target.recorded}

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What decides the result; hashes in place of texts and weights."""
        target, parts, policy = self.inputs.target, self.inputs.parts, self.policy
        return {
            "format": FORMAT,
            "model": {k: v for k, v in target.recorded.items() if k != "path" or target.ask},
            "texts": parts.texts.fingerprint(),
            "reference": parts.reference.fingerprint(),
            "settings": {
                "how": policy.how,
                "queries": policy.queries,
                "calls": policy.calls,
                "k": policy.k,
                "rate": self.rate,
                "seed": policy.seed,
                "task": target.task,
                "shadows": None if self.plan is None else described(self.plan),
            },
        }

    def run(self) -> UserAudit:
        """Train, query, compare."""
        asked, references = self.inputs.asked, None
        early = self.policy.how != "informative"
        if early:
            asked = asked.take(self.inputs.chosen(self.policy))
            answers, answered = self._answers(asked)  # first: a failure is told at once
            asked = answers.asked
        elif self.service is not None:
            self.service.probe(asked)
        shadows = self._trained()
        if shadows:
            references = self._references(shadows, asked)
        if not early:
            mask = self.inputs.chosen(self.policy, references)
            asked = asked.take(mask)
            if self.service is not None:
                self.service.afford(asked)
            answers, answered = self._answers(asked)
            if references is not None:
                references = references.of_words(mask.nonzero()[0][answered])
        self.monitor.log(f"Comparing {len(answers.asked):,} words")
        audit = membership_audit(
            answers,
            self.inputs.counts,
            audited=self.inputs.audited,
            known=self.inputs.known,
            references=references,
            rate=self.rate,
            seed=self.policy.seed,
        )
        checks = text_checks(
            self.inputs,
            np.unique(answers.asked.texts),
            seed=self.policy.seed,
            answered=float(answered.mean()),
        )
        return replace(
            audit,
            statistics=self._statistics(answered, shadows),
            checks=(*audit.checks, *checks),
        )

    def _statistics(
        self, answered: NDArray[np.bool_], shadows: list[Shadow]
    ) -> Mapping[str, object]:
        """Statistics of queries about everybody, since all are treated alike."""
        count = int(answered.sum())
        counted = {"queries": count} if self.service is None else self.service.statistics
        ratios = [one.outside.perplexity / one.inside.perplexity for one in shadows]
        return {
            "select": self.policy.how,
            "words_asked": len(answered),
            "words_unanswered": len(answered) - count,
            "shadow_perplexity_ratio": fmean(ratios) if ratios else None,
            "useless_shadows": sum(one.useless for one in shadows),
            **counted,
        }

    def _answers(self, asked: TokenQueries) -> tuple[Answers, NDArray[np.bool_]]:
        """What the target shows, of words that it answered; and (w,) which those are."""
        target, k = self.inputs.target, self.policy.k
        if self.service is None:
            sha256 = str(target.recorded["sha256"])
            ranks, log_probs = self._ranks(lambda: target.model, sha256, asked, "asking the model")
            require_finite({"the model": log_probs})
            answered = np.ones(len(asked), dtype=bool)
        else:
            ranks = self.service.ranks(asked)
            answered = ranks > 0
            if not answered.all():
                self.monitor.log(
                    f"{int((~answered).sum())} of {len(asked)} words were not answered"
                )
        size = max(target.vocab_size, k)
        return narrowed(asked.take(answered), ranks[answered], k=k, vocab_size=size), answered

    def _trained(self) -> list[Shadow]:
        if self.plan is None:
            return []
        parts = self.inputs.parts
        counted, fitted, _ = parts.groups(seed=self.policy.seed)
        shadows = train_planned(
            self.plan,
            self.settings,
            self.inputs.target,
            parts.reference_of(counted, fitted),
            self.shadow_dir,
            device=self.device,
            monitor=self.monitor,
        )
        if useless := sum(one.useless for one in shadows):
            self.monitor.log(
                f"{useless} of {len(shadows)} shadow models predict no better than word "
                "frequencies: what they expect of a word is little more than how common it is. "
                "Give them more --epochs, another --learning-rate or more --reference text"
            )
        return shadows

    def _references(self, shadows: list[Shadow], asked: TokenQueries) -> References:
        """What the shadow models say of the words, and whose text each has learnt."""
        load: Any = load_model if self.inputs.target.source_vocabulary is None else load_seq2seq

        def ranks(number: int, shadow: Shadow) -> Ranks:
            return self._ranks(
                lambda: load(shadow.directory, device=self.device),
                shadow.sha256,
                asked,
                f"asking shadow model {number} of {len(shadows)}",
            )

        found = [ranks(number, shadow) for number, shadow in enumerate(shadows, 1)]
        return References.of(found, [shadow.members for shadow in shadows], asked.names)

    def _ranks(self, load: Callable[[], Any], sha256: str, asked: TokenQueries, task: str) -> Ranks:
        """Ranks under a model of ours, loaded where they are not kept."""

        def compute() -> Any:
            with self.monitor.progress(task) as step:
                return ranks_of(load(), self.inputs.texts, asked, progress=step)

        cache = RankCache(self.out / RANKS, self.monitor.log)
        return cache.get(rank_key(sha256, self.inputs, asked), len(asked), compute)


def rank_key(sha256: str, inputs: AuditInputs, asked: TokenQueries) -> str:
    """The name of cached ranks: a hash of weights, texts and words."""
    texts, digest = inputs.texts, hashlib.sha256(sha256.encode())
    targets = texts.targets if isinstance(texts, EncodedPairs) else texts
    parts: list[NDArray[Any]] = [targets.tokens, targets.offsets, asked.texts, asked.positions]
    if isinstance(texts, EncodedPairs):
        parts += [texts.sources.tokens, texts.sources.offsets]
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part.tobytes())
    return digest.hexdigest()[:16]
