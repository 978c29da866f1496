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
from reproduction.regularization.user_texts import Users
from reproduction.stages import stage
from vestige.audits.exposure.references import space_words
from vestige.audits.extraction.canaries import complete
from vestige.data.canaries.texts import shuffled
from vestige.data.encoded import encode
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


@stage(outputs=("model", "levels"))
def measured_training(
    users: Users,
    config: TrainingConfig,
    shape: Shape,
    defence: Defence,
    levels: Sequence[float],
    *,
    folder: Path,
) -> dict[str, Any]:
    """Train on the users' planted text until the test perplexity reaches the last, lowest level.

    The result has seconds of learning, what was measured at the evaluations (`watched`), and, by
    level as text, what was measured when the training reached it (`levels`).
    """
    measured = Measures(users, config, tuple(levels), folder)
    snapshot(
        folder,
        users.planted,
        start=lambda: new_model(users.vocabulary, shape, seed=config.seed).to(choose_device()),
        vocabulary=users.vocabulary,
        config=config,
        validation=users.test,
        defence=defence,
        stop=StopAtPerplexity(levels[-1]),
        observe=measured.observe,
    )
    history = json.loads((folder / "history.json").read_text("utf-8"))
    reached = {f"{level:g}": measured.at(level) for level in levels}
    return {
        "seconds": sum(record["seconds"] for record in history),
        "watched": measured.watched(),
        "levels": {level: found for level, found in reached.items() if found is not None},
    }


@dataclass(frozen=True)
class Measures:
    """What is measured of a training while it learns, in files of its folder."""

    users: Users
    config: TrainingConfig
    levels: tuple[float, ...]
    folder: Path

    def watched(self) -> list[dict[str, Any]]:
        """What was measured at the evaluations, in their order."""
        files = sorted((self.folder / "watched").glob("*.json"))
        return [json.loads(file.read_text("utf-8")) for file in files]

    def at(self, level: float) -> dict[str, Any] | None:
        """What was measured when the training reached a level; None where it never did."""
        file = level_folder(self.folder, level) / "measures.json"
        return json.loads(file.read_text("utf-8")) if file.is_file() else None

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
            "exposure": self.exposures(model),
        }
        for level in self.levels:
            earlier = self.at(level)
            if perplexity <= level and (earlier is None or earlier["step"] >= record.step):
                place = level_folder(self.folder, level)
                save_model(model, place)
                measures = self._documents(model) | self._author_probe(model, level)
                write_text(place / "measures.json", json.dumps(seen | measures))
        write_text(self.folder / "watched" / f"{record.step:08}.json", json.dumps(seen))

    def exposures(self, model: LanguageModel) -> dict[str, dict[str, float]]:
        """Mean exposure in bits of canaries and of their shuffled controls, by copies."""
        canaries = self.users.canaries
        ids = [canary.ids for canary in canaries]
        others = [shuffled(canary.ids) or canary.ids for canary in canaries]
        against = -text_log_probs(model, self.references.tolist())
        found = sampled_exposure(-text_log_probs(model, ids), against)
        controls = sampled_exposure(-text_log_probs(model, others), against)
        copies = np.array([canary.copies for canary in canaries])

        def by_copies(values: NDArray[Any]) -> dict[str, float]:
            return {str(k): float(values[copies == k].mean()) for k in np.unique(copies).tolist()}

        return {
            "canary": by_copies(found.exposure),
            "shuffled": by_copies(controls.exposure),
            "at_ceiling": by_copies(found.at_ceiling),
        }

    @cached_property
    def references(self) -> Tensor:
        """(r, n) ids, made as the canaries were: different words, each as likely as another."""
        vocabulary, canaries = self.users.vocabulary, self.users.canaries
        words = [vocabulary.encode(word)[0] for word in space_words(vocabulary, canaries)]
        generator, length = np.random.default_rng(0), len(canaries[0].ids)
        rows = [generator.choice(words, length, replace=False) for _ in range(REFERENCES)]
        return torch.from_numpy(np.array(rows))

    def _documents(self, model: LanguageModel) -> dict[str, Any]:
        """Completions of canaries, and losses of test documents."""
        completed = complete(model, self.users.canaries, beam=1)
        test = encode(self.users.test, self.users.vocabulary)
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
        """A fresh discriminator of the authors, at the last level."""
        if level != self.levels[-1]:
            return {}
        text, length = (
            encode(self.users.original, self.users.vocabulary),
            self.config.sequence_length,
        )
        return dict(probe_authors(model, text, sequence_length=length, seed=0).summary())


def level_folder(folder: Path, level: float) -> Path:
    """Where a training's model of a level is kept, with `measures.json`."""
    return folder / "levels" / f"{level:g}"


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
