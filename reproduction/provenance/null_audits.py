"""Null of an audit: p-values of people who were never in the training data.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD, has no
p-values; this is the null of ours. An audit is repeated as a whole, as `vestige membership` runs
it: in every repetition it is drawn anew whose text the target learns, who is audited without having
been learnt, among the non-members, which part each of these plays and whose text every shadow
learns; target and shadows are trained, words counted, scores learnt, texts cut.

People who are audited together are compared with the same others, so that their p-values go up and
down together: the unit of every interval is the repetition. Amounts of text are people's own, and
the share of small p-values is given by quarters of it; beside it stands the share that p-values of
so many compared people can reach at most.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduction.papers import Row
from reproduction.provenance.audit_trials import preset_for
from reproduction.provenance.audited_texts import TASKS, read_users_texts, vocabulary_of
from reproduction.runner import Trial
from reproduction.user_documents import documents_of, of_length
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
from vestige.data.encoded import EncodedPairs, encode, encode_pairs, sources_of
from vestige.data.token_queries import token_queries
from vestige.data.users import disjoint_groups, users_with
from vestige.data.vocabulary import WordVocabulary
from vestige.metrics.estimates import columns, mean
from vestige.models.checkpoints import load_model, load_seq2seq
from vestige.training.shadow_jobs import ShadowJob, ShadowPlan, shadow_jobs
from vestige.training.shadows import train_shadow

LEVELS = (0.01, 0.05)
QUARTERS = 4
Outcome = Mapping[str, Any]
"""P-values, words and scores of the people of one audit, by name."""


@dataclass(frozen=True, kw_only=True)
class NullAudits:
    """Whole audits, repeated on people drawn anew.

    Attributes:
        dataset: of `audited_texts.TASKS`.
        members: users whose text the target learns.
        audited: users of whom nothing is learnt.
        known: non-members, for all parts that such users play.
        fewest: texts of a user at least.
        most: texts of a user that are used at most.
        shortest: words of a text at least.
        longest: words of a text at most.
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
class _People:
    """Who plays which part in one audit, and their texts."""

    whole: Corpus
    members: Sequence[str]
    audited: Sequence[str]
    known: NonMembers[str]

    def of(self, *groups: Sequence[str]) -> Corpus:
        """Texts of some of them."""
        names = {name for group in groups for name in group}
        chosen = [place for place, user in enumerate(self.whole.users or ()) if user in names]
        return self.whole.take(chosen)


def null_trials(
    nulls: Iterable[NullAudits], directory: Path, data: Path | None
) -> dict[NullAudits, list["NullAudit"]]:
    """Every repetition of some audits of one corpus each, of the same ways of asking."""
    return {
        null: [NullAudit.of(null, n, directory, data) for n in range(null.repetitions)]
        for null in nulls
    }


def null_rows(trials: Mapping[NullAudits, Sequence["NullAudit"]]) -> Iterator[Row]:
    """A row for each corpus and way of asking, then one for all corpora together."""
    every: dict[tuple[int, bool, int], list[Outcome]] = {}
    for null, repeated in trials.items():
        done = [trial.result()["outcomes"] for trial in repeated]
        for way, outcomes in _by_way(done).items():
            every.setdefault((null.known, *way), []).extend(outcomes)
            yield {"dataset": null.dataset, "known": null.known, **_row(way, outcomes)}
    for (known, shadows, k), outcomes in every.items():
        yield {"dataset": "all", "known": known, **_row((shadows, k), outcomes)}


@dataclass(frozen=True, kw_only=True)
class NullAudit(Trial):
    """One repetition, kept.

    Attributes:
        null: what is repeated, once.
        repetition: seeds everything.
        models: where models are kept.
        data: the folder of corpora.
    """

    null: NullAudits
    repetition: int
    models: Path = field(compare=False)
    data: Path | None = field(compare=False)

    @classmethod
    def of(
        cls, null: NullAudits, repetition: int, directory: Path, data: Path | None
    ) -> "NullAudit":
        """In a folder below `directory` that what decides it names."""
        once = replace(null, repetitions=1)
        made = cls(
            directory=directory, null=once, repetition=repetition, models=directory, data=data
        )
        return replace(made, directory=directory / "null" / made.key)

    def make(self) -> Mapping[str, object]:
        """The outcomes of `null_audit`."""
        return {"outcomes": null_audit(self.null, self.repetition, self.models, self.data)}


