"""How null models are trained: as the update's own directory tells, or what is known of it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge

from vestige.monitor import Monitor

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.models.protocols import LanguageModel
    from vestige.training.null_models import Recipe

LONGEST = 512
"""Tokens of a text that are read at most, where nothing tells."""


@dataclass(frozen=True, kw_only=True)
class ElsewhereSettings:
    """Of an update from elsewhere.

    Attributes:
        tokens: Tokens of the text that it was trained on, read once an epoch. Default: what steps
            and texts of its `trainer_state.json` come to.
        epochs: Passes over that text. Default: as told there, or 3.
        batch_size: Texts of a step, all devices and accumulated steps together. Default: as told
            there, or 8.
        learning_rate: At its highest. Default: as told there, or 1e-3 for an adapter and 5e-5 for
            all weights.
        sequence_length: Tokens of a text that are read at once at most. Default: 512.
        precision: `auto` is float32, on a GPU that multiplies it bfloat16. Default: auto.
    """

    tokens: Annotated[int | None, Ge(1)] = None
    epochs: Annotated[int | None, Ge(1)] = None
    batch_size: Annotated[int | None, Ge(1)] = None
    learning_rate: float | None = None
    sequence_length: Annotated[int | None, Ge(1)] = None
    precision: Literal["auto", "float32", "bfloat16"] | None = None

    @property
    def chosen(self) -> dict[str, Any]:
        """What was asked for, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def own_recipe(after: Path, elsewhere: ElsewhereSettings) -> "Recipe | None":
    """What a directory of `vestige train` tells; None for what was trained elsewhere.

    Raises:
        ValueError: settings would contradict it.
        TrainingError: see `Recipe.of`.
    """
    from vestige.training.checkpoint import IDENTITY
    from vestige.training.null_models import Recipe

    if not (after / IDENTITY).is_file():
        return None
    if elsewhere.chosen:
        raise ValueError(
            f"`{next(iter(elsewhere.chosen))}` must be left out where `like` is a directory of "
            "`vestige train`, which tells how it was trained"
        )
    return Recipe.of(after)


def told_recipe(
    after: Path,
    update: "LanguageModel",
    corpus: "Corpus",
    *,
    elsewhere: ElsewhereSettings,
    monitor: Monitor,
) -> "Recipe":
    """How an update from elsewhere was trained: as asked for, as its files tell, or as usual.

    Args:
        update: the model in `after`.
        corpus: clean text of its kind, whose texts are taken to be as long as the update's.
        monitor: told every setting and where it comes from.

    Raises:
        ValueError: nothing tells how many tokens it read.
        TrainingError: its `trainer_state.json` is none.
    """
    from vestige.models.folders import model_folder
    from vestige.training.config import TrainingConfig
    from vestige.training.foreign_recipe import STATE, ForeignTraining
    from vestige.training.null_models import Recipe, adapter_in, text_length
    from vestige.training.presets import gentle

    told, usual = ForeignTraining.of(after), asdict(gentle(update))
    usual["sequence_length"] = min(LONGEST, getattr(update, "longest", None) or LONGEST)
    shared = {name: usual[name] for name in asdict(elsewhere) if name in usual}
    source = dict.fromkeys(shared, "usual") | dict.fromkeys(told.settings, STATE)
    settings = shared | told.settings | elsewhere.chosen
    tokens = settings.pop("tokens", None) or told.tokens_of_text(
        epochs=settings["epochs"],
        batch_size=settings["batch_size"],
        text_length=text_length(corpus, update.vocabulary),
    )
    if tokens is None:
        raise ValueError(
            "`tokens` must be given, since nothing tells how much text the update in `like` was "
            f"trained on: there is no {STATE} in {after}"
        )
    source |= {"tokens": STATE} | dict.fromkeys(elsewhere.chosen, "asked for")
    lines = [f"{name} {value} ({source[name]})" for name, value in settings.items()]
    lines.append(f"{tokens:,} tokens an epoch ({source['tokens']})")
    monitor.log(f"AFTER was trained elsewhere; null models take: {', '.join(lines)}")
    config = TrainingConfig(**{**usual, **settings, "seed": 0, "batching": "documents"})
    return Recipe(config=config, tokens=tokens, adapter=adapter_in(model_folder(after)))
