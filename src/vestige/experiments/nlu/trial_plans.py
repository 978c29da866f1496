"""Which trials fill the tables of canary extraction, at one scale."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vestige.experiments.nlu.trials import Learner, Trial
from vestige.experiments.nlu.utterance_texts import UtteranceText

CANARIES = ("color", "pin", "call")
NONE, EARLY = "none", "ES"
TRAININGS = {NONE: (False, False), "D": (True, False), "CE": (False, True), "D+CE": (True, True)}
"""Defences that need a training of their own: whether with dropout, whether with characters."""

DEFENCES = ("none", "D", "ES", "CE", "D+ES", "ES+CE", "D+CE", "D+ES+CE")
"""All of them; with ES the weights are those of the best epoch."""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A corpus of Figures 3 to 5, and how often its secrets are said."""

    text: UtteranceText
    copies: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is computed, at one scale.

    Attributes:
        text: that most tables stand on.
        learner: the undefended model.
        trials: secrets and models for each cell, unless it says otherwise.
        cells: numbers of unknown words, copies and trials (Tables 2 and 5, Figure 2).
        once: numbers of unknown words of all three canaries that are said once (Table 4).
        length: unknown words where the paper has four (Table 3, Figures 3 to 5, the null).
        defended: copies (Table 3).
        datasets: of Figures 3 to 5.
        apart: canaries that are planted alone as well, and how often each is said.
        references: models that never saw a secret, for the null and the calibrated objective.
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


def all_three(length: int) -> tuple[str, ...]:
    """The paper's three canaries, to be planted in one model."""
    return tuple(f"{name}:{length}" for name in CANARIES)


@dataclass(frozen=True)
class Trials:
    """The trials of a configuration, in their directory.

    Attributes:
        config: what is computed.
        directory: of all trials.
        data: the folder of corpora.
    """

    config: Config
    directory: Path
    data: Path | None

    def cell(
        self,
        patterns: tuple[str, ...],
        copies: int,
        training: str = NONE,
        *,
        trials: int | None = None,
    ) -> list[Trial]:
        """A trial for each seed: secrets said so often, and learnt so."""
        seeds = range(trials or self.config.trials)
        return list(self._seeds(self.config.text, patterns, copies, training, seeds))

    def of(self, text: UtteranceText, patterns: tuple[str, ...], copies: int) -> list[Trial]:
        """The same in another text, undefended."""
        return list(self._seeds(text, patterns, copies, NONE, range(self.config.trials)))

    def nulls(self) -> list[Trial]:
        """Models that know the canaries' words and labels, and no secret."""
        length = self.config.length
        seeds = range(1000, 1000 + self.config.references)
        return list(self._seeds(self.config.text, all_three(length), 0, NONE, seeds))

    def complete(self) -> list[Trial]:
        """A model for each whole corpus, without secrets."""
        learner = self.config.complete_learner
        return [
            self._trial(text, all_three(self.config.length), 0, learner, f"{NONE}-whole", 0)
            for text in self.config.complete
        ]

    def _seeds(
        self,
        text: UtteranceText,
        patterns: tuple[str, ...],
        copies: int,
        training: str,
        seeds: range,
    ) -> Iterator[Trial]:
        dropout, characters = TRAININGS[training]
        learner = replace(self.config.learner, dropout=dropout, characters=characters)
        for seed in seeds:
            yield self._trial(text, patterns, copies, learner, training, seed)

    def _trial(
        self,
        text: UtteranceText,
        patterns: tuple[str, ...],
        copies: int,
        learner: Learner,
        training: str,
        seed: int,
    ) -> Trial:
        said = "-".join(pattern.replace(":", "") for pattern in patterns)
        return Trial(
            directory=self.directory / f"{text.dataset}-{said}-R{copies}-{training}-{seed}",
            data=self.data,
            text=text,
            patterns=patterns,
            copies=copies,
            learner=learner,
            seed=seed,
        )