def null_audit(
    null: NullAudits, repetition: int, directory: Path, data: Path | None
) -> list[Outcome]:
    """The outcome of one repetition for every way of asking.

    Args:
        null: what is repeated.
        repetition: seeds everything.
        directory: where models are kept.
        data: the folder of corpora.
    """
    people = _drawn(null, repetition, data)
    target, shadows = _trained(null, repetition, people, directory)
    vocabulary, sources = target.vocabulary, target.source_vocabulary
    groups = people.known
    everybody = people.of(people.audited, groups.counted, groups.fitted, groups.compared)
    texts: Texts = encode(everybody, vocabulary)
    if sources is not None:
        texts = encode_pairs(everybody, sources, vocabulary)
    targets = texts.targets if isinstance(texts, EncodedPairs) else texts
    asked = token_queries(targets, vocabulary)
    known = groups.among(asked.names)
    counts = WordCounts.of_users(targets, known.counted, len(vocabulary))
    asked = asked.take(~np.isin(asked.users, known.counted))

    def trained(job: ShadowJob) -> Any:
        load = load_model if sources is None else load_seq2seq
        return load(train_shadow(job).directory / "model")

    ranks, _ = ranks_of(trained(target), texts, asked)
    of_shadows = [ranks_of(trained(shadow), texts, asked) for shadow in shadows]
    members = [shadow.members for shadow in shadows]
    references = ShadowRanks.of(of_shadows, members, asked.names) if shadows else None
    place = {name: at for at, name in enumerate(asked.names)}
    audited = [place[name] for name in people.audited if name in place]
    found: list[Outcome] = []
    for asking, shown in product((references, None) if shadows else (None,), null.shown):
        k = min(shown or len(vocabulary), len(vocabulary))
        words = RankedWords(
            queries=asked,
            ranks=ranks,
            k=k,
            vocab_size=len(vocabulary),
            counts=counts,
            shadows=asking,
        )
        outcome = _outcome(words, audited, known, seed=repetition)
        found.append({"shadows": asking is not None, "k": shown, **outcome})
    return found


def _outcome(
    words: RankedWords, audited: Sequence[int], known: NonMembers[int], *, seed: int
) -> Outcome:
    """One audit: `membership_audit`, with the mean score of everybody beside it."""
    word_scores = score_words(words, known.fitted, seed=seed)
    judged = judge_users(words.queries, word_scores, audited, known.compared, seed=seed)
    asked = [row for row in judged.users if row["score"] is not None]
    means = words.queries.mean_by_user(word_scores)
    return {
        "p_values": [row["p_value"] for row in asked],
        "words": [row["words"] for row in asked],
        "attainable": {str(level): _attainable(asked, level) for level in LEVELS},
        "scores": means[[at for at in audited if np.isfinite(means[at])]].tolist(),
        "compared": means[[at for at in known.compared if np.isfinite(means[at])]].tolist(),
    }


def _attainable(users: Iterable[Mapping[str, Any]], level: float) -> float:
    """The mean chance of a p-value at a level or below, for people who are out."""
    counts = np.array([row["compared_with"] + 1 for row in users])
    return float((np.floor(level * counts + 1e-9) / counts).mean())


@cache
def _pool(
    dataset: str, data: Path | None, fewest: int, shortest: int, longest: int
) -> tuple[Corpus, list[str]]:
    """Texts of the right length, and who has enough of them."""
    right = of_length(read_users_texts(dataset, data), shortest=shortest, longest=longest)
    return right, users_with(right, fewest=fewest)


