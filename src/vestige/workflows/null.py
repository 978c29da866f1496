"""Models made as an update was, of clean text: `vestige null`."""

from collections.abc import Iterator
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le

from vestige._markers import Flag
from vestige.monitor import SILENT, Monitor, Step
from vestige.result import Result
from vestige.workflows.arguments import Call
from vestige.workflows.inputs import open_corpus, open_model
from vestige.workflows.options import (
    CorpusLike,
    DataFormat,
    Device,
    Directory,
    Limit,
    ModelLike,
    PathTo,
    Seed,
    TextColumn,
)

if TYPE_CHECKING:
    from vestige.training.loop import ProgressFn


@dataclass(frozen=True)
class NullModels(Result):
    """Null models of an update; `diff(..., null=...)` takes them as they are.

    Attributes:
        directory: it holds them.
        models: where each is.
        tokens: what each has read.
    """

    directory: Path
    models: tuple[Path, ...]
    tokens: int

    def __fspath__(self) -> str:
        return fspath(self.directory)

    def summary(self) -> dict[str, object]:
        """Where they are, and tokens."""
        return {"models": [str(model) for model in self.models], "tokens": self.tokens}

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a model."""
        for model in self.models:
            yield {"model": str(model), "tokens": self.tokens}


def null(
    before: ModelLike,
    after: PathTo,
    data: CorpusLike,
    out: Annotated[Directory, Flag("--out")],
    *,
    count: Annotated[int, Ge(1), Le(10_000)] = 19,
    seed: Seed = 0,
    device: Device = "auto",
    format: DataFormat = "auto",
    text: TextColumn = "text",
    limit: Limit = None,
    monitor: Monitor = SILENT,
) -> NullModels:
    """Train null models: `before` continued as `after` was, on other text and with other seeds.

    Each reads a random part of `data` of its own, as many tokens as `after` read, with the settings
    that the directory of `after` tells: all weights, or a low-rank adapter of the same shape.
    `data` should be text of the kind that `after` read, without what may have leaked, and with its
    repeated documents if `after` read such: nothing is dropped here. `vestige diff --null DIR` then
    says which phrases such trainings reach by chance.

    What is trained already is found again. An update under a defence is not repeated here: train
    its null models by `vestige train` with the options of its own.

    Args:
        before: The model before the update.
        after: The directory of `vestige train --from BEFORE`.
        data: Clean text of the update's kind: a file, folder or hub data set.
        out: A directory for the null models; again, to go on.
        count: Null models; 19 carry a verdict of `vestige diff`.

    Raises:
        DataError: the text is too short for so many.
        TrainingError: `after` did not start from `before`, or was trained under a defence.
        VestigeError: something cannot be read or written.

    Examples:
        vestige null before after clean.jsonl --out nulls

        vestige diff before after --null nulls --out run
    """
    from vestige.models.checkpoints import check_compatible
    from vestige.training.null_models import Recipe, null_texts
    from vestige.training.snapshot import snapshot
    from vestige.workflows.training_directory import claimed_for_several

    call = Call.of(null, locals())
    after, out = Path(after), Path(out)
    recipe = Recipe.of(after)
    with claimed_for_several(out):
        model = open_model(before, device=device)
        check_compatible(model, open_model(after, device=device))
        corpus = open_corpus(data, format=format, text=text, limit=limit)
        sizes = [recipe.validation, *[recipe.tokens] * count]
        held, *parts = null_texts(corpus, model.vocabulary, sizes, seed=seed)
        places = tuple(out / f"null-{number:02}" for number in range(count))
        for number, (place, part) in enumerate(zip(places, parts, strict=True)):
            # The update's own seed is one of few that people take: stay clear of it.
            own = recipe.config.seed + 1 + 1000 * seed + number
            with monitor.progress(f"null model {number + 1} of {count}") as step:
                snapshot(
                    place,
                    part,
                    start=recipe.started(model, own),
                    vocabulary=model.vocabulary,
                    config=recipe.seeded(own),
                    validation=held if len(held) else None,
                    progress=_told(step),
                )
    made = NullModels(out, places, recipe.tokens)
    return call.record(made, configuration={"count": count}, seed=seed)


def _told(step: Step) -> "ProgressFn":
    """Steps done and in all, of what a training tells."""
    return lambda done, total, *_: step(done, total)
