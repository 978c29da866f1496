"""Null of an audit: p-values of people who were never in the training data.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD, has no
p-values; this is the null of ours. An audit is repeated as a whole, as `vestige membership` runs
it. Every repetition draws anew whose text the target learns, who is audited without having been
learnt, which part each non-member plays and whose text every shadow learns; target and shadows are
trained, words counted, scores learnt, texts cut.

People who are audited together are compared with the same others, so that their p-values go up and
down together: the unit of every interval is the repetition. People have their own amounts of text;
the share of small p-values is given by quarters of it, beside the share that p-values of so many
compared people can reach at most.
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
    vocabulary_of,
)
from reproduction.provenance.audits import preset_for
from reproduction.stages import Work, stage
from reproduction.texts import documents_of, of_length
from vestige.audits.membership.ranked_words import (
    RankedWords,
    ShadowRanks,
    Texts,
    WordCounts,
    ranks_of,
    score_words,
)
from vestige.audits.membership.user_audit import judge_users
from vestige.audits.membership.user_texts import NonMembers
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode, encode_pairs, sources_of
from vestige.data.token_queries import token_queries
from vestige.data.users import disjoint_groups, users_with
from vestige.data.vocabulary import WordVocabulary
from vestige.metrics.estimates import columns, mean
from vestige.models.checkpoints import load_model, load_seq2seq
from vestige.training.shadow_jobs import ShadowJob, ShadowPlan, shadow_jobs
from vestige.training.shadows import train_shadow

LEVELS = (0.01, 0.05)
QUARTERS = 4


@dataclass(frozen=True, kw_only=True)
class NullAudits:
    """Whole audits, repeated on people drawn anew.

    Attributes:
        dataset: of `audited_texts.TASKS`.
        members, audited, known: users whose text the target learns, users who are audited and not
            learnt, and non-members for all parts that such users play.
        fewest, most: texts of a user.
        shortest, longest: words of a text.
        vocabulary_size: tokens, made of the members' text.
        units: of target and shadows, and of their embeddings.
        epochs: of their training.
        shadows: how many; 0 for audits without any.
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
class People:
    """Who plays which part in one audit, and the texts of all of them."""

    texts: Corpus
    members: Sequence[str]
    audited: Sequence[str]
    known: NonMembers[str]

    def of(self, *groups: Sequence[str]) -> Corpus:
        """Texts of some of them."""
        return documents_by(self.texts, [name for group in groups for name in group])


@stage()
def null_audit(null: NullAudits, repetition: int, *, work: Work) -> list[dict[str, Any]]:
    """P-values, words and scores of the people of one audit, for every way of querying the target.

    The repetition seeds everything.
    """
    people = drawn_people(null, repetition, work.data)
    target, shadows = trainings(null, repetition, people, work.out / "models")
    vocabulary, sources = target.vocabulary, target.source_vocabulary
    parts = people.known
    everybody = people.of(people.audited, parts.counted, parts.fitted, parts.compared)
    targets = encode(everybody, vocabulary)
    texts: Texts = targets
    if sources is not None:
        texts = encode_pairs(everybody, sources, vocabulary)
    queries = token_queries(targets, vocabulary)
    known = parts.among(queries.names)
    counts = WordCounts.of_users(targets, known.counted, len(vocabulary))
    queries = queries.take(~np.isin(queries.users, known.counted))

    def ranks(job: ShadowJob) -> Any:
        load: Any = load_model if sources is None else load_seq2seq
        return ranks_of(load(train_shadow(job).directory / "model"), texts, queries)

    of_target, of_shadows = ranks(target)[0], [ranks(shadow) for shadow in shadows]
    members = [shadow.members for shadow in shadows]
    references = ShadowRanks.of(of_shadows, members, queries.names) if shadows else None
    index = {name: at for at, name in enumerate(queries.names)}
    audited = [index[name] for name in people.audited if name in index]
    found = []
    for asked, shown in product((references, None) if shadows else (None,), null.shown):
        words = RankedWords(
            queries=queries,
            ranks=of_target,
            k=min(shown or len(vocabulary), len(vocabulary)),
            vocab_size=len(vocabulary),
            counts=counts,
            shadows=asked,
        )
        outcome = _outcome(words, audited, known, seed=repetition)
        found.append({"shadows": asked is not None, "k": shown, **outcome})
    return found


