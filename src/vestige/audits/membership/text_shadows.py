"""Shadow models of an audit of texts: fine-tunes of the base on known texts, made as the target.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", arXiv:1811.00513,
Algorithm 1. Shadows come in pairs, which are trained on the two halves of the texts. Each has a
folder named by a hash of all that determines it: a finished one is loaded, an interrupted one
resumes.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from vestige.arguments import ModelLike
from vestige.attacks.texts.text_models import base_of_adapter
from vestige.audits.membership.shadow_options import ShadowOptions
from vestige.data.corpus import Corpus
from vestige.models.checkpoints import load_model
from vestige.models.folders import model_folder
from vestige.models.protocols import LanguageModel
from vestige.monitor import Monitor
from vestige.results import to_json
from vestige.training.checkpoint import IDENTITY, identity
from vestige.training.config import TrainingConfig
from vestige.training.foreign_recipe import ForeignTraining
from vestige.training.null_models import START, Recipe, adapter_in
from vestige.training.presets import gentle
from vestige.training.snapshot import snapshot

LONGEST = 512
"""Most tokens of a text if the target's files do not tell."""

SHADOWS = 4
"""Shadow models if no number is given."""

TRAINING = ("epochs", "batch_size", "sequence_length", "learning_rate")


@dataclass(frozen=True)
class ShadowModel:
    """A trained shadow model.

    Attributes:
        directory: of its own.
        model: in evaluation mode.
        members: positions of the texts that it was trained on.
    """

    directory: Path
    model: LanguageModel
    members: tuple[int, ...]


def shadow_models(
    target: ModelLike | None,
    base: ModelLike | None,
    texts: Corpus,
    options: ShadowOptions,
    *,
    folder: Path,
    seed: int,
    device: str,
    monitor: Monitor,
) -> Iterator[ShadowModel]:
    """Train the shadow models, or load them; one at a time is held.

    Args:
        target: whose training they repeat as far as it is known: an adapter like its own, or all
            weights; None: a served model.
        base: that they start from; None: the base of the adapter `target`.
        texts: like the target's training data, but not in it.
        options: how many, and changes of the training.
        folder: holds a folder for each.
        seed: of the halves and of the trainings.

    Raises:
        ValueError: there is no base.
        TrainingError: the target did not start from the base, or was trained with a defence.
    """
    start_from = base or (None if target is None else base_of_adapter(target))
    if start_from is None:
        raise ValueError("`shadow_texts` needs `base`: shadow models are fine-tunes of it")
    loaded = _loaded(start_from, device)
    recipe = _recipe(target, loaded, options, monitor)
    count, order = options.shadows or SHADOWS, np.arange(0)
    for number in range(count):
        if number % 2 == 0:
            order = np.random.default_rng([seed, number]).permutation(len(texts))
        own = order[number % 2 :: 2]
        config = recipe.seeded(recipe.config.seed + 1 + 1000 * seed + number)
        half = texts.take(own)
        directory = folder / _name(loaded, recipe, half, config)
        with monitor.progress(f"training shadow model {number + 1} of {count}") as step:
            model = _trained(directory, half, loaded, recipe, config, step)
        yield ShadowModel(directory, model, tuple(sorted(own.tolist())))


def _trained(
    directory: Path,
    texts: Corpus,
    base: LanguageModel,
    recipe: Recipe,
    config: TrainingConfig,
    step: Any,
) -> LanguageModel:
    def start() -> LanguageModel:
        return recipe.started(base, config.seed)

    model = snapshot(
        directory,
        texts,
        start=start if recipe.adapter else start(),
        base=base if recipe.adapter else None,
        vocabulary=base.vocabulary,
        config=config,
        progress=lambda done, total, *_: step(done, total),
    )
    return model.eval()


def _name(base: LanguageModel, recipe: Recipe, texts: Corpus, config: TrainingConfig) -> str:
    """A hash of all that determines a shadow model."""
    determined_by = {
        "base": identity(base, {})[START],
        "adapter": None if recipe.adapter is None else str(recipe.adapter),
        "texts": texts.fingerprint(),
        "config": asdict(config),
    }
    return hashlib.sha256(to_json(determined_by).encode()).hexdigest()[:16]


def _loaded(model: ModelLike, device: str) -> LanguageModel:
    if isinstance(model, str | PathLike):
        return load_model(fspath(model), device=device)
    return model.eval()


def _recipe(
    target: ModelLike | None, base: LanguageModel, options: ShadowOptions, monitor: Monitor
) -> Recipe:
    """How the target was trained: as its files tell, else the defaults, with the given changes."""
    given = options.set_of(TRAINING)
    known: dict[str, Any] = {}
    adapter = None
    if isinstance(target, str | PathLike):
        path = Path(fspath(target))
        if (path / IDENTITY).is_file():
            own = Recipe.of(path)
            return replace(own, config=replace(own.config, **given))
        known, adapter = ForeignTraining.of(path).settings, adapter_in(model_folder(path))
    usual = asdict(gentle(base)) | {"seed": 0, "batching": "documents"}
    usual["sequence_length"] = min(LONGEST, getattr(base, "longest", None) or LONGEST)
    if adapter is not None:
        usual["learning_rate"] = 1e-3
    config = TrainingConfig(**{**usual, **known, **given})
    monitor.log(
        f"Shadow models: {config.epochs} epochs, {config.batch_size} texts per step, learning rate "
        f"{config.learning_rate:g} (given, from the target's files, or default)."
    )
    return Recipe(config=config, tokens=0, adapter=adapter)
