"""Shadow fine-tunes of an audit of texts: the base, trained as the target on texts of its kind."""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Interval

from vestige.monitor import Monitor
from vestige.workflows.options import Directory, ModelLike

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.models.protocols import LanguageModel
    from vestige.training.null_models import Recipe

LONGEST = 512
"""Tokens of a text that are read at most, where nothing tells."""


@dataclass(frozen=True, kw_only=True)
class ShadowFineTunes:
    """Shadow fine-tunes.

    Attributes:
        shadows: Fine-tunes of the base to learn from, each on a random half of `shadow_texts`.
        shadow_dir: Where trained ones are looked for and kept. Default: beside `out`, named after
            it.
        epochs: Passes over the data, about as many as MODEL has had. Default: what its directory
            or `trainer_state.json` tells, else 3.
        batch_size: Texts of a step. Default: likewise, else 8.
        learning_rate: At its highest. Default: likewise, else 1e-3 for an adapter and 5e-5 for all
            weights.
        sequence_length: Tokens of a text that are read at once at most. Default: likewise, else
            512.
    """

    shadows: Annotated[int, Interval(ge=1, le=1000)] = 4
    shadow_dir: Directory | None = None
    epochs: Annotated[int | None, Ge(1)] = None
    batch_size: Annotated[int | None, Ge(1)] = None
    learning_rate: float | None = None
    sequence_length: Annotated[int | None, Ge(1)] = None

    @property
    def chosen(self) -> dict[str, Any]:
        """Settings of a training that were asked for, by name."""
        own = ("shadows", "shadow_dir")
        given = asdict(self).items()
        return {name: value for name, value in given if name not in own and value is not None}


@dataclass(frozen=True)
class FineTune:
    """A shadow fine-tune.

    Attributes:
        directory: its own.
        model: in evaluation mode.
        seen: places of the texts that it learnt.
    """

    directory: Path
    model: "LanguageModel"
    seen: tuple[int, ...]


def shadow_fine_tunes(
    target: ModelLike | None,
    started_from: ModelLike | None,
    texts: "Corpus",
    settings: ShadowFineTunes,
    *,
    folder: Path,
    seed: int,
    device: str,
    monitor: Monitor,
) -> Iterator[FineTune]:
    """Train the shadows, or find them trained; one at a time is held.

    Args:
        target: whose training they repeat as far as it is known: an adapter of its shape where it
            is one, else all weights; None of a model that is served.
        started_from: the base; None where the target is an adapter, which tells it.
        texts: of the target's kind, which it never saw.
        folder: that holds a directory of each.
        device: to train on.
        seed: of the halves and trainings; a second shadow learns what the first did not.

    Raises:
        ValueError: there is no base.
        TrainingError: the target did not start from the base, or was trained under a defence.
    """
    import numpy as np

    from vestige.results import to_json
    from vestige.training.checkpoint import identity
    from vestige.training.null_models import START
    from vestige.training.snapshot import snapshot
    from vestige.workflows.inputs import open_model
    from vestige.workflows.text_models import base_of_adapter

    before = started_from or (None if target is None else base_of_adapter(target))
    if before is None:
        raise ValueError("`base` must be given: shadows are fine-tunes of it")
    base = open_model(before, device=device)
    recipe = _recipe(target, base, settings, monitor)
    order = np.arange(0)
    for number in range(settings.shadows):
        if number % 2 == 0:
            order = np.random.default_rng([seed, number]).permutation(len(texts))
        own = order[number % 2 :: 2]
        config = recipe.seeded(recipe.config.seed + 1 + 1000 * seed + number)
        decided = {
            "base": identity(base, {})[START],
            "adapter": None if recipe.adapter is None else str(recipe.adapter),
            "texts": texts.take(own).fingerprint(),
            "config": asdict(config),
        }
        digest = hashlib.sha256(to_json(decided).encode()).hexdigest()[:16]
        with monitor.progress(f"shadow {number + 1} of {settings.shadows}") as step:

            def told(done: int, total: int, *_: object, step: Any = step) -> None:
                step(done, total)

            def start(config: Any = config) -> "LanguageModel":
                return recipe.started(base, config.seed)

            model = snapshot(
                folder / digest,
                texts.take(own),
                start=start if recipe.adapter else recipe.started(base, config.seed),
                base=base if recipe.adapter else None,
                vocabulary=base.vocabulary,
                config=config,
                progress=told,
            )
        yield FineTune(folder / digest, model.eval(), tuple(sorted(own.tolist())))


def _recipe(
    target: ModelLike | None, base: "LanguageModel", settings: ShadowFineTunes, monitor: Monitor
) -> "Recipe":
    """How the target was trained: as asked for, as its directory or files tell, or as usual."""
    from vestige.models.folders import model_folder
    from vestige.training.checkpoint import IDENTITY
    from vestige.training.config import TrainingConfig
    from vestige.training.foreign_recipe import ForeignTraining
    from vestige.training.null_models import Recipe, adapter_in
    from vestige.training.presets import gentle

    known: dict[str, Any] = {}
    adapter = None
    if isinstance(target, str | PathLike):
        path = Path(fspath(target))
        if (path / IDENTITY).is_file():
            own = Recipe.of(path)
            return replace(own, config=replace(own.config, **settings.chosen))
        known, adapter = ForeignTraining.of(path).settings, adapter_in(model_folder(path))
    usual = asdict(gentle(base)) | {"seed": 0, "batching": "documents"}
    usual["sequence_length"] = min(LONGEST, getattr(base, "longest", None) or LONGEST)
    if adapter is not None:
        usual["learning_rate"] = 1e-3
    config = TrainingConfig(**{**usual, **known, **settings.chosen})
    monitor.log(
        f"Shadows learn for {config.epochs} epochs, {config.batch_size} texts a step, at "
        f"{config.learning_rate:g}: as asked for, as the target's files tell, or as usual"
    )
    return Recipe(config=config, tokens=0, adapter=adapter)
