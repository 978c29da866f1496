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

from reproduction.regularization.author_probe import probe_authors
from reproduction.runner import Trial
from vestige.audits.exposure.references import space_words
from vestige.audits.extraction.canaries import complete
from vestige.data.canaries.texts import Canary, shuffled
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import Vocabulary
from vestige.data.writing import write_text
from vestige.defences.registry import Defence
from vestige.metrics.exposure import sampled_exposure
from vestige.models.checkpoints import save_model
from vestige.models.predictions import text_log_probs
from vestige.models.protocols import LanguageModel, choose_device
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import score_documents
from vestige.training.history import EpochRecord, StopAtPerplexity
from vestige.training.new_models import new_model
from vestige.training.presets import Shape
from vestige.training.recipe import snapshot

REFERENCES = 2**12
FAR = 1.25
"""Times the first level: what has a perplexity above that is not measured."""


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
        snapshot(
            self.directory,
            self.corpus,
            start=self._fresh,
            vocabulary=self.vocabulary,
            config=self.config,
            validation=self.test,
            defence=self.defence,
            stop=StopAtPerplexity(self.levels[-1]),
            observe=self.observe,
        )
        history = json.loads((self.directory / "history.json").read_text("utf-8"))
        return {"seconds": sum(record["seconds"] for record in history)}

    def measures(self, level: float) -> dict[str, Any] | None:
        """What was measured when the training reached a level; None where it never did."""
        file = self.level_folder(level) / "measures.json"
        return json.loads(file.read_text("utf-8")) if file.is_file() else None

    def watched(self) -> list[dict[str, Any]]:
        """What was measured at the evaluations, in their order."""
        files = sorted((self.directory / "watched").glob("*.json"))
        return [json.loads(file.read_text("utf-8")) for file in files]

    def level_folder(self, level: float) -> Path:
        """Where the model of a level is kept, with `measures.json`."""
        return self.directory / "levels" / f"{level:g}"

    def observe(self, model: LanguageModel, record: EpochRecord) -> None:
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
            earlier = self.measures(level)
            if perplexity <= level and (earlier is None or earlier["step"] >= record.step):
                save_model(model, self.level_folder(level))
                measures = self._measures(model) | self._author_probe(model, level)
                file = self.level_folder(level) / "measures.json"
                write_text(file, json.dumps(seen | measures))
        write_text(self.directory / "watched" / f"{record.step:08}.json", json.dumps(seen))

    def _fresh(self) -> LanguageModel:
        return new_model(self.vocabulary, self.shape, seed=self.config.seed).to(choose_device())

    def _exposures(self, model: LanguageModel) -> dict[str, dict[str, float]]:
        """Mean exposure in bits of canaries and of their shuffled controls, by copies."""
        ids = [canary.ids for canary in self.canaries]
        others = [shuffled(canary.ids) or canary.ids for canary in self.canaries]
        against = -text_log_probs(model, self._references.tolist())
        found = sampled_exposure(-text_log_probs(model, ids), against)
        controls = sampled_exposure(-text_log_probs(model, others), against)
        return {
            "canary": self._by_copies(found.exposure),
            "shuffled": self._by_copies(controls.exposure),
            "at_ceiling": self._by_copies(found.at_ceiling),
        }

    def _by_copies(self, values: NDArray[Any]) -> dict[str, float]:
        """Means of the values of the canaries, by number of copies."""
        copies = np.array([canary.copies for canary in self.canaries])
        return {str(k): float(values[copies == k].mean()) for k in np.unique(copies).tolist()}

    def _measures(self, model: LanguageModel) -> dict[str, Any]:
        completed = complete(model, self.canaries, beam=1)
        test = encode(self.test, self.vocabulary)
        scores = score_documents(model, test, sequence_length=self.config.sequence_length)
        return {
            "completion": completed.figures(),
            "completed": {
                str(copies): [rate.count, rate.n] for copies, rate in completed.by_copies().items()
            },
            "loss": scores.loss.tolist(),
            "tokens": scores.tokens.tolist(),
        }

    def _author_probe(self, model: LanguageModel, level: float) -> dict[str, Any]:
        if level != self.levels[-1]:
            return {}
        text, length = encode(self.original, self.vocabulary), self.config.sequence_length
        return dict(probe_authors(model, text, sequence_length=length, seed=0).summary())

    @cached_property
    def _references(self) -> Tensor:
        """(r, n) ids, made as the canaries were: different words, each as likely as another."""
        words = [
            self.vocabulary.encode(word)[0] for word in space_words(self.vocabulary, self.canaries)
        ]
        generator, length = np.random.default_rng(0), len(self.canaries[0].ids)
        rows = [generator.choice(words, length, replace=False) for _ in range(REFERENCES)]
        return torch.from_numpy(np.array(rows))


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
    high, low = before["perplexity"], then["perplexity"]
    share = math.log1p((high - level) / level) / math.log1p((high - low) / low)
    return {"perplexity": level, **_between(before, then, share)}


def _between(one: Mapping[str, Any], other: Mapping[str, Any], share: float) -> dict[str, Any]:
    mixed: dict[str, Any] = {}
    for name, value in one.items():
        if isinstance(value, Mapping):
            mixed[name] = _between(value, other[name], share)
        elif name != "perplexity" and isinstance(value, int | float):
            mixed[name] = value + share * (other[name] - value)
    return mixed
