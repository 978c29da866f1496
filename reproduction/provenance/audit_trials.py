"""Trials of an audit: a target, shadow models and their ranks of users' words, each computed once.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.1 and Algorithm 1. The target is kept as a shadow model is: in a
folder that what decides it names, with what it scores on members' and others' text.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reproduction.provenance.audited_texts import (
    Audited,
    AuditedText,
    read_audited,
    read_other_domain,
)
from vestige.audits.membership.ranked_words import (
    RankedWords,
    Ranks,
    ShadowRanks,
    Texts,
    WordCounts,
    ranks_of,
)
from vestige.audits.membership.user_texts import FITTED, NonMembers
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode, encode_pairs
from vestige.data.token_queries import TokenQueries, token_queries
from vestige.data.users import disjoint_groups
from vestige.models.checkpoints import load_model, load_seq2seq
from vestige.monitor import SILENT, Monitor
from vestige.store import Store
from vestige.training.config import TrainingConfig
from vestige.training.shadow_jobs import (
    ShadowConfig,
    ShadowJob,
    ShadowPlan,
    other_shapes,
    shadow_jobs,
)
from vestige.training.shadows import Shadow, train_shadow, train_shadows


@dataclass(frozen=True, kw_only=True)
class AuditSetting:
    """Texts, models and shadows of one trial.

    Attributes:
        text: whose, and how much.
        model: the target's shape, and the shadows'.
        training: how both learn.
        shadows: how many.
        domain: the shadows' text, a dataset; None: users of the same corpus.
        other: shadows of the paper's other shapes, learning in the paper's other way (section
            4.3, unknown hyper-parameters); how they learn. None: as the target.
        seed: of the target and the shadows.
    """

    text: AuditedText
    model: ShadowConfig
    training: TrainingConfig
    shadows: int = 10
    domain: str | None = None
    other: TrainingConfig | None = None
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Observations:
    """Ranks of the words of all users under target and shadows.

    Attributes:
        words: of all of these, with counts of public text; the target shows every rank.
        members: places of the audited users whose text was learnt.
        others: places of those whose text was not.
        shadowed: places of the reference users, of whom each shadow has learnt about half.
        known: those of them that are fitted, and users that are compared.
        target: the finished target.
    """

    words: RankedWords
    members: tuple[int, ...]
    others: tuple[int, ...]
    shadowed: tuple[int, ...]
    known: NonMembers[int]
    target: Shadow

    @property
    def audited(self) -> tuple[int, ...]:
        """Members and others."""
        return (*self.members, *self.others)

    @property
    def ratio(self) -> float:
        """Perplexity on text that was not learnt over that on text that was."""
        return self.target.outside.perplexity / self.target.inside.perplexity

    def shown(self, k: int) -> RankedWords:
        """The words if the target shows k of its vocabulary."""
        return replace(self.words, k=min(k, self.words.vocab_size))

    def take(self, chosen: NDArray[np.bool_]) -> "Observations":
        """Some of the words."""
        return replace(self, words=self.words.take(chosen))


@dataclass(frozen=True)
class AuditTrial:
    """A setting with the places where its models and ranks are kept.

    Attributes:
        setting: which.
        directory: where models and ranks are kept.
        data: the folder of corpora.
    """

    setting: AuditSetting
    directory: Path
    data: Path | None

    @cached_property
    def texts(self) -> Audited:
        """The texts of the target's side."""
        return read_audited(self.setting.text, self.data)

    @property
    def reference(self) -> Corpus:
        """The shadows' text."""
        return self._non_members[0]

    @property
    def compared(self) -> Corpus:
        """Text of compared non-members."""
        return self._non_members[1]

    @cached_property
    def _non_members(self) -> tuple[Corpus, Corpus]:
        """Text of shadows and of the compared, of the target's domain or another one."""
        if self.setting.domain is None:
            return self.texts.reference, self.texts.compared
        text = self.setting.text
        sizes = (text.reference, text.compared)
        whole = read_other_domain(self.setting.domain, sum(sizes), text.each, self.data)
        groups = disjoint_groups(sorted(set(whole.users or ())), sizes, seed=0)
        owners = np.array(whole.users)
        first, second = (whole.take(np.flatnonzero(np.isin(owners, group))) for group in groups)
        return first, second

    @cached_property
    def target(self) -> ShadowJob:
        """The training of the target."""
        setting, texts = self.setting, self.texts
        plan = ShadowPlan(
            seed=setting.seed,
            count=1,
            task=setting.text.task,
            models=(setting.model,),
            training=setting.training,
        )
        (job,) = self._jobs(plan, texts.audited)
        training = replace(job.training, seed=setting.seed)
        return replace(job, members=texts.members, training=training)

    @cached_property
    def shadows(self) -> list[ShadowJob]:
        """The trainings of the shadows."""
        setting, task = self.setting, self.setting.text.task
        if setting.other is not None:
            plan = other_shapes(seed=setting.seed + 1, task=task, training=setting.other)
            step = max(1, len(plan.models) // setting.shadows)
            plan = replace(plan, count=setting.shadows, models=plan.models[::step])
        else:
            plan = ShadowPlan(
                seed=setting.seed + 1,
                count=setting.shadows,
                task=task,
                models=(setting.model,),
                training=setting.training,
            )
        return self._jobs(plan, self.reference)

    @property
    def jobs(self) -> list[ShadowJob]:
        """All trainings."""
        return [self.target, *self.shadows]

    def observe(
        self,
        altered: Callable[[Corpus], Corpus] = lambda corpus: corpus,
        *,
        more: Corpus | None = None,
        target: Shadow | None = None,
    ) -> Observations:
        """Ranks of everybody's words under target and shadows, which are trained first.

        Args:
            altered: what the auditor has in place of the audited users' true texts.
            more: texts of yet other users, to be asked as well.
            target: another one, that has learnt the same members.
        """
        texts = self.texts
        corpora = [altered(texts.audited), self.reference, self.compared]
        corpora += [] if more is None else [more]
        parts = [_bare(corpus) for corpus in corpora]
        trained, *shadows = train_shadows(self.jobs)
        target = target or trained
        asked = self._queries(Corpus.concatenate(parts))
        queried = [(part, self._queries(part)) for part in parts]
        ranks, *others = [self._ranks(model, queried) for model in (target, *shadows)]
        size = len(texts.vocabulary)
        place = {name: at for at, name in enumerate(asked.names)}
        shadowed, compared = (
            tuple(place[name] for name in sorted(set(corpus.users or ())))
            for corpus in (self.reference, self.compared)
        )
        return Observations(
            words=RankedWords(
                queries=asked,
                ranks=ranks[0],
                k=size,
                vocab_size=size,
                counts=self._counts,
                shadows=ShadowRanks.of(others, [one.members for one in shadows], asked.names),
            ),
            members=tuple(place[name] for name in texts.members),
            others=tuple(place[name] for name in texts.others),
            shadowed=shadowed,
            known=NonMembers(fitted=shadowed[:FITTED], compared=compared),
            target=target,
        )

    @cached_property
    def _counts(self) -> WordCounts:
        texts = self.texts
        tokens = encode(texts.spare, texts.vocabulary).tokens
        return WordCounts.of(tokens, len(texts.vocabulary))

    def _jobs(self, plan: ShadowPlan, corpus: Corpus) -> list[ShadowJob]:
        return shadow_jobs(
            plan,
            corpus,
            self.texts.vocabulary,
            self.directory / "models",
            source_vocabulary=self.texts.source_vocabulary,
        )

    def _encode(self, corpus: Corpus) -> Texts:
        texts = self.texts
        if texts.source_vocabulary is None:
            return encode(corpus, texts.vocabulary)
        return encode_pairs(corpus, texts.source_vocabulary, texts.vocabulary)

    def _queries(self, corpus: Corpus) -> TokenQueries:
        return token_queries(encode(corpus, self.texts.vocabulary), self.texts.vocabulary)

    def _ranks(self, shadow: Shadow, queried: Sequence[tuple[Corpus, TokenQueries]]) -> Ranks:
        """Ranks and log-probabilities of all words, one corpus after the other."""
        load = load_model if self.texts.source_vocabulary is None else load_seq2seq
        found = []
        with Store(self.directory / "ranks.sqlite") as store:
            for part, asked in queried:
                key = f"{shadow.sha256} {part.fingerprint()}"
                if key not in store:
                    model = load(shadow.directory / "model")
                    computed = ranks_of(model, self._encode(part), asked)
                    store[key] = dict(zip(("ranks", "log_probs"), computed, strict=True))
                found.append(store[key])
        ranks, log_probs = ([one[name] for one in found] for name in ("ranks", "log_probs"))
        return np.concatenate(ranks), np.concatenate(log_probs)


def train_all(
    trials: Iterable[AuditTrial],
    *,
    map_fn: Callable[..., Iterable[Shadow]] = map,
    monitor: Monitor = SILENT,
) -> None:
    """Train every target and shadow that is missing."""
    jobs = [job for trial in trials for job in trial.jobs]
    train_shadows(jobs, train=train_shadow, map_fn=map_fn, say=monitor.log)


def _bare(corpus: Corpus) -> Corpus:
    """Texts, users and sources: labels decide nothing."""
    wanted = [name for name in ("text", "user", "source") if name in corpus.table.column_names]
    return Corpus(corpus.table.select(wanted))
