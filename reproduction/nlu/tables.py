"""Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
ACL 2022 (short papers): Tables 2 to 5 and Figures 2 to 5, its numbers beside ours.

Differs from the paper: GloVe stands in for fastText vectors; part of each corpus is learnt, so that
ten models a cell are trained on two cores; the three canaries are planted in one model, which a
table of its own is about; the paper's attack starts from zero, its strongest reading; early
stopping is the best epoch of the same training. Our attack, the trivial one, the rank of the truth
and models that never saw a secret are added.

Arguments of several tables: `text` and `learner` are the corpus and the undefended model, `trials`
so many secrets and models for each row, `length` the unknown words where the paper has four.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from reproduction.nlu.planted_models import (
    BEST,
    LAST,
    OURS,
    PAPER,
    TRIVIAL,
    Learner,
    Secrets,
    attack,
    train_planted,
)
from reproduction.nlu.utterance_texts import UtteranceText
from reproduction.papers import Numbers, Row, paper_numbers, table
from reproduction.stages import Call, Finished, Work
from vestige.metrics.estimates import Estimate, clopper_pearson, columns, mean

CANARIES = ("color", "pin", "call")
EARLY = "ES"
DEFENCES = ("none", "D", "ES", "CE", "D+ES", "ES+CE", "D+CE", "D+ES+CE")
"""Dropout, early stopping (the weights of the best epoch) and character embeddings."""
ATTACKS = (PAPER, TRIVIAL, OURS)
FIGURES = (
    *("trials", "accuracy", "accuracy_low", "accuracy_high", "accuracy_by_chance"),
    *("hamming", "hamming_low", "hamming_high", "hamming_by_chance"),
    *("median_rank", "median_rank_known", "exposure", "exposure_low", "exposure_high"),
    *("ranks_exact", "ranks_bounded"),
)
NEVER_PLANTED = 1000
"""The first seed of models without secrets."""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A corpus of Figures 3 to 5, and how often its secrets are said."""

    text: UtteranceText
    copies: tuple[int, ...]


@dataclass(frozen=True)
class Planted:
    """Models that are alike, one for each of their secrets."""

    models: Sequence[Call]
    secrets: Sequence[Secrets]


@dataclass(frozen=True)
class Line:
    """An attack, and what its row says besides its result.

    Attributes:
        names: the columns that name the row.
        planted: the models that are attacked.
        weights: of which epoch.
        paper: the paper's accuracy and Hamming distance per token, where it has them.
    """

    names: Mapping[str, Any]
    method: str
    call: Call
    planted: Planted
    weights: str
    paper: Mapping[str, float | None] = field(default_factory=dict)

    def row(self, found: Mapping[str, Any]) -> Row:
        """The row, from the finished attack."""
        return {
            **self.names,
            "attack": self.method,
            **{name: found["summary"][name] for name in FIGURES},
            "search_failed": failures(found["rows"]),
            "paper_accuracy": self.paper.get("accuracy"),
            "paper_hamming": self.paper.get("hamming"),
        }


@table("nlu", "utility")
def utility(
    work: Work, length: int, complete: tuple[UtteranceText, ...], complete_learner: Learner
) -> Iterator[Row]:
    """What models of whole corpora reach, beside what others reach without secrets."""
    known = paper_numbers("nlu", "utility", key=1)
    without = Secrets(all_three(length), copies=0, seed=0)
    models = work.all(train_planted(text, without, complete_learner) for text in complete)
    for text, model in zip(complete, models, strict=True):
        measured, n = model.value[LAST], model.value[LAST]["utterances"]
        row: Row = {"dataset": text.dataset, "utterances": n}
        for name in ("intent_accuracy", "exact_match"):
            ends = clopper_pearson(round(measured[name] * n), n)
            row |= columns(name, Estimate(name, measured[name], *ends, n=n))
        row["slot_f1"] = measured["slot_f1"]
        others = known.get((text.dataset,), {})
        names = ("known_intent_accuracy", "known_slot_f1", "known_from")
        yield row | {name: others.get(name) for name in names}


@table("nlu", "table2")
def table2(
    work: Work, text: UtteranceText, learner: Learner, cells: tuple[tuple[int, int, int], ...]
) -> Iterator[Row]:
    """Tables 2 and 5 and Figure 2: numbers of unknown words, of copies and of trials."""
    paper = paper_numbers("nlu", "table2", key=3)
    lines: list[Line] = []
    for length, copies, trials in cells:
        planted = models_of(text, learner, all_three(length), copies, range(trials))
        for name in CANARIES:
            names = {"canary": name, "length": length, "copies": copies}
            lines += attacks(planted, f"{name}:{length}", names, paper)
    yield from rows_of(work, lines)


