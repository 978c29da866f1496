"""The lines of canary extraction's tables: models, attacks, what was found, the paper's numbers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from reproduction.nlu.planted_models import BEST, LAST, Learner, PlantedModel
from reproduction.nlu.secret_extractions import OURS, PAPER, TRIVIAL, SecretExtraction
from reproduction.nlu.utterance_texts import UtteranceText
from reproduction.papers import Numbers, Row
from vestige.metrics.estimates import Estimate, clopper_pearson, columns, mean

CANARIES = ("color", "pin", "call")
NONE, EARLY = "none", "ES"
TRAININGS = {NONE: (False, False), "D": (True, False), "CE": (False, True), "D+CE": (True, True)}
"""Defences that need a training of their own: whether with dropout, whether with characters."""

DEFENCES = ("none", "D", "ES", "CE", "D+ES", "ES+CE", "D+CE", "D+ES+CE")
"""All of them; with ES the weights are those of the best epoch."""

ATTACKS = (PAPER, TRIVIAL, OURS)
FIGURES = (
    *("trials", "accuracy", "accuracy_low", "accuracy_high", "accuracy_by_chance"),
    *("hamming", "hamming_low", "hamming_high", "hamming_by_chance"),
    *("median_rank", "median_rank_known", "exposure", "exposure_low", "exposure_high"),
    *("ranks_exact", "ranks_bounded"),
)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A corpus of Figures 3 to 5, and how often its secrets are said."""

    text: UtteranceText
    copies: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What is computed, at one scale.

    Attributes:
        text: that most tables stand on.
        learner: the undefended model.
        trials: secrets and models for each line, unless it says otherwise.
        cells: numbers of unknown words, copies and trials (Tables 2 and 5, Figure 2).
        once: numbers of unknown words of all three canaries that are said once (Table 4).
        length: unknown words where the paper has four (Table 3, Figures 3 to 5, the null).
        defended: copies (Table 3).
        datasets: of Figures 3 to 5.
        apart: canaries that are planted alone as well, and how often each is said.
        references: models that never saw a secret, for the null rows.
        complete: corpora whose utility is measured whole.
        complete_learner: the model that learns them.
    """

    text: UtteranceText
    learner: Learner
    trials: int
    cells: tuple[tuple[int, int, int], ...]
    once: tuple[int, ...]
    length: int
    defended: tuple[int, ...]
    datasets: tuple[Dataset, ...]
    apart: tuple[tuple[str, int], ...]
    references: int
    complete: tuple[UtteranceText, ...]
    complete_learner: Learner


@dataclass(frozen=True, kw_only=True)
class Line:
    """An attack, and what its row says besides what was found.

    Attributes:
        extraction: the attack.
        names: the columns that name the row.
        paper: the paper's accuracy and Hamming distance per token, where it has them.
        utility: whether the row says how well the models predict.
    """

    extraction: SecretExtraction
    names: Mapping[str, Any]
    paper: Mapping[str, float | None] = field(default_factory=dict)
    utility: bool = False

    def row(self) -> Row:
        """The row, once the attack is finished."""
        found, attacked = self.extraction.result(), self.extraction
        row = {
            **self.names,
            "attack": attacked.attack,
            **{name: found["summary"][name] for name in FIGURES},
            "search_failed": failures(found["rows"]),
            "paper_accuracy": self.paper.get("accuracy"),
            "paper_hamming": self.paper.get("hamming"),
        }
        return row | (utility_of(attacked.models, attacked.weights) if self.utility else {})


def failures(rows: Iterable[Mapping[str, Any]]) -> int:
    """Models whose truth loses less than the best guess: the search missed it, not the loss."""
    return sum(row["truth_loss"] < row["loss"] - 1e-4 for row in rows)


def utility_of(models: Sequence[PlantedModel], weights: str) -> Row:
    """Mean test scores of some models, with intervals over the models."""
    measured = [model.result()[weights] for model in models]
    row: Row = {}
    for name in ("intent_accuracy", "slot_f1", "exact_match"):
        values = [float(one[name]) for one in measured]
        row |= columns(name, mean(values))
    return row | {"epoch": fmean(float(one["epoch"]) for one in measured)}


def utility_rows(models: Iterable[PlantedModel], known: Numbers) -> Iterator[Row]:
    """Models of whole corpora beside what such models are known to reach."""
    for model in models:
        measured = model.result()[LAST]
        row: Row = {"dataset": model.text.dataset, "utterances": measured["utterances"]}
        for name in ("intent_accuracy", "exact_match"):
            n = measured["utterances"]
            ends = clopper_pearson(round(measured[name] * n), n)
            row |= columns(name, Estimate(name, measured[name], *ends, n=n))
        row["slot_f1"] = measured["slot_f1"]
        others = known.get((model.text.dataset,), {})
        names = ("known_intent_accuracy", "known_slot_f1", "known_from")
        yield row | {name: others.get(name) for name in names}


def all_three(length: int) -> tuple[str, ...]:
    """The paper's three canaries, to be planted in one model."""
    return tuple(f"{name}:{length}" for name in CANARIES)


