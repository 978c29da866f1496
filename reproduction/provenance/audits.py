"""The models of an audit of users, and ranks of all users' words under them.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.1 and Algorithm 1. The target is trained as a shadow model is, with its
scores on members' and others' text; shapes and training are the paper's (appendix B.1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from reproduction.papers import Row
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
    Ranks,
    ShadowRanks,
    WordCounts,
    ranks_of,
)
from vestige.audits.membership.user_texts import MAX_FITTED, NonMembers
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode, encode_pairs
from vestige.data.token_queries import TokenQueries, token_queries
from vestige.data.vocabulary import Vocabulary
from vestige.models.checkpoints import load_model, load_seq2seq
from vestige.training.presets import preset_of
from vestige.training.shadow_jobs import (
    ShadowJob,
    ShadowPlan,
    other_shapes,
    shadow_jobs,
)
from vestige.training.shadows import Shadow, train_shadows


@dataclass(frozen=True, kw_only=True)
class Audit:
    """EncodedTexts, models and shadows of one audit.

    Attributes:
        name: in tables.
        text: whose, and how much.
        epochs: of target and shadows.
        shadows: how many.
        domain: the shadows' text, a dataset; None: users of the same corpus.
        precision: of the trainings.
        other_epochs: of shadows with the paper's other shapes and training (section 4.3, unknown
            hyper-parameters). None: shadows equal the target.
    """

    name: str
    text: AuditedText
    epochs: int
    shadows: int = 10
    domain: str | None = None
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    other_epochs: int | None = None

    @property
    def target_plan(self) -> ShadowPlan:
        """The model and training of the target."""
        default = preset_of(self.text.task)
        training = replace(
            default.training, epochs=self.epochs, keep="last", precision=self.precision
        )
        return ShadowPlan(
            seed=0, count=1, task=self.text.task, models=(default.model,), training=training
        )

    @property
    def shadow_plan(self) -> ShadowPlan:
        """The models and trainings of the shadows."""
        plan = replace(self.target_plan, seed=1, count=self.shadows)
        if self.other_epochs is None:
            return plan
        sgd: Any = {"optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9}
        training = replace(plan.training, epochs=self.other_epochs, **sgd)
        ten = other_shapes(seed=1, task=self.text.task, training=training)
        step = max(1, len(ten.models) // self.shadows)
        return replace(ten, count=self.shadows, models=ten.models[::step])


@dataclass(frozen=True)
class Weights:
    """A model, identified by the SHA-256 of its weights."""

    sha256: str
    model: Path = field(compare=False)


@dataclass(frozen=True, kw_only=True)
class Observations:
    """Ranks of the words of all users under target and shadows.

    Attributes:
        words: of all these users, with counts of public text; the target shows every rank.
        members, others: indices of the audited users, in and not in the target's training.
        shadowed: indices of the reference users; each shadow was trained on about half of them.
        known: the fitted of these, and the users who are compared.
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

    def shown(self, k: int) -> RankedWords:
        """The words if the target shows k words of its vocabulary."""
        return replace(self.words, k=min(k, self.words.vocab_size))

    def take(self, mask: NDArray[np.bool_]) -> "Observations":
        """Some of the words."""
        return replace(self, words=self.words.take(mask))