@table("nlu", "table3")
def table3(
    work: Work,
    text: UtteranceText,
    learner: Learner,
    trials: int,
    length: int,
    defended: tuple[int, ...],
) -> Iterator[Row]:
    """All combinations of defences at some numbers of copies, under the paper's attack and ours."""
    paper = paper_numbers("nlu", "table3", key=3)
    lines: list[Line] = []
    for copies in defended:
        for defence in DEFENCES:
            parts = defence.split("+")
            weights = BEST if EARLY in parts else LAST
            with_defence = replace(learner, dropout="D" in parts, characters="CE" in parts)
            planted = models_of(text, with_defence, all_three(length), copies, range(trials))
            for name in CANARIES:
                names = {"copies": copies, "defence": defence, "canary": name}
                lines += attacks(planted, f"{name}:{length}", names, paper, weights=weights)
    lines = [line for line in lines if line.method != TRIVIAL]
    for line, row in zip(lines, rows_of(work, lines), strict=True):
        yield row | utility_of(work.all(line.planted.models), line.weights)


@table("nlu", "table4")
def table4(
    work: Work, text: UtteranceText, learner: Learner, trials: int, once: tuple[int, ...]
) -> Iterator[Row]:
    """Secrets that are said once; the long call also with its first three digits known."""
    paper = paper_numbers("nlu", "table4", key=3)
    lines: list[Line] = []
    for length in once:
        planted = models_of(text, learner, all_three(length), 1, range(trials))
        for name in CANARIES:
            for known in (0, 3) if (name, length) == ("call", 10) else (0,):
                names = {"canary": name, "length": length - known, "copies": 1}
                lines += attacks(planted, f"{name}:{length}", names, paper, known=known)
    yield from rows_of(work, lines)


@table("nlu", "figures3-5")
def figures3to5(
    work: Work,
    text: UtteranceText,
    learner: Learner,
    trials: int,
    length: int,
    datasets: tuple[Dataset, ...],
) -> Iterator[Row]:
    """Other corpora."""
    lines: list[Line] = []
    for dataset in datasets:
        for copies in dataset.copies:
            patterns = (*all_three(length)[:2], "call:10")
            planted = models_of(dataset.text, learner, patterns, copies, range(trials))
            for pattern in patterns:
                canary, _, words = pattern.partition(":")
                names: Row = {"dataset": dataset.text.dataset, "canary": canary}
                names |= {"length": int(words), "copies": copies}
                lines += attacks(planted, pattern, names)
    yield from rows_of(work, lines)


@table("nlu", "null")
def null(
    work: Work, text: UtteranceText, learner: Learner, length: int, references: int
) -> Iterator[Row]:
    """Models that know the canaries' words and labels, and no secret, and are attacked."""
    seeds = range(NEVER_PLANTED, NEVER_PLANTED + references)
    planted = models_of(text, learner, all_three(length), 0, seeds)
    lines: list[Line] = []
    for name in CANARIES:
        lines += attacks(planted, f"{name}:{length}", {"canary": name, "length": length})
    yield from rows_of(work, lines)


@table("nlu", "apart")
def apart(
    work: Work,
    text: UtteranceText,
    learner: Learner,
    trials: int,
    length: int,
    alone: tuple[tuple[str, int], ...],
) -> Iterator[Row]:
    """The same canary alone in a model, and together with the two others."""
    lines: list[Line] = []
    for pattern, copies in alone:
        for how, patterns in (("alone", (pattern,)), ("with two others", all_three(length))):
            planted = models_of(text, learner, patterns, copies, range(trials))
            names = {"canary": pattern.partition(":")[0], "copies": copies, "planted": how}
            lines += attacks(planted, pattern, names)
    yield from rows_of(work, lines)


def all_three(length: int) -> tuple[str, ...]:
    """The paper's three canaries, to be planted in one model."""
    return tuple(f"{name}:{length}" for name in CANARIES)


def models_of(
    text: UtteranceText,
    learner: Learner,
    patterns: tuple[str, ...],
    copies: int,
    seeds: Iterable[int],
) -> Planted:
    """A model for each seed, which has learnt its own secrets, each said so often."""
    secrets = [Secrets(patterns, copies, seed) for seed in seeds]
    return Planted([train_planted(text, one, learner) for one in secrets], secrets)


def attacks(
    planted: Planted,
    pattern: str,
    names: Mapping[str, Any],
    paper: Numbers | None = None,
    *,
    known: int = 0,
    weights: str = LAST,
) -> Iterator[Line]:
    """A line for each attack; the paper's figures are beside its own attack."""
    figures = (paper or {}).get(tuple(names.values()), {})
    for method in ATTACKS:
        call = attack(planted.models, planted.secrets, pattern, weights, method, known=known)
        theirs = figures if method == PAPER else {}
        yield Line(names, method, call, planted, weights, theirs)


def rows_of(work: Work, lines: Sequence[Line]) -> Iterator[Row]:
    """The rows, once all models are trained and attacked."""
    for line, found in zip(lines, work.all(line.call for line in lines), strict=True):
        yield line.row(found.value)


def failures(rows: Iterable[Mapping[str, Any]]) -> int:
    """Models whose truth loses less than the best guess: the search missed it, not the loss."""
    return sum(row["truth_loss"] < row["loss"] - 1e-4 for row in rows)


def utility_of(models: Sequence[Finished], weights: str) -> Row:
    """Mean test scores of some models, with intervals over the models."""
    measured = [model.value[weights] for model in models]
    row: Row = {}
    for name in ("intent_accuracy", "slot_f1", "exact_match"):
        row |= columns(name, mean([float(one[name]) for one in measured]))
    return row | {"epoch": fmean(float(one["epoch"]) for one in measured)}