@dataclass(frozen=True)
class Lines:
    """The models and the lines of every table at one scale.

    Attributes:
        scale: what is computed.
        directory: models stand in its `trials`, attacks in its `extractions`.
        data: the folder of corpora.
    """

    scale: Scale
    directory: Path
    data: Path | None

    def by_copies(self, paper: Numbers) -> Iterator[Line]:
        """Tables 2 and 5, Figure 2: every number of unknown words and of copies."""
        for length, copies, number in self.scale.cells:
            models = self.models(all_three(length), copies, seeds=range(number))
            for name in CANARIES:
                names = {"canary": name, "length": length, "copies": copies}
                yield from self._attacks(models, f"{name}:{length}", names, paper)

    def once(self, paper: Numbers) -> Iterator[Line]:
        """Table 4: said once; the long call also with its first three digits known."""
        for length in self.scale.once:
            models = self.models(all_three(length), 1)
            for name in CANARIES:
                for known in (0, 3) if (name, length) == ("call", 10) else (0,):
                    names = {"canary": name, "length": length - known, "copies": 1}
                    yield from self._attacks(models, f"{name}:{length}", names, paper, known)

    def defended(self, paper: Numbers) -> Iterator[Line]:
        """Table 3: all combinations of defences, under the paper's attack and under ours."""
        for copies in self.scale.defended:
            for defence in DEFENCES:
                weights = BEST if EARLY in defence.split("+") else LAST
                training = "+".join(d for d in defence.split("+") if d != EARLY) or NONE
                models = self.models(self._usual, copies, training)
                for name, pattern in zip(CANARIES, self._usual, strict=True):
                    names = {"copies": copies, "defence": defence, "canary": name}
                    for line in self._attacks(models, pattern, names, paper, weights=weights):
                        if line.extraction.attack != TRIVIAL:
                            yield replace(line, utility=True)

    def elsewhere(self) -> Iterator[Line]:
        """Figures 3 to 5: the other corpora."""
        for dataset in self.scale.datasets:
            for copies in dataset.copies:
                said = (*self._usual[:2], "call:10")
                models = self.models(said, copies, text=dataset.text)
                for pattern in said:
                    canary, _, length = pattern.partition(":")
                    names = {
                        "dataset": dataset.text.dataset,
                        "canary": canary,
                        "length": int(length),
                        "copies": copies,
                    }
                    yield from self._attacks(models, pattern, names)

    def null(self) -> Iterator[Line]:
        """Models that know the canaries' words and labels, and no secret, and are attacked."""
        models = self.models(self._usual, 0, seeds=range(1000, 1000 + self.scale.references))
        for name, pattern in zip(CANARIES, self._usual, strict=True):
            yield from self._attacks(models, pattern, {"canary": name, "length": self.scale.length})

    def apart(self) -> Iterator[Line]:
        """The same canary alone in a model, and together with the two others."""
        for pattern, copies in self.scale.apart:
            canary = pattern.partition(":")[0]
            for planted, said in (("alone", (pattern,)), ("with two others", self._usual)):
                names = {"canary": canary, "copies": copies, "planted": planted}
                yield from self._attacks(self.models(said, copies), pattern, names)

    def complete(self) -> list[PlantedModel]:
        """A model for each whole corpus, without secrets."""
        usual = (self._usual, 0, self.scale.complete_learner, f"{NONE}-whole", 0)
        return [self._model(text, *usual) for text in self.scale.complete]

    def models(
        self,
        patterns: tuple[str, ...],
        copies: int,
        training: str = NONE,
        *,
        text: UtteranceText | None = None,
        seeds: Iterable[int] | None = None,
    ) -> tuple[PlantedModel, ...]:
        """A model for each seed, which has learnt its own secrets, each said so often.

        Args:
            patterns: of the secrets.
            copies: of each.
            training: one of `TRAININGS`.
            text: what is learnt besides; None: the scale's.
            seeds: None: as many as the scale has trials.
        """
        dropout, characters = TRAININGS[training]
        learner = replace(self.scale.learner, dropout=dropout, characters=characters)
        seeds = range(self.scale.trials) if seeds is None else seeds
        made = (text or self.scale.text, patterns, copies, learner, training)
        return tuple(self._model(*made, seed) for seed in seeds)

    @property
    def _usual(self) -> tuple[str, ...]:
        return all_three(self.scale.length)

    def _model(
        self,
        text: UtteranceText,
        patterns: tuple[str, ...],
        copies: int,
        learner: Learner,
        training: str,
        seed: int,
    ) -> PlantedModel:
        said = "-".join(pattern.replace(":", "") for pattern in patterns)
        name = f"{text.dataset}-{said}-R{copies}-{training}-{seed}"
        return PlantedModel(
            directory=self.directory / "trials" / name,
            data=self.data,
            text=text,
            patterns=patterns,
            copies=copies,
            learner=learner,
            seed=seed,
        )

    def _attacks(
        self,
        models: tuple[PlantedModel, ...],
        pattern: str,
        names: Mapping[str, Any],
        paper: Numbers | None = None,
        known: int = 0,
        weights: str = LAST,
    ) -> Iterator[Line]:
        """A line for each attack; the paper's figures stand beside its own."""
        of = models[0].directory.name.rpartition("-")[0]
        said = pattern.replace(":", "") + (f"-known{known}" if known else "")
        figures = (paper or {}).get(tuple(names.values()), {})
        for attack in ATTACKS:
            name = f"{of}-{weights}-{said}-{attack}-{len(models)}"
            extraction = SecretExtraction(
                directory=self.directory / "extractions" / name,
                models=models,
                pattern=pattern,
                weights=weights,
                attack=attack,
                known=known,
            )
            theirs = figures if attack == PAPER else {}
            yield Line(extraction=extraction, names=names, paper=theirs)