def null_row(outcomes: Sequence[dict[str, Any]]) -> Row:
    """Shares of small p-values, overall and by quarter of words, and mean scores, over audits."""
    row: Row = {
        "shadows": outcomes[0]["shadows"],
        "k": outcomes[0]["k"] or None,
        "audits": len(outcomes),
        "people": sum(len(one["p_values"]) for one in outcomes),
    }

    def add(name: str, values: Iterable[float]) -> None:
        row.update(columns(name, mean(list(values))))

    for level in LEVELS:
        add(f"below_{level}", ((np.array(o["p_values"]) <= level).mean() for o in outcomes))
        row[f"attainable_{level}"] = fmean(one["attainable"][str(level)] for one in outcomes)
    quarters = np.array([_by_quarter(one) for one in outcomes])
    for quarter in range(QUARTERS):
        add(f"quarter_{quarter + 1}", quarters[:, quarter])
    scores, compared = ([fmean(one[name]) for one in outcomes] for name in ("scores", "compared"))
    add("score_never_in", scores)
    add("score_compared", compared)
    add("difference", np.subtract(scores, compared))
    return row


def drawn_people(null: NullAudits, repetition: int, data: Path | None) -> People:
    """Draw people for every part; each has their own amount of text."""
    right, names = _pool(null.dataset, data, null.fewest, null.shortest, null.longest)
    sizes = (null.members, null.audited, null.known)
    members, audited, reference = disjoint_groups(names, sizes, seed=repetition)
    everybody = [*members, *audited, *reference]
    return People(
        texts=documents_of(right, everybody, each=null.most, fewest=null.fewest, seed=repetition),
        members=members,
        audited=audited,
        known=NonMembers.drawn(reference, seed=repetition),
    )


def trainings(
    null: NullAudits, repetition: int, people: People, folder: Path
) -> tuple[ShadowJob, list[ShadowJob]]:
    """The trainings of the target, on the members, and of the shadows, on the known."""
    task = TASKS[null.dataset]
    usual: Any = preset_for(task)
    learnt = people.of(people.members)
    vocabulary = vocabulary_of(learnt, null.vocabulary_size)
    sources: WordVocabulary | None = None
    if task != "next-word":
        sources = vocabulary_of(sources_of(learnt), null.vocabulary_size)
    plan = ShadowPlan(
        seed=2 * repetition,
        count=null.shadows,
        task=task,
        models=(replace(usual.model, embedding_size=null.units, hidden_size=null.units),),
        training=replace(usual.training, epochs=null.epochs, learning_rate=4e-3, keep="last"),
    )

    def jobs(plan: ShadowPlan, corpus: Corpus) -> list[ShadowJob]:
        return shadow_jobs(plan, corpus, vocabulary, folder, source_vocabulary=sources)

    of_target = replace(plan, count=1, seed=plan.seed + 1)
    (target,) = jobs(of_target, people.of(people.members, people.audited))
    known = people.of(people.known.counted, people.known.fitted)
    shadows = jobs(plan, known) if null.shadows else []
    return replace(target, members=tuple(sorted(people.members))), shadows


@cache
def _pool(
    dataset: str, data: Path | None, fewest: int, shortest: int, longest: int
) -> tuple[Corpus, list[str]]:
    """Texts of the right length, and who has enough of them."""
    right = of_length(read_users_texts(dataset, data), shortest=shortest, longest=longest)
    return right, users_with(right, fewest=fewest)


def _outcome(
    words: RankedWords, audited: Sequence[int], known: NonMembers[int], *, seed: int
) -> dict[str, Any]:
    """One audit, with the mean score of everybody beside it."""
    word_scores = score_words(words, known.fitted, seed=seed)
    judged = judge_users(words.queries, word_scores, audited, known.compared, seed=seed)
    scored = [row for row in judged.users if row["score"] is not None]
    means = words.queries.mean_by_user(word_scores)
    return {
        "p_values": [row["p_value"] for row in scored],
        "words": [row["words"] for row in scored],
        "attainable": {str(level): _attainable(scored, level) for level in LEVELS},
        "scores": means[[at for at in audited if np.isfinite(means[at])]].tolist(),
        "compared": means[[at for at in known.compared if np.isfinite(means[at])]].tolist(),
    }


def _attainable(users: Iterable[Any], level: float) -> float:
    """The mean probability of a p-value at a level or below, for people who are out."""
    counts = np.array([row["compared_with"] + 1 for row in users])
    return float((np.floor(level * counts + 1e-9) / counts).mean())


def _by_quarter(outcome: Any, level: float = 0.05) -> NDArray[np.float64]:
    """(4,) the share of p-values at the level or below, from those with the fewest words on."""
    order = np.argsort(outcome["words"], kind="stable")
    small = np.array(outcome["p_values"])[order] <= level
    return np.array([part.mean() for part in np.array_split(small, QUARTERS)])
