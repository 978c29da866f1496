"""Trials of an audit: a target, shadow models and their ranks of users' words, each computed once.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.1 and Algorithm 1. The target is kept as a shadow model is: in a
folder that what decides it names, with what it scores on members' and others' text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

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
from vestige.store import Store
from vestige.training.config import TrainingConfig
from vestige.training.presets import Preset, preset, preset_of
from vestige.training.shadow_jobs import (
    ShadowConfig,
    ShadowJob,
    ShadowPlan,
    Task,
    other_shapes,
    shadow_jobs,
)
from vestige.training.shadows import Shadow, train_shadows


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Texts, models and shadows of one audit; shapes and training are the paper's (appendix B.1).

    Attributes:
        name: in tables.
        text: whose, and how much.
        epochs: of target and shadows.
        shadows: how many.
        domain: the shadows' text, a dataset; None: users of the same corpus.
        precision: of the trainings.
        other_epochs: shadows of the paper's other shapes, learning in the paper's other way
            (section 4.3, unknown hyper-parameters), for so many epochs. None: as the target.
    """

    name: str
    text: AuditedText
    epochs: int
    shadows: int = 10
    domain: str | None = None
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    other_epochs: int | None = None

    @property
    def model(self) -> ShadowConfig:
        """The target's shape, and the shadows'."""
        return cast("ShadowConfig", preset_for(self.text.task).model)

    @property
    def training(self) -> TrainingConfig:
        """How the target learns."""
        usual = preset_for(self.text.task).training
        return replace(usual, epochs=self.epochs, keep="last", precision=self.precision)

    @property
    def other(self) -> TrainingConfig | None:
        """How shadows of other shapes learn."""
        if self.other_epochs is None:
            return None
        way = {"optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9}
        return replace(self.training, epochs=self.other_epochs, **way)  # type: ignore[arg-type]


def preset_for(task: Task) -> Preset[Any]:
    """Shape and training for next words, translation or dialogue."""
    return preset("next-word") if task == "next-word" else preset_of(task)


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
    """An audit with the places where its models and ranks are kept.

    Attributes:
        audit: which.
        directory: where models and ranks are kept.
        data: the folder of corpora.
    """

    audit: Audit
    directory: Path
    data: Path | None

    @cached_property
    def texts(self) -> Audited:
        """The texts of the target's side."""
        return read_audited(self.audit.text, self.data)

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
        if self.audit.domain is None:
            return self.texts.reference, self.texts.compared
        text = self.audit.text
        sizes = (text.reference, text.compared)
        whole = read_other_domain(self.audit.domain, sum(sizes), text.each, self.data)
        groups = disjoint_groups(sorted(set(whole.users or ())), sizes, seed=0)
        owners = np.array(whole.users)
        first, second = (whole.take(np.flatnonzero(np.isin(owners, group))) for group in groups)
        return first, second

    @cached_property
    def target(self) -> ShadowJob:
        """The training of the target."""
        (job,) = self._jobs(self._plan(seed=0, count=1), self.texts.audited)
        return replace(job, members=self.texts.members, training=replace(job.training, seed=0))

    @cached_property
    def shadows(self) -> list[ShadowJob]:
        """The trainings of the shadows."""
        audit = self.audit
        plan = self._plan(seed=1, count=audit.shadows)
        if audit.other is not None:
            every = other_shapes(seed=1, task=audit.text.task, training=audit.other)
            step = max(1, len(every.models) // audit.shadows)
            plan = replace(every, count=audit.shadows, models=every.models[::step])
        return self._jobs(plan, self.reference)

    def _plan(self, *, seed: int, count: int) -> ShadowPlan:
        audit = self.audit
        return ShadowPlan(
            seed=seed,
            count=count,
            task=audit.text.task,
            models=(audit.model,),
            training=audit.training,
        )

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


def _bare(corpus: Corpus) -> Corpus:
    """Texts, users and sources: labels decide nothing."""
    wanted = [name for name in ("text", "user", "source") if name in corpus.table.column_names]
    return Corpus(corpus.table.select(wanted))
