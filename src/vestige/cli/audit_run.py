"""The steps of an audit of users: shadow models, ranks, evidence; each is kept once it is done."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from vestige.cli.audit_asking import AuditInputs, Choice
from vestige.cli.audit_directory import RANKS, RankCache
from vestige.cli.audit_service import Patience, Service
from vestige.cli.audit_shadows import WantedShadows
from vestige.cli.audit_target import Target
from vestige.cli.audit_texts import AuditTexts
from vestige.cli.terminal import progress, say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vestige.attacks.membership.membership_scores import Answers
    from vestige.attacks.membership.reference_models import References
    from vestige.attacks.membership.user_membership import UserAudit
    from vestige.data.token_queries import TokenQueries
    from vestige.training.shadow_jobs import ShadowPlan
    from vestige.training.shadows import Shadow

FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class Audit:
    """An audit that can be run.

    Attributes:
        asking: of what, and of whom.
        choice: which words.
        wanted: what was said of shadow models.
        plan: what they are; None for none.
        service: the target, where it is a callable.
        out: DIR.
        shadow_dir: where shadow models are kept.
    """

    asking: AuditInputs
    choice: Choice
    wanted: WantedShadows
    plan: "ShadowPlan | None"
    service: Service | None
    out: Path
    shadow_dir: Path

    @classmethod
    def prepared(
        cls,
        target: Target,
        parts: AuditTexts,
        choice: Choice,
        wanted: WantedShadows,
        patience: Patience,
        *,
        out: Path,
        shadow_dir: Path,
        show_secrets: bool,
    ) -> "Audit":
        """Encode, and refuse what cannot come to anything, before anything is trained or asked.

        Raises:
            DataError: users, words or the budget are too few.
        """
        asking, service = AuditInputs.of(target, parts, seed=choice.seed), None
        asking.check(choice)
        plan = wanted.plan(target)
        if target.ask is not None:
            service = Service(asking, choice, patience, out, show_secrets=show_secrets)
            if choice.how == "informative":
                service.afford(asking.asked, exact=False)
            else:
                service.afford(asking.asked.take(_chosen(asking, choice)), exact=True)
        return cls(
            asking=asking, choice=choice, wanted=wanted, plan=plan, service=service, out=out,
            shadow_dir=shadow_dir,
        )  # fmt: skip

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What decides the result; hashes in place of texts and weights."""
        target, parts = self.asking.target, self.asking.parts
        settings = {"shadows": None if self.plan is None else _described(self.plan)}
        return {
            "format": FORMAT,
            "model": {k: v for k, v in target.recorded.items() if k != "path" or target.ask},
            "texts": parts.texts.fingerprint(),
            "reference": parts.reference.fingerprint(),
            "settings": {**asdict(self.choice), "task": target.task, **settings},
        }

    def run(self) -> "UserAudit":
        """Train, ask, compare.

        Raises:
            VestigeError: a training, the service or the cluster fails.
        """
        asked, references = self.asking.asked, None
        early = self.choice.how != "informative"
        if early:
            asked = asked.take(_chosen(self.asking, self.choice))
            answers, answered = self._answers(asked)  # first: what cannot be asked is told at once
            asked = answers.asked
        elif self.service is not None:
            self.service.probe(asked)
        shadows = self._trained()
        if shadows:
            references = self._references(shadows, asked)
        if not early:
            mask = _chosen(self.asking, self.choice, references)
            asked = asked.take(mask)
            if self.service is not None:
                self.service.afford(asked, exact=True)
            answers, answered = self._answers(asked)
            if references is not None:
                references = references.of_words(mask.nonzero()[0][answered])
        return self._judged(answers, references, shadows, unanswered=int((~answered).sum()))

    def _judged(
        self,
        answers: "Answers",
        references: "References | None",
        shadows: "list[Shadow]",
        *,
        unanswered: int,
    ) -> "UserAudit":
        from vestige.attacks.membership.user_membership import audit_users

        if useless := sum(one.useless for one in shadows):
            say(
                f"{useless} of {len(shadows)} shadow models predict no better than word "
                "frequencies: what they expect of a word is little more than how common it is. "
                "Give them more --epochs, another --learning-rate or more --reference text"
            )
        say(f"Comparing {len(answers.asked):,} words")
        audit = audit_users(
            answers,
            self.asking.counts,
            audited=self.asking.audited,
            known=self.asking.known,
            references=references,
            rate=self.choice.rate,
            seed=self.choice.seed,
        )
        return replace(audit, account=self._account(len(answers.asked), unanswered, shadows))

    def _account(
        self, answered: int, unanswered: int, shadows: "list[Shadow]"
    ) -> Mapping[str, object]:
        """What asking came to: of everybody's words, since all are asked alike."""
        counted = {"queries": answered} if self.service is None else self.service.account
        ratios = [one.outside.perplexity / one.inside.perplexity for one in shadows]
        return {
            "select": self.choice.how,
            "words_asked": answered + unanswered,
            "words_unanswered": unanswered,
            "shadow_perplexity_ratio": fmean(ratios) if ratios else None,
            "useless_shadows": sum(one.useless for one in shadows),
            **counted,
        }

    def _answers(self, asked: "TokenQueries") -> "tuple[Answers, NDArray[np.bool_]]":
        """What the target shows, of words that it answered; and (w,) which those are."""
        import numpy as np

        from vestige.attacks.membership.query_answers import narrowed

        target, k = self.asking.target, self.choice.k
        if self.service is None:
            recorded = str(target.recorded["sha256"])
            ranks, _ = self._ranks(target.model, recorded, asked, "asking the model")
            answered = np.ones(len(asked), dtype=bool)
        else:
            ranks = self.service.ranks(asked)
            answered = ranks > 0
            if not answered.all():
                say(f"{int((~answered).sum())} of {len(asked)} words were not answered")
        size = max(target.vocab_size, k)
        kept = asked.take(answered)
        return narrowed(kept, ranks[answered], k=k, vocab_size=size), answered

    def _trained(self) -> "list[Shadow]":
        if self.plan is None:
            return []
        parts = self.asking.parts
        counted, fitted, _ = parts.groups(seed=self.choice.seed)
        taught = parts.reference_of(counted, fitted)
        return self.wanted.train(self.plan, self.asking.target, taught, self.shadow_dir)

    def _references(self, shadows: "list[Shadow]", asked: "TokenQueries") -> "References":
        """What the shadow models say of the words, and whose text each has learnt."""
        import numpy as np

        from vestige.attacks.membership.reference_models import References
        from vestige.models.checkpoints import load_model, load_seq2seq

        load: Any = load_model if self.asking.target.source_vocabulary is None else load_seq2seq
        found, seen = [], []
        for number, shadow in enumerate(shadows, 1):
            task = f"asking shadow model {number} of {len(shadows)}"
            found.append(
                self._ranks(
                    lambda shadow=shadow: load(shadow.directory, device=self.wanted.device),
                    shadow.sha256,
                    asked,
                    task,
                )
            )
            learnt = set(shadow.members)
            seen.append([name in learnt for name in asked.names])
        return References(
            ranks=np.stack([ranks for ranks, _ in found]),
            log_probs=np.stack([log_probs for _, log_probs in found]),
            seen=np.array(seen, dtype=bool),
        )

    def _ranks(
        self, model: Any, sha256: str, asked: "TokenQueries", task: str
    ) -> "tuple[NDArray[np.int32], NDArray[np.float32]]":
        """Ranks under a model of ours, or one that a function loads; kept."""
        from vestige.attacks.membership.query_answers import ranks_of

        def make() -> Any:
            loaded = model if hasattr(model, "vocabulary") else model()
            with progress(task) as bar:
                return ranks_of(loaded, self.asking.texts, asked, progress=bar)

        return RankCache(self.out / RANKS).of(sha256, self.asking, asked, make)


def _chosen(
    asking: AuditInputs, choice: Choice, references: "References | None" = None
) -> "NDArray[np.bool_]":
    return choice.mask(asking.asked, choice.worth(asking.asked, asking.counts, references))


def _described(plan: "ShadowPlan") -> dict[str, Any]:
    models = [{"name": type(model).__name__, **asdict(model)} for model in plan.models]
    return {**asdict(plan), "models": models}
