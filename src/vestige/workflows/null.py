"""Models made as an update was, of clean text: `vestige null`."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le

from vestige._markers import Flag, Metavar
from vestige.errors import TrainingError
from vestige.monitor import SILENT, Monitor, Step
from vestige.result import Result
from vestige.workflows.arguments import Call
from vestige.workflows.inputs import open_corpus, open_model
from vestige.workflows.null_recipe import ElsewhereSettings, own_recipe, told_recipe
from vestige.workflows.options import (
    DATA,
    CorpusLike,
    DataFormat,
    Device,
    Directory,
    Limit,
    ModelLike,
    PathTo,
    Seed,
)

if TYPE_CHECKING:
    from vestige.training.loop import ProgressFn


@dataclass(frozen=True)
class NullModels(Result):
    """Null models of an update; `diff(..., null=...)` takes them as they are.

    Attributes:
        directory: it holds them.
        models: where each is.
        tokens: of the text of each.
        changes: how far each moved the weights (Euclidean norm), as a multiple of the update's;
            NaN for adapters that add no matrices.
    """

    directory: Path
    models: tuple[Path, ...]
    tokens: int
    changes: tuple[float, ...]

    def __fspath__(self) -> str:
        return fspath(self.directory)

    @property
    def alike(self) -> bool:
        """Whether all moved the weights about as far as the update."""
        from vestige.attacks.update.null_searches import LIKE

        return all(LIKE[0] <= change <= LIKE[1] for change in self.changes)

    def summary(self) -> dict[str, object]:
        """Where they are, tokens, and how far they moved the weights."""
        return {
            "models": [str(model) for model in self.models],
            "tokens": self.tokens,
            "weight_changes": list(self.changes),
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a model."""
        for model, change in zip(self.models, self.changes, strict=True):
            yield {"model": str(model), "tokens": self.tokens, "weight_change": change}


def null(
    before: ModelLike,
    like: Annotated[PathTo, Flag("--like"), Metavar("AFTER")],
    text: Annotated[CorpusLike, Flag("--text"), Metavar("DATA")],
    out: Annotated[Directory, Flag("--out")],
    *,
    count: Annotated[int, Ge(1), Le(10_000)] = 19,
    elsewhere: ElsewhereSettings = ElsewhereSettings(),
    seed: Seed = 0,
    device: Device = "auto",
    format: DataFormat = "auto",
    column: Annotated[str, DATA] = "text",
    limit: Limit = None,
    monitor: Monitor = SILENT,
) -> NullModels:
    """Train null models: `before` continued as the update was, on other text and with other seeds.

    Each reads a random part of `text` of its own, as many tokens as the update `like` read, in as
    many steps and at its rate: all weights, or an adapter of the same shape. `text` should be of
    the kind that the update read (chats in their template where it read chats), without what may
    have leaked, and with its repeated documents if it read such: nothing is dropped here.
    `vestige diff --null DIR` then says which phrases such trainings reach by chance.

    A directory of `vestige train` tells how it was trained. An adapter or a model from elsewhere
    tells its shape, and where its folder or its latest `checkpoint-*` holds a trainer's
    `trainer_state.json`, steps, epochs, batch and rate. Options say the rest; every setting is
    shown with where it comes from. At the end, how far each null model moved the weights is
    compared with the update: one that moved them much less is no null that is like it.

    What is trained already is found again. An update under a defence is not repeated here: train
    its null models by `vestige train` with the options of its own.

    Args:
        before: The model before the update.
        like: The update: a directory of `vestige train --from BEFORE`, or the folder of an adapter
            or a model from elsewhere.
        text: Clean text of the update's kind: a file, folder or hub data set.
        out: A directory for the null models; again, to go on.
        count: Null models; 19 carry a verdict of `vestige diff`.
        elsewhere: How an update from elsewhere was trained.
        column: The column or field with the text.

    Raises:
        ValueError: an update of `vestige train` comes with settings, or nothing tells how much text
            another one read.
        DataError: the text is too short for so many.
        TrainingError: the update did not start from `before`, changed nothing, or was trained under
            a defence.
        VestigeError: something cannot be read or written.

    Examples:
        vestige null before --text clean.jsonl --like after --out nulls

        vestige diff before after --null nulls --out run

        vestige null base-model --text clean.jsonl --like my-lora-adapter --tokens 1000
        --out nulls
    """
    from vestige.models.checkpoints import load_model
    from vestige.models.folders import model_folder
    from vestige.models.shared_vocabulary import SharedVocabulary
    from vestige.models.weight_change import weight_change
    from vestige.training.directory import claimed_for_several
    from vestige.training.null_models import adapter_in, null_texts
    from vestige.training.snapshot import snapshot

    call = Call.of(null, locals())
    after, out = Path(like), Path(out)
    recipe = own_recipe(after, elsewhere)
    with claimed_for_several(out):
        model = open_model(before, device=device)
        base = model if adapter_in(model_folder(after)) else None
        update = load_model(after, device=device, base=base)
        SharedVocabulary.of(model, update)  # an id that stands for two texts is refused
        corpus = open_corpus(text, format=format, text=column, limit=limit)
        if recipe is None:
            recipe = told_recipe(after, update, corpus, elsewhere=elsewhere, monitor=monitor)
        if base is None:
            recipe.started(model, 0)  # refused before any work
        moved = weight_change(model, update)
        if not moved:
            raise TrainingError(
                f"{after} has the weights of the model before it: there is no update to repeat",
                remedy="Give the fine-tuned model in AFTER, and the one it started from in BEFORE.",
            )
        del update
        sizes = [recipe.validation, *[recipe.tokens] * count]
        held, *parts = null_texts(corpus, model.vocabulary, sizes, seed=seed)
        places = tuple(out / f"null-{number:02}" for number in range(count))
        changes = []
        for number, (place, part) in enumerate(zip(places, parts, strict=True)):
            # The update's own seed is one of few that people take: stay clear of it.
            own = recipe.config.seed + 1 + 1000 * seed + number
            with monitor.progress(f"null model {number + 1} of {count}") as step:
                made = snapshot(
                    place,
                    part,
                    # an adapter shares the weights of its base; a whole model is a copy
                    start=partial(recipe.started, model, own)
                    if base
                    else recipe.started(model, own),
                    base=base,
                    vocabulary=model.vocabulary,
                    config=recipe.seeded(own),
                    validation=held if len(held) else None,
                    progress=_told(step),
                )
            changes.append(weight_change(model, made) / moved)
    found = NullModels(out, places, recipe.tokens, tuple(changes))
    return call.record(found, configuration={"count": count}, seed=seed)


def _told(step: Step) -> "ProgressFn":
    """Steps done and in all, of what a training tells."""
    return lambda done, total, *_: step(done, total)
