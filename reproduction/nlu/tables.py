"""Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
ACL 2022 (short papers): Tables 2 to 5 and Figures 2 to 5, its numbers beside ours.

Differs from the paper: GloVe replaces fastText vectors; part of each corpus is learnt, so that two
cores can train ten models per cell; the three canaries are planted in one model, which table
`apart` examines; the paper's attack starts from zero, its strongest reading; early stopping is the
best epoch of the same training. Our attack, the trivial one, the rank of the truth and models that
never saw a secret are added.

Arguments of several tables: `text` and `learner` are the corpus and the undefended model, `trials`
the number of secrets and models per row, `length` the unknown words where the paper has four.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
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
RESULTS = (
    *("trials", "accuracy", "accuracy_low", "accuracy_high", "accuracy_by_chance"),
    *("hamming", "hamming_low", "hamming_high", "hamming_by_chance"),
    *("median_rank", "median_rank_known", "exposure", "exposure_low", "exposure_high"),
    *("ranks_exact", "ranks_bounded"),
)
NULL_SEED = 1000
"""The first seed of models without secrets."""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A corpus of Figures 3 to 5, and the numbers of copies of its secrets."""

    text: UtteranceText
    copies: tuple[int, ...]


@dataclass(frozen=True)
class Models:
    """Trainings that differ in their seed and secrets only."""

    calls: Sequence[Call]
    secrets: Sequence[Secrets]


@dataclass(frozen=True)
class Cell:
    """Models that are attacked for the secret of one pattern.

    Attributes:
        labels: columns that identify the rows; the key of the paper's numbers.
        known: first words of the secret that the attacker knows.
        weights: of which epoch.
    """

    labels: Mapping[str, Any]
    models: Models
    pattern: str
    known: int = 0
    weights: str = LAST


def train_models(
    text: UtteranceText,
    learner: Learner,
    patterns: tuple[str, ...],
    copies: int,
    seeds: Iterable[int],
) -> Models:
    """A model for each seed, which learns `copies` of its own secrets."""
    secrets = [Secrets(patterns, copies, seed) for seed in seeds]
    return Models([train_planted(text, planted, learner) for planted in secrets], secrets)


def all_canaries(length: int) -> tuple[str, ...]:
    """The patterns of the paper's three canaries."""
    return tuple(f"{name}:{length}" for name in CANARIES)


def attack_rows(
    work: Work,
    cells: Sequence[Cell],
    paper: Numbers | None = None,
    *,
    methods: Sequence[str] = ATTACKS,
) -> Iterator[Row]:
    """A row per cell and attack; the paper's numbers are in the rows of its own attack."""
    attacks = list(product(cells, methods))
    finished = work.all(
        attack(c.models.calls, c.models.secrets, c.pattern, c.weights, method, known=c.known)
        for c, method in attacks
    )
    for (cell, method), result in zip(attacks, finished, strict=True):
        summary, labels = result.value["summary"], tuple(cell.labels.values())
        numbers = (paper or {}).get(labels, {}) if method == PAPER else {}
        yield {
            **cell.labels,
            "attack": method,
            **{name: summary[name] for name in RESULTS},
            "search_failed": search_failures(result.value["rows"]),
            "paper_accuracy": numbers.get("accuracy"),
            "paper_hamming": numbers.get("hamming"),
        }


@table("nlu", "utility")
def utility(
    work: Work, length: int, complete: tuple[UtteranceText, ...], complete_learner: Learner
) -> Iterator[Row]:
    """Utility of models of complete corpora without secrets, and the literature's."""
    literature = paper_numbers("nlu", "utility", key=1)
    no_secrets = Secrets(all_canaries(length), copies=0, seed=0)
    models = work.all(train_planted(text, no_secrets, complete_learner) for text in complete)
    for text, model in zip(complete, models, strict=True):
        scores, n = model.value[LAST], model.value[LAST]["utterances"]
        row: Row = {"dataset": text.dataset, "utterances": n}
        for name in ("intent_accuracy", "exact_match"):
            ends = clopper_pearson(round(scores[name] * n), n)
            row |= columns(name, Estimate(name, scores[name], *ends, n=n))
        row["slot_f1"] = scores["slot_f1"]
        numbers = literature.get((text.dataset,), {})
        names = ("known_intent_accuracy", "known_slot_f1", "known_from")
        yield row | {name: numbers.get(name) for name in names}


