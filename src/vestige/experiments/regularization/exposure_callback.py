"""Trainings whose exposure is measured on the way: at every evaluation, and all at perplexities.

What is measured is written beside the training's checkpoints, a file for each step or level, so
that an interrupted training writes the same again and a finished one can be read.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige.attacks.exposure.completion import complete
from vestige.attacks.exposure.reference_space import space_words
from vestige.attacks.exposure.sequence_scores import sequence_log_probs
from vestige.data.atomic_write import write_text
from vestige.data.canary import Canary
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.shuffled_controls import shuffled
from vestige.data.vocabulary import Vocabulary
from vestige.defences.author_probe import probe_authors
from vestige.defences.registry import Defence
from vestige.experiments.runner import Trial
from vestige.metrics.exposure import sampled_exposure
from vestige.models.checkpoints import save_model
from vestige.models.protocols import LanguageModel, choose_device
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import score_documents
from vestige.training.history import EpochRecord, StopAtPerplexity
from vestige.training.presets import Shape, new_model
from vestige.training.snapshot import snapshot

REFERENCES = 2**12
FAR = 1.25


@dataclass(frozen=True, kw_only=True)
class MeasuredTraining(Trial):
    """A training that is measured where it reaches perplexities, and ends at the last of them.

    Attributes:
        corpus: what it learns.
        vocabulary: what the ids mean.
        config: how it learns; its seed draws fresh weights too.
        shape: of the model.
        test: decides which perplexity is reached.
        defence: under which it learns.
        levels: perplexities on the test text, falling.
        canaries: whose exposure is measured.
        original: the corpus without canaries; a fresh discriminator tells its authors at the end.
    """

    outputs = ("model", "levels", "watched")
    corpus: Corpus
    vocabulary: Vocabulary
    config: TrainingConfig
    shape: Shape
    test: Corpus
    defence: Defence
    levels: tuple[float, ...]
    canaries: tuple[Canary, ...]
    original: Corpus

    def make(self) -> dict[str, object]:
        """Train, or go on; seconds of learning."""
        callback = ExposureCallback(
            directory=self.directory,
            canaries=self.canaries,
            levels=self.levels,
            validation=encode(self.test, self.vocabulary),
            probed=encode(self.original, self.vocabulary),
            sequence_length=self.config.sequence_length,
        )
        snapshot(
            self.directory,
            self.corpus,
            start=self._fresh,
            vocabulary=self.vocabulary,
            config=self.config,
            validation=self.test,
            defence=self.defence,
            stop=StopAtPerplexity(self.levels[-1]),
            observe=callback,
        )
        history = json.loads((self.directory / "history.json").read_text("utf-8"))
        return {"seconds": sum(record["seconds"] for record in history)}

    def measures(self, level: float) -> dict[str, Any] | None:
        """What was measured when the training reached a level; None where it never did."""
        file = self.level_folder(level) / "measures.json"
        return json.loads(file.read_text("utf-8")) if file.is_file() else None

    def exposures_at(self, level: float) -> dict[str, Any] | None:
        """Exposures interpolated at a level; None where the training never reached it."""
        return at_level(watched(self.directory), level)

    def level_folder(self, level: float) -> Path:
        """Where the model of a level is kept, with `measures.json`."""
        return level_folder(self.directory, level)

    def _fresh(self) -> LanguageModel:
        return new_model(self.vocabulary, self.shape, seed=self.config.seed).to(choose_device())


@dataclass(frozen=True, kw_only=True)
class ExposureCallback:
    """An `ObserveFn` that writes what it measures.

    Attributes:
        directory: of the training; `watched` and `levels` are made in it.
        canaries: with ids, all of one length, planted ones and controls.
        levels: validation perplexities, falling.
        validation: on which they are measured.
        probed: documents of users whose authors are told at the last level.
        sequence_length: in which documents are read.
        references: random sequences of the canaries' own kind of words.
        seed: of the references.
    """

    directory: Path
    canaries: tuple[Canary, ...]
    levels: tuple[float, ...]
    validation: EncodedCorpus
    probed: EncodedCorpus
    sequence_length: int
    references: int = REFERENCES
    seed: int = 0

    def __call__(self, model: LanguageModel, record: EpochRecord) -> None:
        """Write exposures; at the first evaluation at or below a level all other measures, too.

        What is far above the first level is never read, and not written.
        """
        perplexity = record.validation_perplexity
        if perplexity is None:
            raise ValueError("record must have a validation perplexity, got None")
        if perplexity > FAR * self.levels[0]:
            return
        seen = {
            "step": record.step,
            "epoch": record.epoch,
            "perplexity": perplexity,
            "accuracy": record.validation_accuracy,
            "training_perplexity": record.perplexity,
            "exposure": self._exposures(model),
        }
        for level in self.levels:
            folder = level_folder(self.directory, level)
            if perplexity <= level and not _passed_before(folder, record.step):
                save_model(model, folder)
                measures = self._measures(model) | self._probe(model, level)
                write_text(folder / "measures.json", json.dumps(seen | measures))
        write_text(_watched(self.directory) / f"{record.step:08}.json", json.dumps(seen))

    def _exposures(self, model: LanguageModel) -> dict[str, dict[str, float]]:
        """Mean exposure in bits of canaries and of their shuffled controls, by copies."""
        against = _log_perplexity(model, self._references(model.vocabulary))
        found = {
            "canary": sampled_exposure(_log_perplexity(model, self._ids), against),
            "shuffled": sampled_exposure(_log_perplexity(model, self._shuffled), against),
        }
        means: dict[str, dict[str, float]] = {}
        for kind, exposure in found.items():
            means[kind] = {
                str(k): float(exposure.exposure[self._copies == k].mean())
                for k in np.unique(self._copies).tolist()
            }
        ceiling = found["canary"].at_ceiling
        means["at_ceiling"] = {
            str(k): float(ceiling[self._copies == k].mean())
            for k in np.unique(self._copies).tolist()
        }
        return means

    def _measures(self, model: LanguageModel) -> dict[str, Any]:
        completed = complete(model, self.canaries, beam=1)
        scores = score_documents(model, self.validation, sequence_length=self.sequence_length)
        return {
            "completion": completed.summary(),
            "completed": {
                str(copies): [rate.successes, rate.trials]
                for copies, rate in completed.by_copies().items()
            },
            "loss": scores.loss.tolist(),
            "tokens": scores.tokens.tolist(),
        }

    def _probe(self, model: LanguageModel, level: float) -> dict[str, Any]:
        if level != self.levels[-1]:
            return {}
        length = self.sequence_length
        return dict(probe_authors(model, self.probed, sequence_length=length, seed=0).summary())

    @cached_property
    def _ids(self) -> Tensor:
        return torch.tensor([canary.ids for canary in self.canaries])

    @cached_property
    def _shuffled(self) -> Tensor:
        return torch.tensor([shuffled(canary.ids) or canary.ids for canary in self.canaries])

    @cached_property
    def _copies(self) -> NDArray[np.int64]:
        return np.array([canary.copies for canary in self.canaries])

    def _references(self, vocabulary: Vocabulary) -> Tensor:
        """References made as the canaries were: different words, each as likely as another."""
        if "drawn" not in self.__dict__:  # as cached_property does, with an argument
            self.__dict__["drawn"] = self._draw(vocabulary)
        drawn: Tensor = self.__dict__["drawn"]
        return drawn

    def _draw(self, vocabulary: Vocabulary) -> Tensor:
        words = [vocabulary.encode(word)[0] for word in space_words(vocabulary, self.canaries)]
        generator = np.random.default_rng(self.seed)
        length = self._ids.shape[1]
        rows = [generator.choice(words, length, replace=False) for _ in range(self.references)]
        return torch.from_numpy(np.array(rows))


def watched(directory: Path) -> list[dict[str, Any]]:
    """What a watched training wrote at its evaluations, in their order."""
    files = sorted(_watched(directory).glob("*.json"))
    return [json.loads(file.read_text("utf-8")) for file in files]


def level_folder(directory: Path, level: float) -> Path:
    """Where the model of a level is kept, with `measures.json`."""
    return directory / "levels" / f"{level:g}"


def at_level(seen: Sequence[Mapping[str, Any]], level: float) -> dict[str, Any] | None:
    """Exposures as they were when a training passed a perplexity; None where it never did.

    Between the two evaluations around the level everything is taken to be linear in the logarithm
    of the perplexity.
    """
    after = next((i for i, one in enumerate(seen) if one["perplexity"] <= level), None)
    if after is None:
        return None
    if after == 0:
        return dict(seen[0])
    before, then = seen[after - 1], seen[after]
    high, low = math.log(before["perplexity"]), math.log(then["perplexity"])
    share = (high - math.log(level)) / (high - low)
    return {"perplexity": level, **_between(before, then, share)}


def _between(one: Mapping[str, Any], other: Mapping[str, Any], share: float) -> dict[str, Any]:
    mixed: dict[str, Any] = {}
    for name, value in one.items():
        if isinstance(value, Mapping):
            mixed[name] = _between(value, other[name], share)
        elif name != "perplexity" and isinstance(value, int | float):
            mixed[name] = value + share * (other[name] - value)
    return mixed


def _watched(directory: Path) -> Path:
    folder = directory / "watched"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _passed_before(folder: Path, step: int) -> bool:
    file = folder / "measures.json"
    return file.is_file() and json.loads(file.read_text("utf-8"))["step"] < step


def _log_perplexity(model: LanguageModel, tokens: Tensor) -> NDArray[np.float64]:
    return -sequence_log_probs(model, tokens).double().sum(1).cpu().numpy()
