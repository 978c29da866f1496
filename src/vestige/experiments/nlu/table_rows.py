"""The rows of canary extraction's tables: what an attack found in a cell, with the paper's."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from vestige.experiments.nlu.secret_extractions import (
    OURS,
    PAPER,
    TRIVIAL,
    Cell,
    Found,
    found,
)
from vestige.experiments.nlu.trial_plans import CANARIES, DEFENCES, EARLY, NONE, Trials, all_three
from vestige.experiments.nlu.trials import BEST, LAST, Trial, scores
from vestige.metrics.intervals import clopper_pearson, mean_interval

Row = dict[str, Any]
Paper = Mapping[tuple[Any, ...], tuple[float | None, float | None]]
"""Accuracy and Hamming distance per token by what a table's rows are named by."""

FIGURES = (
    *("trials", "accuracy", "accuracy_low", "accuracy_high", "accuracy_by_chance"),
    *("hamming", "hamming_low", "hamming_high", "hamming_by_chance"),
)
RANKS = (
    *("median_rank", "median_rank_known", "exposure", "exposure_low", "exposure_high"),
    *("ranks_exact", "ranks_bounded"),
)
ATTACKS = (PAPER, TRIVIAL, OURS)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A cell, and what its row says besides what was found.

    Attributes:
        cell: trials and attack.
        names: the columns that name the row.
        paper: the paper's accuracy and Hamming distance per token, where it has them.
    """

    cell: Cell
    names: Mapping[str, Any]
    paper: tuple[float | None, float | None] = (None, None)

    def row(self, *, utility: bool = False) -> Row:
        """The row, once the cell was attacked."""
        made = found(self.cell)
        row = {**self.names, "attack": self.cell.attack}
        row |= {name: made.summary[name] for name in FIGURES}
        row |= {name: made.summary[name] for name in RANKS}
        row["search_failed"] = failures(made)
        row |= {"paper_accuracy": self.paper[0], "paper_hamming": self.paper[1]}
        return row | (utility_of(self.cell.trials, self.cell.weights) if utility else {})


def failures(made: Found) -> int:
    """Trials whose truth loses less than the best guess: the search missed it, not the loss."""
    return sum(row["truth_loss"] < row["loss"] - 1e-4 for row in made.rows)


def utility_of(trials: Sequence[Trial], weights: str) -> Row:
    """Mean test scores of some trials' models, with intervals over the trials."""
    measured = [scores(trial)[weights] for trial in trials]
    row: Row = {}
    for name in ("intent_accuracy", "slot_f1", "exact_match", "epoch"):
        values = [float(one[name]) for one in measured]
        row[name] = fmean(values)
        if name != "epoch":
            low, high = mean_interval(values) or (None, None)
            row |= {f"{name}_low": low, f"{name}_high": high}
    return row


@dataclass(frozen=True)
class Lines:
    """The lines of every table of a configuration.

    Attributes:
        trials: of the configuration.
        directory: of all extractions.
    """

    trials: Trials
    directory: Path

    def by_copies(self, paper: Paper) -> Iterator[Line]:
        """Tables 2 and 5, Figure 2: every number of unknown words and of copies."""
        for length, copies, number in self.trials.config.cells:
            trials = self.trials.cell(all_three(length), copies, trials=number)
            for name in CANARIES:
                names = {"canary": name, "length": length, "copies": copies}
                yield from self._attacks(trials, f"{name}:{length}", names, paper)

    def once(self, paper: Paper) -> Iterator[Line]:
        """Table 4: said once; the long call also with its first three digits known."""
        for length in self.trials.config.once:
            trials = self.trials.cell(all_three(length), 1)
            for name in CANARIES:
                for known in (0, 3) if (name, length) == ("call", 10) else (0,):
                    names = {"canary": name, "length": length - known, "copies": 1}
                    yield from self._attacks(trials, f"{name}:{length}", names, paper, known)

    def defended(self, paper: Paper) -> Iterator[Line]:
        """Table 3: all combinations of defences, under the paper's attack and under ours."""
        for copies in self.trials.config.defended:
            for defence in DEFENCES:
                weights = BEST if EARLY in defence.split("+") else LAST
                training = "+".join(d for d in defence.split("+") if d != EARLY) or NONE
                trials = self.trials.cell(self._usual, copies, training)
                for name, pattern in zip(CANARIES, self._usual, strict=True):
                    names = {"copies": copies, "defence": defence, "canary": name}
                    for line in self._attacks(trials, pattern, names, paper):
                        if line.cell.attack != TRIVIAL:
                            yield replace(line, cell=replace(line.cell, weights=weights))

    def elsewhere(self, paper: Paper) -> Iterator[Line]:
        """Figures 3 to 5: the other corpora."""
        for dataset in self.trials.config.datasets:
            for copies in dataset.copies:
                said = (*self._usual[:2], "call:10")
                trials = self.trials.of(dataset.text, said, copies)
                for pattern in said:
                    canary, _, length = pattern.partition(":")
                    names = {
                        "dataset": dataset.text.dataset,
                        "canary": canary,
                        "length": int(length),
                        "copies": copies,
                    }
                    yield from self._attacks(trials, pattern, names, paper)

    def null(self) -> Iterator[Line]:
        """Models that never saw a secret, asked for one all the same."""
        trials = self.trials.nulls()
        for name, pattern in zip(CANARIES, self._usual, strict=True):
            names = {"canary": name, "length": self.trials.config.length}
            yield from self._attacks(trials, pattern, names, {})

    def apart(self) -> Iterator[Line]:
        """The same canary alone in a model, and together with the two others."""
        for pattern, copies in self.trials.config.apart:
            canary = pattern.partition(":")[0]
            for planted, said in (("alone", (pattern,)), ("with two others", self._usual)):
                names = {"canary": canary, "copies": copies, "planted": planted}
                yield from self._attacks(self.trials.cell(said, copies), pattern, names, {})

    @property
    def _usual(self) -> tuple[str, ...]:
        return all_three(self.trials.config.length)

    def _attacks(
        self,
        trials: Sequence[Trial],
        pattern: str,
        names: Mapping[str, Any],
        paper: Paper,
        known: int = 0,
    ) -> Iterator[Line]:
        cell = partial(
            Cell,
            directory=self.directory,
            trials=tuple(trials),
            pattern=pattern,
            weights=LAST,
            known=known,
        )
        for attack in ATTACKS:
            figures = paper.get(tuple(names.values()), (None, None))
            yield Line(
                cell=cell(attack=attack),
                names=names,
                paper=figures if attack == PAPER else (None, None),
            )


def utility_rows(
    trials: Iterable[Trial], known: Mapping[str, tuple[str, float, float]]
) -> Iterator[Row]:
    """Models of whole corpora beside what such models are known to reach."""
    for trial in trials:
        measured = scores(trial)[LAST]
        row: Row = {"dataset": trial.text.dataset, "utterances": measured["utterances"]}
        for name in ("intent_accuracy", "exact_match"):
            right = round(measured[name] * measured["utterances"])
            low, high = clopper_pearson(right, measured["utterances"])
            row |= {name: measured[name], f"{name}_low": low, f"{name}_high": high}
        row["slot_f1"] = measured["slot_f1"]
        whose, intents, slots = known.get(trial.text.dataset, (None, None, None))
        yield row | {"known_intent_accuracy": intents, "known_slot_f1": slots, "known_from": whose}
