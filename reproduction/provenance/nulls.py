"""Null of an audit: p-values of users who were never in the training data.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD, has no
p-values; this is the null of ours. A whole audit is repeated, as `vestige membership` runs it.
Every repetition samples members, audited non-members, the parts of the other non-members and the
users of every shadow; target and shadows are trained, words counted, scores learnt, texts cut.

Users who are audited together are compared with the same non-members, which makes their p-values
dependent: the unit of every interval is the repetition. Users have different amounts of text; the
share of small p-values is given by quarters of it, with the largest share that p-values of that
many compared users can reach.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduction.papers import Row
from reproduction.provenance.audited_texts import (
    TASKS,
    documents_by,
    read_users_texts,
)
from reproduction.provenance.audits import load_any, query_texts
from reproduction.stages import Work, stage
from reproduction.texts import documents_of, of_length, vocabulary_of
from vestige.audits.membership.ranked_words import (
    RankedWords,
    ShadowRanks,
    WordCounts,
    ranks_of,
    score_words,
)
from vestige.audits.membership.user_audit import judge_users
from vestige.audits.membership.user_texts import NonMembers
from vestige.data.corpus import Corpus
from vestige.data.encoded import sources_of
from vestige.data.users import disjoint_groups, users_with
from vestige.metrics.estimates import columns, mean
from vestige.training.presets import preset_of
from vestige.training.shadow_jobs import ShadowJob, ShadowPlan, shadow_jobs
from vestige.training.shadows import train_shadow

LEVELS = (0.01, 0.05)
QUARTERS = 4


@dataclass(frozen=True, kw_only=True)
class NullAudits:
    """Whole audits, repeated with other users.

    Attributes:
        dataset: of `audited_texts.TASKS`.
        members, audited, known: users in the target's training, audited users who are not, and
            non-members for all their parts.
        fewest, most: texts of a user.
        shortest, longest: words of a text.
        vocabulary_size: tokens of the members' text.
        units: of target and shadows, and of their embeddings.
        epochs: of their training.
        shadows: how many; 0 for audits without shadows.
        repetitions: how many audits.
        shown: numbers of words that the target shows; 0 for the whole vocabulary.
    """

    dataset: str
    members: int
    audited: int
    known: int
    fewest: int
    most: int
    shortest: int = 1
    longest: int = 200
    vocabulary_size: int = 2000
    units: int = 32
    epochs: int = 6
    shadows: int = 4
    repetitions: int = 10
    shown: tuple[int, ...] = (0, 50)


@dataclass(frozen=True, kw_only=True)
class Users:
    """The users of one audit by part, with the texts of all of them."""

    texts: Corpus
    members: Sequence[str]
    audited: Sequence[str]
    known: NonMembers[str]

    def texts_of(self, *groups: Sequence[str]) -> Corpus:
        """EncodedTexts of some users."""
        return documents_by(self.texts, [name for group in groups for name in group])


@stage()
def null_audit(null: NullAudits, repetition: int, *, work: Work) -> list[Row]:
    """P-values, words and scores of one audit, with and without shadows, for each `shown`.

    The repetition is the seed of everything.
    """
    users = sample_users(null, repetition, work.data)
    target, shadows = trainings(null, repetition, users, work.out / "models")
    vocabulary, sources = target.vocabulary, target.source_vocabulary
    size, parts = len(vocabulary), users.known
    corpus = users.texts_of(users.audited, parts.counted, parts.fitted, parts.compared)
    targets, texts, queries = query_texts(corpus, vocabulary, sources)
    known = parts.as_indices(queries.names)
    counts = WordCounts.of_users(targets, known.counted, size)
    queries = queries.take(~np.isin(queries.users, known.counted))

    def ranks(job: ShadowJob) -> Any:
        return ranks_of(load_any(train_shadow(job).directory / "model", sources), texts, queries)

    target_ranks, shadow_ranks = ranks(target)[0], [ranks(shadow) for shadow in shadows]
    references: list[ShadowRanks | None] = [None]
    if shadows:
        seen = [shadow.members for shadow in shadows]
        references.insert(0, ShadowRanks.of(shadow_ranks, seen, queries.names))
    index = {name: number for number, name in enumerate(queries.names)}
    audited = [index[name] for name in users.audited if name in index]
    outcomes = []
    for reference, shown in product(references, null.shown):
        words = RankedWords(
            queries=queries,
            ranks=target_ranks,
            k=min(shown or size, size),
            vocab_size=size,
            counts=counts,
            shadows=reference,
        )
        outcome = _outcome(words, audited, known, seed=repetition)
        outcomes.append({"shadows": reference is not None, "k": shown, **outcome})
    return outcomes


def null_row(outcomes: Sequence[Row]) -> Row:
    """Shares of small p-values, overall and by quarter of words, and mean scores, over audits."""
    row: Row = {
        "shadows": outcomes[0]["shadows"],
        "k": outcomes[0]["k"] or None,
        "audits": len(outcomes),
        "people": sum(len(outcome["p_values"]) for outcome in outcomes),
    }
    for level in LEVELS:
        shares = [float((np.array(o["p_values"]) <= level).mean()) for o in outcomes]
        row |= columns(f"below_{level}", mean(shares))
        row[f"attainable_{level}"] = fmean(o["attainable"][str(level)] for o in outcomes)
    quarters = np.array([_by_quarter(outcome) for outcome in outcomes])
    for quarter in range(QUARTERS):
        row |= columns(f"quarter_{quarter + 1}", mean(quarters[:, quarter].tolist()))
    scores, compared = (
        [fmean(outcome[name]) for outcome in outcomes] for name in ("scores", "compared")
    )
    row |= columns("score_never_in", mean(scores))
    row |= columns("score_compared", mean(compared))
    return row | columns("difference", mean(np.subtract(scores, compared).tolist()))


def sample_users(null: NullAudits, repetition: int, data: Path | None) -> Users:
    """Sample users for every part; they have different amounts of text."""
    documents, names = _eligible(null.dataset, data, null.fewest, null.shortest, null.longest)
    sizes = (null.members, null.audited, null.known)
    members, audited, known = disjoint_groups(names, sizes, seed=repetition)
    all_names = [*members, *audited, *known]
    return Users(
        texts=documents_of(
            documents, all_names, each=null.most, fewest=null.fewest, seed=repetition
        ),
        members=members,
        audited=audited,
        known=NonMembers.split(known, seed=repetition),
    )


def trainings(
    null: NullAudits, repetition: int, users: Users, folder: Path
) -> tuple[ShadowJob, list[ShadowJob]]:
    """The trainings of the target, on the members, and of the shadows, on the known."""
    task = TASKS[null.dataset]
    default = preset_of(task)
    text = users.texts_of(users.members)
    vocabulary = vocabulary_of(text, size=null.vocabulary_size)
    sources = None
    if task != "next-word":
        sources = vocabulary_of(sources_of(text), size=null.vocabulary_size)
    plan = ShadowPlan(
        seed=2 * repetition,
        count=null.shadows,
        task=task,
        models=(replace(default.model, embedding_size=null.units, hidden_size=null.units),),
        training=replace(default.training, epochs=null.epochs, learning_rate=4e-3, keep="last"),
    )

    def jobs(plan: ShadowPlan, corpus: Corpus) -> list[ShadowJob]:
        return shadow_jobs(plan, corpus, vocabulary, folder, source_vocabulary=sources)

    target_plan = replace(plan, count=1, seed=plan.seed + 1)
    (target,) = jobs(target_plan, users.texts_of(users.members, users.audited))
    known = users.texts_of(users.known.counted, users.known.fitted)
    shadows = jobs(plan, known) if null.shadows else []
    return replace(target, members=tuple(sorted(users.members))), shadows


@cache
def _eligible(
    dataset: str, data: Path | None, fewest: int, shortest: int, longest: int
) -> tuple[Corpus, list[str]]:
    """EncodedTexts of the right length, and the users with enough of them."""
    documents = of_length(read_users_texts(dataset, data), shortest=shortest, longest=longest)
    return documents, users_with(documents, fewest=fewest)


def _outcome(
    words: RankedWords, audited: Sequence[int], known: NonMembers[int], *, seed: int
) -> Row:
    """The result of one audit, with the mean scores of audited and compared users."""
    word_scores = score_words(words, known.fitted, seed=seed)
    judged = judge_users(words.queries, word_scores, audited, known.compared, seed=seed)
    scored = [row for row in judged.users if row["score"] is not None]
    means = words.queries.mean_by_user(word_scores)
    return {
        "p_values": [row["p_value"] for row in scored],
        "words": [row["words"] for row in scored],
        "attainable": {str(level): _attainable(scored, level) for level in LEVELS},
        "scores": [float(means[user]) for user in audited if np.isfinite(means[user])],
        "compared": [float(means[user]) for user in known.compared if np.isfinite(means[user])],
    }


def _attainable(users: Iterable[Any], level: float) -> float:
    """The mean probability of a p-value at a level or below, for non-members."""
    counts = np.array([row["compared_with"] + 1 for row in users])
    return float((np.floor(level * counts + 1e-9) / counts).mean())


def _by_quarter(outcome: Any, level: float = 0.05) -> NDArray[np.float64]:
    """(4,) the share of p-values at the level or below, by quarters of users by their words."""
    order = np.argsort(outcome["words"], kind="stable")
    small = np.array(outcome["p_values"])[order] <= level
    return np.array([part.mean() for part in np.array_split(small, QUARTERS)])