@table("nlu", "table2")
def table2(
    work: Work, text: UtteranceText, learner: Learner, cells: tuple[tuple[int, int, int], ...]
) -> Iterator[Row]:
    """Tables 2 and 5 and Figure 2: numbers of unknown words, of copies and of trials."""
    attacked = []
    for length, copies, trials in cells:
        models = train_models(text, learner, all_canaries(length), copies, range(trials))
        for name in CANARIES:
            labels = {"canary": name, "length": length, "copies": copies}
            attacked.append(Cell(labels, models, f"{name}:{length}"))
    yield from attack_rows(work, attacked, paper_numbers("nlu", "table2", key=3))


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
    cells, methods = [], (PAPER, OURS)
    for copies, defence in product(defended, DEFENCES):
        parts = defence.split("+")
        weights = BEST if EARLY in parts else LAST
        with_defence = replace(learner, dropout="D" in parts, characters="CE" in parts)
        models = train_models(text, with_defence, all_canaries(length), copies, range(trials))
        for name in CANARIES:
            labels = {"copies": copies, "defence": defence, "canary": name}
            cells.append(Cell(labels, models, f"{name}:{length}", weights=weights))
    paper = paper_numbers("nlu", "table3", key=3)
    rows = attack_rows(work, cells, paper, methods=methods)
    for (cell, _), row in zip(product(cells, methods), rows, strict=True):
        yield row | utility_columns(work.all(cell.models.calls), cell.weights)


@table("nlu", "table4")
def table4(
    work: Work, text: UtteranceText, learner: Learner, trials: int, once: tuple[int, ...]
) -> Iterator[Row]:
    """Secrets with one copy; the long call also with its first three digits known."""
    cells = []
    for length in once:
        models = train_models(text, learner, all_canaries(length), 1, range(trials))
        for name in CANARIES:
            for known in (0, 3) if (name, length) == ("call", 10) else (0,):
                labels = {"canary": name, "length": length - known, "copies": 1}
                cells.append(Cell(labels, models, f"{name}:{length}", known))
    yield from attack_rows(work, cells, paper_numbers("nlu", "table4", key=3))


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
    cells = []
    for dataset in datasets:
        for copies in dataset.copies:
            patterns = (*all_canaries(length)[:2], "call:10")
            models = train_models(dataset.text, learner, patterns, copies, range(trials))
            for pattern in patterns:
                canary, _, words = pattern.partition(":")
                labels: Row = {"dataset": dataset.text.dataset, "canary": canary}
                labels |= {"length": int(words), "copies": copies}
                cells.append(Cell(labels, models, pattern))
    yield from attack_rows(work, cells)


@table("nlu", "null")
def null(
    work: Work, text: UtteranceText, learner: Learner, length: int, references: int
) -> Iterator[Row]:
    """Attacks on models that know the canaries' words and labels, but no secret."""
    seeds = range(NULL_SEED, NULL_SEED + references)
    models = train_models(text, learner, all_canaries(length), 0, seeds)
    cells = [
        Cell({"canary": name, "length": length}, models, f"{name}:{length}") for name in CANARIES
    ]
    yield from attack_rows(work, cells)


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
    cells = []
    for pattern, copies in alone:
        for planted, patterns in (("alone", (pattern,)), ("with two others", all_canaries(length))):
            models = train_models(text, learner, patterns, copies, range(trials))
            canary = pattern.partition(":")[0]
            labels = {"canary": canary, "copies": copies, "planted": planted}
            cells.append(Cell(labels, models, pattern))
    yield from attack_rows(work, cells)


def search_failures(rows: Iterable[Mapping[str, Any]]) -> int:
    """Models in which the secret has a smaller loss than the guess: the search missed it."""
    return sum(row["truth_loss"] < row["loss"] - 1e-4 for row in rows)


def utility_columns(models: Sequence[Finished], weights: str) -> Row:
    """Mean test scores of some models, with intervals over the models."""
    scores = [model.value[weights] for model in models]
    row: Row = {}
    for name in ("intent_accuracy", "slot_f1", "exact_match"):
        row |= columns(name, mean([float(score[name]) for score in scores]))
    return row | {"epoch": fmean(float(score["epoch"]) for score in scores)}
