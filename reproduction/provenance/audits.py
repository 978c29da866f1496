"""The models of an audit of users, and ranks of everybody's words under them.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.1 and Algorithm 1. The target is trained as a shadow model is, with its
scores on members' and others' text; shapes and training are the paper's (appendix B.1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
from reproduction.stages import Work, stage
from vestige.audits.membership.ranked_words import (
    EncodedTexts,
    RankedWords,
    ShadowRanks,
    WordCounts,
    ranks_of,
)
from vestige.audits.membership.user_texts import MAX_FITTED, NonMembers
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode, encode_pairs
from vestige.data.token_queries import token_queries
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import load_model, load_seq2seq
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import Evaluation
from vestige.training.presets import Preset, preset, preset_of
from vestige.training.shadow_jobs import (
    ShadowConfig,
    ShadowJob,
    ShadowPlan,
    Task,
    other_shapes,
    shadow_jobs,
)
from vestige.training.shadows import train_shadows


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Texts, models and shadows of one audit.

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


@dataclass(frozen=True)
class Weights:
    """A model, by the SHA-256 of its weights."""

    sha256: str
    model: Path = field(compare=False)


@dataclass(frozen=True)
class Target:
    """A trained target, with its scores on members' and on others' text."""

    weights: Weights
    inside: Evaluation
    outside: Evaluation


@dataclass(frozen=True, kw_only=True)
class Observations:
    """Ranks of the words of all users under target and shadows.

    Attributes:
        words: of all of these, with counts of public text; the target shows every rank.
        members, others: indices of the audited users whose text was learnt, and was not.
        shadowed: indices of the reference users, of whom each shadow has learnt about half.
        known: those of them that are fitted, and users that are compared.
        target: the finished target.
    """

    words: RankedWords
    members: tuple[int, ...]
    others: tuple[int, ...]
    shadowed: tuple[int, ...]
    known: NonMembers[int]
    target: Target

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
    """An audit and where its models and ranks are kept."""

    audit: Audit
    work: Work

    @cached_property
    def texts(self) -> Audited:
        """The texts of the target's side."""
        return read_audited(self.audit.text, self.work.data)

    @cached_property
    def non_members(self) -> tuple[Corpus, Corpus]:
        """Text of shadows and of the compared, of the target's domain or another one."""
        if self.audit.domain is None:
            return self.texts.reference, self.texts.compared
        return read_other_domain(self.audit.text, self.audit.domain, self.work.data)

    @cached_property
    def target_job(self) -> ShadowJob:
        """The training of the target."""
        (job,) = self._jobs(self._plan(seed=0, count=1), self.texts.audited)
        return replace(job, members=self.texts.members, training=replace(job.training, seed=0))

    @cached_property
    def shadow_jobs(self) -> list[ShadowJob]:
        """The trainings of the shadows."""
        audit = self.audit
        plan = self._plan(seed=1, count=audit.shadows)
        if audit.other is not None:
            every = other_shapes(seed=1, task=audit.text.task, training=audit.other)
            step = max(1, len(every.models) // audit.shadows)
            plan = replace(every, count=audit.shadows, models=every.models[::step])
        return self._jobs(plan, self.non_members[0])

    @property
    def target(self) -> Target:
        """The target, trained if it is not there."""
        (done,) = train_shadows([self.target_job], say=self.work.monitor.log)
        return Target(Weights(done.sha256, done.directory / "model"), done.inside, done.outside)

    def observe(
        self,
        altered: Callable[[Corpus], Corpus] = lambda corpus: corpus,
        *,
        more: Corpus | None = None,
        target: Target | None = None,
    ) -> Observations:
        """Ranks of everybody's words under target and shadows, which are trained first.

        Args:
            altered: what the auditor has in place of the audited users' true texts.
            more: texts of yet other users, to be queried as well.
            target: another one, that has learnt the same members.
        """
        texts, (reference, compared) = self.texts, self.non_members
        corpora = [altered(texts.audited), reference, compared, *([] if more is None else [more])]
        parts = [_without_labels(corpus) for corpus in corpora]
        jobs = [self.target_job, *self.shadow_jobs]
        _, *shadows = train_shadows(jobs, map_fn=self.work.map_fn, say=self.work.monitor.log)
        target = target or self.target
        ranks, *others = [
            self._ranks(parts, weights)
            for weights in (
                target.weights,
                *(Weights(shadow.sha256, shadow.directory / "model") for shadow in shadows),
            )
        ]
        everything = encode(Corpus.concatenate(parts), texts.vocabulary)
        queries = token_queries(everything, texts.vocabulary)
        index = {name: at for at, name in enumerate(queries.names)}
        size = len(texts.vocabulary)
        shadowed = tuple(index[name] for name in sorted(set(reference.users or ())))
        return Observations(
            words=RankedWords(
                queries=queries,
                ranks=ranks[0],
                k=size,
                vocab_size=size,
                counts=self._counts,
                shadows=ShadowRanks.of(others, [one.members for one in shadows], queries.names),
            ),
            members=tuple(index[name] for name in texts.members),
            others=tuple(index[name] for name in texts.others),
            shadowed=shadowed,
            known=NonMembers(
                fitted=shadowed[:MAX_FITTED],
                compared=tuple(index[name] for name in sorted(set(compared.users or ()))),
            ),
            target=target,
        )

    @cached_property
    def _counts(self) -> WordCounts:
        texts = self.texts
        return WordCounts.of(encode(texts.spare, texts.vocabulary).tokens, len(texts.vocabulary))

    def _plan(self, *, seed: int, count: int) -> ShadowPlan:
        audit = self.audit
        return ShadowPlan(
            seed=seed,
            count=count,
            task=audit.text.task,
            models=(audit.model,),
            training=audit.training,
        )

    def _jobs(self, plan: ShadowPlan, corpus: Corpus) -> list[ShadowJob]:
        texts = self.texts
        return shadow_jobs(
            plan,
            corpus,
            texts.vocabulary,
            self.work.out / "models",
            source_vocabulary=texts.source_vocabulary,
        )

    def _ranks(
        self, parts: Sequence[Corpus], weights: Weights
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Ranks and log-probabilities of all words, one corpus after the other."""
        vocabularies = self.texts.vocabulary, self.texts.source_vocabulary
        found = self.work.all(word_ranks(weights, part, *vocabularies) for part in parts)
        ranks, log_probs = (
            np.concatenate([one.value[name] for one in found]) for name in ("ranks", "log_probs")
        )
        return ranks, log_probs


@stage()
def word_ranks(
    weights: Weights,
    corpus: Corpus,
    vocabulary: WordVocabulary,
    source_vocabulary: WordVocabulary | None,
) -> dict[str, Any]:
    """Ranks and log-probabilities of every word of a corpus under a model."""
    targets = encode(corpus, vocabulary)
    texts: EncodedTexts = targets
    load: Callable[..., Any] = load_model
    if source_vocabulary is not None:
        texts, load = encode_pairs(corpus, source_vocabulary, vocabulary), load_seq2seq
    queries = token_queries(targets, vocabulary)
    ranks, log_probs = ranks_of(load(weights.model), texts, queries)
    return {"ranks": ranks, "log_probs": log_probs}


def _without_labels(corpus: Corpus) -> Corpus:
    """Texts, users and sources: labels decide nothing."""
    wanted = [name for name in ("text", "user", "source") if name in corpus.table.column_names]
    return Corpus(corpus.table.select(wanted))
