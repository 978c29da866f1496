"""Trainings that measure exposure at every evaluation, and everything at given perplexities.

Each measurement is a file beside the training's checkpoints, one for each step or level. So an
interrupted training writes the same files again, and a finished one can be read.
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

from reproduction.papers import Row
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
MEASURED_BELOW = 1.25
"""Times the first level: at higher perplexities nothing is measured."""


@stage(outputs=("model", "levels"))
def measured_training(
    users: Users,
    config: TrainingConfig,
    shape: Shape,
    defence: Defence,
    levels: Sequence[float],
    *,
    folder: Path,
) -> Row:
    """Train on the users' planted text until the test perplexity reaches the last, lowest level.

    The result has the seconds of training, the measurements at evaluations (`watched`), and those
    at each level that was reached, by level as text (`levels`).
    """
    measures = Measures(users, config, tuple(levels), folder)
    snapshot(
        folder,
        users.planted,
        start=lambda: new_model(users.vocabulary, shape, seed=config.seed).to(choose_device()),
        vocabulary=users.vocabulary,
        config=config,
        validation=users.test,
        defence=defence,
        stop=StopAtPerplexity(levels[-1]),
        observe=measures.observe,
    )
    history = json.loads((folder / "history.json").read_text("utf-8"))
    at_levels = {f"{level:g}": measures.at(level) for level in levels}
    return {
        "seconds": sum(record["seconds"] for record in history),
        "watched": measures.watched(),
        "levels": {level: measured for level, measured in at_levels.items() if measured},
    }


@dataclass(frozen=True)
class Measures:
    """Measurements of a training, in files of its folder."""

    users: Users
    config: TrainingConfig
    levels: tuple[float, ...]
    folder: Path

    def watched(self) -> list[Row]:
        """The measurements at evaluations, in their order."""
        files = sorted((self.folder / "watched").glob("*.json"))
        return [json.loads(file.read_text("utf-8")) for file in files]

    def at(self, level: float) -> Row | None:
        """The measurements at a level; None if the training has not reached it."""
        file = level_folder(self.folder, level) / "measures.json"
        return json.loads(file.read_text("utf-8")) if file.is_file() else None

    def observe(self, model: LanguageModel, record: EpochRecord) -> None:
        """Write exposures; at the first evaluation at or below a level, all other measures too."""
        perplexity = record.validation_perplexity
        assert perplexity is not None
        if perplexity > MEASURED_BELOW * self.levels[0]:
            return
        evaluation = {
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
                folder = level_folder(self.folder, level)
                save_model(model, folder)
                measured = {**evaluation, **self._document_measures(model)}
                if level == self.levels[-1]:
                    measured |= self._author_probe(model)
                write_text(folder / "measures.json", json.dumps(measured))
        write_text(self.folder / "watched" / f"{record.step:08}.json", json.dumps(evaluation))

    def exposures(self, model: LanguageModel) -> dict[str, dict[str, float]]:
        """Mean exposure in bits of canaries and of their shuffled controls, by copies."""
        canaries = self.users.canaries
        ids = [canary.ids for canary in canaries]
        shuffled_ids = [shuffled(canary.ids) or canary.ids for canary in canaries]
        reference_losses = -text_log_probs(model, self.references.tolist())
        exposure = sampled_exposure(-text_log_probs(model, ids), reference_losses)
        controls = sampled_exposure(-text_log_probs(model, shuffled_ids), reference_losses)
        copies = np.array([canary.copies for canary in canaries])

        def by_copies(values: NDArray[Any]) -> dict[str, float]:
            return {str(k): float(values[copies == k].mean()) for k in np.unique(copies).tolist()}

        return {
            "canary": by_copies(exposure.exposure),
            "shuffled": by_copies(controls.exposure),
            "at_ceiling": by_copies(exposure.at_ceiling),
        }

    @cached_property
    def references(self) -> Tensor:
        """(r, n) ids, generated as the canaries were: different words, all equally probable."""
        vocabulary, canaries = self.users.vocabulary, self.users.canaries
        words = [vocabulary.encode(word)[0] for word in space_words(vocabulary, canaries)]
        rng, length = np.random.default_rng(0), len(canaries[0].ids)
        rows = [rng.choice(words, length, replace=False) for _ in range(REFERENCES)]
        return torch.from_numpy(np.array(rows))

    def _document_measures(self, model: LanguageModel) -> Row:
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

    def _author_probe(self, model: LanguageModel) -> Row:
        text = encode(self.users.original, self.users.vocabulary)
        length = self.config.sequence_length
        return dict(probe_authors(model, text, sequence_length=length, seed=0).summary())


def level_folder(folder: Path, level: float) -> Path:
    """The folder of a training's model at a level, with `measures.json`."""
    return folder / "levels" / f"{level:g}"


def at_level(watched: Sequence[Mapping[str, Any]], level: float) -> Row | None:
    """Exposures when a training passed a perplexity; None if it never did.

    Interpolates between the two evaluations around the level, linearly in the logarithm of the
    perplexity.
    """
    after = next((i for i, seen in enumerate(watched) if seen["perplexity"] <= level), None)
    if after is None:
        return None
    if after == 0:
        return dict(watched[0])
    earlier, later = watched[after - 1], watched[after]
    high, low = earlier["perplexity"], later["perplexity"]
    share = math.log1p((high - level) / level) / math.log1p((high - low) / low)
    return {"perplexity": level, **_interpolated(earlier, later, share)}


def _interpolated(earlier: Mapping[str, Any], later: Mapping[str, Any], share: float) -> Row:
    mixed: Row = {}
    for name, value in earlier.items():
        if isinstance(value, Mapping):
            mixed[name] = _interpolated(value, later[name], share)
        elif name != "perplexity" and isinstance(value, int | float):
            mixed[name] = value + share * (later[name] - value)
    return mixed
