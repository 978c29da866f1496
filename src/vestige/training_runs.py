"""Directories of trainings that a workflow was given: what they say of themselves."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from vestige.training.directory import DATA as DATA

RUN = "run"
"""Where a training's directory keeps its run."""

REPEAT = "seed-{}"
"""Where `vestige train --seeds` keeps the training of a seed."""

JUDGED_BY = "judged_by"
"""Which text judges a model: "validation", or "training" where nothing was held out."""


def training_summary(model: object) -> Mapping[str, Any]:
    """The summary of a training; nothing where the model was loaded or made elsewhere."""
    from vestige import results

    if not isinstance(model, str | PathLike):
        return {}
    run = Path(model) / RUN
    return results.load(run).summary if (run / "summary.json").is_file() else {}


def useless_model(model: object, *, who: str = "The model") -> str | None:
    """A sentence about a model that is no better than word frequencies; else None."""
    return useless_training(training_summary(model), who=who)


def useless_training(summary: Mapping[str, Any], *, who: str = "It") -> str | None:
    """A sentence about a training that is no better than word frequencies; else None."""
    from vestige.training.word_frequencies import FREQUENCIES, is_useless, useless_words

    alone, judged = summary.get(FREQUENCIES), summary.get("validation_perplexity")
    own = summary.get("perplexity") if summary.get(JUDGED_BY) == "training" else judged
    if alone is None or not is_useless(own, alone):
        return None
    return useless_words(own, alone, who=who)


def repeats(path: str) -> tuple[str, ...]:
    """The trainings in a directory of `vestige train --seeds`, by seed; of any other, the path."""
    found = [one for one in Path(path).glob(REPEAT.format("*")) if one.name[5:].isdecimal()]
    ordered = sorted(found, key=lambda one: int(one.name[5:]))
    return tuple(map(str, ordered)) or (path,)