@dataclass(frozen=True)
class AuditTrial:
    """An audit and the work folder of its models and ranks."""

    audit: Audit
    work: Work

    @cached_property
    def texts(self) -> Audited:
        """The texts of the target's domain."""
        return read_audited(self.audit.text, self.work.data)

    @cached_property
    def non_members(self) -> tuple[Corpus, Corpus]:
        """Text of the reference and of the compared users, of the target's or another domain."""
        if self.audit.domain is None:
            return self.texts.reference, self.texts.compared
        return read_other_domain(self.audit.text, self.audit.domain, self.work.data)

    @cached_property
    def target_job(self) -> ShadowJob:
        """The training of the target."""
        (job,) = self._jobs(self.audit.target_plan, self.texts.audited)
        return replace(job, members=self.texts.members, training=replace(job.training, seed=0))

    @property
    def target(self) -> Shadow:
        """The target, trained if it is not in the work folder."""
        (target,) = train_shadows([self.target_job], say=self.work.monitor.log)
        return target

    def model(self) -> Any:
        """The target's model."""
        return load_any(self.target.directory / "model", self.texts.source_vocabulary)

    def observe(
        self,
        change: Callable[[Corpus], Corpus] | None = None,
        *,
        more: Corpus | None = None,
        target: Shadow | None = None,
    ) -> Observations:
        """Ranks of all users' words under target and shadows, which are trained first.

        Args:
            change: of the audited users' texts; the auditor has the changed texts.
            more: further texts to query.
            target: another one, trained on the same members.
        """
        texts, (reference, compared) = self.texts, self.non_members
        audited = texts.audited if change is None else change(texts.audited)
        parts = [
            _without_labels(corpus)
            for corpus in (audited, reference, compared, more)
            if corpus is not None
        ]
        jobs = [self.target_job, *self._jobs(self.audit.shadow_plan, reference)]
        _, *shadows = train_shadows(jobs, map_fn=self.work.map_fn, say=self.work.monitor.log)
        target = target or self.target
        target_ranks, *shadow_ranks = [self._ranks(parts, model) for model in (target, *shadows)]
        vocabulary, size = texts.vocabulary, len(texts.vocabulary)
        queries = token_queries(encode(Corpus.concatenate(parts), vocabulary), vocabulary)
        index = {name: number for number, name in enumerate(queries.names)}
        shadowed = tuple(index[name] for name in sorted(set(reference.users or ())))
        return Observations(
            words=RankedWords(
                queries=queries,
                ranks=target_ranks[0],
                k=size,
                vocab_size=size,
                counts=WordCounts.of(encode(texts.spare, vocabulary).tokens, size),
                shadows=ShadowRanks.of(
                    shadow_ranks, [shadow.members for shadow in shadows], queries.names
                ),
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

    def _jobs(self, plan: ShadowPlan, corpus: Corpus) -> list[ShadowJob]:
        texts, folder = self.texts, self.work.out / "models"
        sources = texts.source_vocabulary
        return shadow_jobs(plan, corpus, texts.vocabulary, folder, source_vocabulary=sources)

    def _ranks(self, parts: Sequence[Corpus], model: Shadow) -> Ranks:
        """Ranks and log-probabilities of all words, one corpus after the other."""
        weights = Weights(model.sha256, model.directory / "model")
        vocabularies = self.texts.vocabulary, self.texts.source_vocabulary
        results = self.work.all(word_ranks(weights, part, *vocabularies) for part in parts)
        ranks, log_probs = (
            np.concatenate([result.value[name] for result in results])
            for name in ("ranks", "log_probs")
        )
        return ranks, log_probs


@stage()
def word_ranks(
    weights: Weights,
    corpus: Corpus,
    vocabulary: Vocabulary,
    source_vocabulary: Vocabulary | None,
) -> Row:
    """Ranks and log-probabilities of every word of a corpus under a model."""
    _, texts, queries = query_texts(corpus, vocabulary, source_vocabulary)
    ranks, log_probs = ranks_of(load_any(weights.model, source_vocabulary), texts, queries)
    return {"ranks": ranks, "log_probs": log_probs}


def query_texts(
    corpus: Corpus, vocabulary: Vocabulary, source_vocabulary: Vocabulary | None
) -> tuple[EncodedCorpus, EncodedTexts, TokenQueries]:
    """The encoded texts, the same with their sources (if any), and a query per word."""
    targets = encode(corpus, vocabulary)
    texts: EncodedTexts = targets
    if source_vocabulary is not None:
        texts = encode_pairs(corpus, source_vocabulary, vocabulary)
    return targets, texts, token_queries(targets, vocabulary)


def perplexity_ratio(target: Shadow) -> float:
    """Perplexity on others' text over that on members' text."""
    return target.outside.perplexity / target.inside.perplexity


def load_any(folder: Path, source_vocabulary: Vocabulary | None) -> Any:
    """A model of next words; an encoder-decoder if there is a vocabulary of sources."""
    return load_model(folder) if source_vocabulary is None else load_seq2seq(folder)


def _without_labels(corpus: Corpus) -> Corpus:
    """EncodedTexts, users and sources; labels would only change the key of the stage."""
    names = [name for name in ("text", "user", "source") if name in corpus.table.column_names]
    return Corpus(corpus.table.select(names))
