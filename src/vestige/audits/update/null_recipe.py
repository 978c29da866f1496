"""How null models are trained: as the update's folder says, or as the options say."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import Parameter

from vestige.arguments import Count
from vestige.preparation.options import LearningOptions

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.models.protocols import LanguageModel
    from vestige.training.null_models import Recipe

LONGEST = 512
"""Tokens of a window if neither files nor options say."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NullOptions(LearningOptions):
    """How an update was trained, if it is no folder of `vestige train`.

    Attributes:
        tokens: Tokens of the update's text, read once per epoch.
        precision: Precision of the training.

    Example:
        >>> import vestige as vg
        >>> vg.NullOptions(tokens=16_400, epochs=3).chosen
        {'epochs': 3}
    """

    tokens: Count | None = None
    precision: Literal["auto", "float32", "bfloat16"] | None = None


def recipe_of(
    after: Path,
    update: "LanguageModel",
    corpus: "Corpus",
    *,
    options: NullOptions,
    log: Callable[[str], None],
) -> "Recipe":
    """The recipe of a training.

    Args:
        after: folder of the update.
        update: its model.
        corpus: clean text of its kind, whose texts are taken to be as long as the update's.
        options: how it was trained, if it is no folder of `vestige train`.
        log: gets every setting of such an update, and its source.

    Raises:
        ValueError: `options` contradict the folder, or nothing says how many tokens it read.
        TrainingError: the update was trained with a defence, or its files are damaged.
    """
    from vestige.training.checkpoint import IDENTITY
    from vestige.training.null_models import Recipe

    if not (after / IDENTITY).is_file():
        return _of_another_program(after, update, corpus, options=options, log=log)
    given = {**options.chosen, **({} if options.tokens is None else {"tokens": options.tokens})}
    if given:
        raise ValueError(
            f"`{next(iter(given))}` must be left out: `after` is a folder of `vestige train`, "
            "which says how it was trained"
        )
    return Recipe.of(after)


def _of_another_program(
    after: Path,
    update: "LanguageModel",
    corpus: "Corpus",
    *,
    options: NullOptions,
    log: Callable[[str], None],
) -> "Recipe":
    """The recipe of an adapter or model that another program trained."""
    from vestige.models.folders import model_folder
    from vestige.training.config import TrainingConfig
    from vestige.training.foreign_recipe import STATE, ForeignTraining
    from vestige.training.null_models import Recipe, adapter_in, text_length
    from vestige.training.presets import gentle

    recorded, defaults = ForeignTraining.of(after), asdict(gentle(update))
    defaults["sequence_length"] = min(LONGEST, getattr(update, "longest", None) or LONGEST)
    shared = {name: defaults[name] for name in options.given if name in defaults}
    source = dict.fromkeys(shared, "default") | dict.fromkeys(recorded.settings, STATE)
    settings = shared | recorded.settings | options.chosen
    tokens = options.tokens or recorded.tokens_of_text(
        epochs=settings["epochs"],
        batch_size=settings["batch_size"],
        text_length=text_length(corpus, update.vocabulary),
    )
    if tokens is None:
        raise ValueError(
            "`tokens` is needed: nothing says how much text the update read, since `after` has no "
            f"{STATE}"
        )
    source |= {"tokens": STATE} | dict.fromkeys(options.chosen, "given")
    source |= {} if options.tokens is None else {"tokens": "given"}
    lines = [f"{name} {value} ({source[name]})" for name, value in settings.items()]
    log(
        f"Null models are trained with {', '.join(lines)} on {tokens:,} tokens per epoch "
        f"({source['tokens']})."
    )
    config = TrainingConfig(**{**defaults, **settings, "seed": 0, "batching": "documents"})
    return Recipe(config=config, tokens=tokens, adapter=adapter_in(model_folder(after)))