def _drawn(null: NullAudits, repetition: int, data: Path | None) -> _People:
    """Draw people for every part; each has their own amount of text."""
    right, names = _pool(null.dataset, data, null.fewest, null.shortest, null.longest)
    sizes = (null.members, null.audited, null.known)
    members, audited, reference = disjoint_groups(names, sizes, seed=repetition)
    everybody = [*members, *audited, *reference]
    texts = documents_of(right, everybody, each=null.most, fewest=null.fewest, seed=repetition)
    return _People(
        whole=texts,
        members=members,
        audited=audited,
        known=NonMembers.drawn(reference, seed=repetition),
    )


def _trained(
    null: NullAudits, repetition: int, people: _People, directory: Path
) -> tuple[ShadowJob, list[ShadowJob]]:
    """The trainings of the target, on the members, and of the shadows, on the known."""
    task = TASKS[null.dataset]
    chosen: Any = preset_for(task)
    learnt = people.of(people.members)
    vocabulary = vocabulary_of(learnt, null.vocabulary_size)
    sources: WordVocabulary | None = None
    if task != "next-word":
        sources = vocabulary_of(sources_of(learnt), null.vocabulary_size)
    plan = ShadowPlan(
        seed=2 * repetition,
        count=max(1, null.shadows),
        task=task,
        models=(replace(chosen.model, embedding_size=null.units, hidden_size=null.units),),
        training=replace(chosen.training, epochs=null.epochs, learning_rate=4e-3, keep="last"),
    )

    def jobs(count: int, corpus: Corpus) -> list[ShadowJob]:
        return shadow_jobs(
            replace(plan, count=count, seed=plan.seed + (count == 1)),
            corpus,
            vocabulary,
            directory / "models",
            source_vocabulary=sources,
        )

    (target,) = jobs(1, people.of(people.members, people.audited))
    known = people.of(people.known.counted, people.known.fitted)
    shadows = jobs(null.shadows, known) if null.shadows else []
    return replace(target, members=tuple(sorted(people.members))), shadows


def _by_way(done: Iterable[Sequence[Outcome]]) -> dict[tuple[bool, int], list[Outcome]]:
    """Outcomes of the repetitions, by whether shadows were asked and the words shown."""
    found: dict[tuple[bool, int], list[Outcome]] = {}
    for outcomes in done:
        for outcome in outcomes:
            found.setdefault((outcome["shadows"], outcome["k"]), []).append(outcome)
    return found


def _row(way: tuple[bool, int], outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Shares of small p-values, overall and by quarter of words, and mean scores."""
    row: dict[str, object] = {
        "shadows": way[0],
        "k": way[1] or None,
        "audits": len(outcomes),
        "people": sum(len(one["p_values"]) for one in outcomes),
    }
    for level in LEVELS:
        shares = [float((np.array(one["p_values"]) <= level).mean()) for one in outcomes]
        row |= _mean(f"below_{level}", shares)
        row[f"attainable_{level}"] = fmean(one["attainable"][str(level)] for one in outcomes)
    quarters = np.array([_by_quarter(one) for one in outcomes])
    for quarter in range(QUARTERS):
        row |= _mean(f"quarter_{quarter + 1}", quarters[:, quarter].tolist())
    scores, compared = ([fmean(one[name]) for one in outcomes] for name in ("scores", "compared"))
    row |= _mean("score_never_in", scores) | _mean("score_compared", compared)
    return row | _mean(
        "difference", [one - other for one, other in zip(scores, compared, strict=True)]
    )


def _by_quarter(outcome: Outcome, level: float = 0.05) -> NDArray[np.float64]:
    """(4,) the share of p-values at the level or below, from those with the fewest words on."""
    order = np.argsort(outcome["words"], kind="stable")
    small = np.array(outcome["p_values"])[order] <= level
    return np.array([part.mean() for part in np.array_split(small, QUARTERS)])


def _mean(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """A mean over repetitions with the ends of its interval."""
    return columns(name, mean(values))
