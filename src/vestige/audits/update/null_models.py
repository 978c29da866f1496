"""Null models of an update: BEFORE trained like the update, on clean text.

The user passes them, or they are trained here: each with another seed on a random part of the clean
text, with as many tokens, steps and the learning rate of the update, and with all weights or an
adapter of the same shape.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from math import ceil, isfinite, isnan
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from vestige.arguments import ModelLike, ModelsLike
from vestige.audits.update.nulls import CHANGE_LIMITS
from vestige.audits.update.plan import duration
from vestige.data.writing import is_vacant, lock_output
from vestige.errors import DataError, TrainingError
from vestige.models.folders import is_model, model_folder, sha256_of
from vestige.models.lora import scale_update, weight_change
from vestige.models.shared_ids import SharedIds, SharedVocabulary
from vestige.models.snapshots import Snapshots, source_name
from vestige.session import Session
from vestige.store import KEPT
from vestige.training.directory import CHECKPOINT, IDENTITY, MODEL
from vestige.training.recipe import Recipe, adapter_in, null_texts, text_length, text_lengths

if TYPE_CHECKING:
    from vestige.audits.update.diff import NullOptions
    from vestige.data.corpus import Corpus
    from vestige.models.protocols import LanguageModel, NextToken

TIMED_STEPS = 3  # training steps that are timed for the estimate


def models_by_hash(null: ModelsLike, *, snapshots: Sequence[ModelLike]) -> dict[str, ModelLike]:
    """Null models by the SHA-256 of their weights; a folder stands for the models in it.

    Raises:
        ValueError: two null models have the same weights, or one has those of a snapshot.
    """
    seen = {sha256_of(model): model for model in snapshots}
    nulls: dict[str, ModelLike] = {}
    sources = null if isinstance(null, tuple | list) else (null,)
    for model in (model for source in sources for model in _models_in(source)):
        if (sha256 := sha256_of(model)) in seen:
            raise ValueError(
                f"`null` must be a training of its own, got {source_name(model)}, which has the "
                f"weights of {source_name(seen[sha256])}. `clean` trains null models"
            )
        seen[sha256] = nulls[sha256] = model
    return nulls


def _models_in(source: ModelLike) -> list[ModelLike]:
    """The model, or the models in a folder."""
    if not isinstance(source, str | PathLike):
        return [source]
    folder = Path(source)
    if is_model(folder) or not folder.is_dir():
        return [fspath(source)]
    return [str(path) for path in sorted(folder.iterdir()) if is_model(path)] or [fspath(source)]


def open_null_model(
    source: ModelLike, snapshots: Snapshots, before: "NextToken", update_distance: float | None
) -> "tuple[LanguageModel, float | None]":
    """A null model, and how far it moved the weights as a multiple of the update, if known.

    If it moved them a little less than the update, it is moved as far: its scores would be too low.
    """
    null = snapshots.read(source)
    distance = weight_distance(before, null)
    if distance is None or update_distance is None:
        return null, None
    change = distance / update_distance
    if CHANGE_LIMITS[0] <= change < 1:
        if not isinstance(source, str | PathLike):
            null = deepcopy(null)
        scale_update(_unwrapped(before), _unwrapped(null), update_distance / distance)
    return null, change


def weight_distance(before: "NextToken", after: "NextToken") -> float | None:
    """Distance between the weights of two models; None for adapted and other models."""
    if getattr(_unwrapped(before), "adapted", False):
        return None
    change = weight_change(_unwrapped(before), _unwrapped(after))
    return change if change > 0 and isfinite(change) else None


def _unwrapped(model: "NextToken") -> Any:
    """The model without the wrapper over shared ids."""
    return model.model if isinstance(model, SharedIds) else model


@contextmanager
def train_null_models(
    run: Session,
    before: ModelLike,
    after: ModelLike,
    clean: Any,
    number: int,
    *,
    options: "NullOptions",
    columns: Mapping[str, Any],
) -> Iterator[list[Path]]:
    """Null models of an update in the folder `OUT.nulls`; those that exist are not trained again.

    Raises:
        ValueError: `after` is not a path, or `options` contradict it or lack the number of tokens.
        DataError: the text is too short.
        TrainingError: the update did not start from `before`, changed nothing, or was trained with
            a defence.
    """
    if not isinstance(after, str | PathLike):
        raise ValueError(f"`clean` needs the folder of `after`, got {source_name(after)}")
    corpus = run.corpus("clean", clean, **columns)
    with _folder(run.out) as folder:
        paths = [folder / f"null-{n:02}" for n in range(number)]
        _train(run, before, Path(after), corpus, paths, options, name=source_name(clean))
        yield paths


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder of null models, locked; without `out`, a temporary one."""
    if out is None:
        with TemporaryDirectory() as temporary:
            yield Path(temporary)
        return
    folder = out.with_name(f"{out.name}.nulls")
    with lock_output(folder, keep_if=lambda path: any(path.rglob(CHECKPOINT))):
        try:
            yield folder
        except (OSError, KeyboardInterrupt) as error:
            if not is_vacant(folder):
                error.add_note(KEPT)
            raise


def _train(
    run: Session,
    before: ModelLike,
    after: Path,
    corpus: "Corpus",
    paths: Sequence[Path],
    options: "NullOptions",
    *,
    name: str,
) -> None:
    """Train a null model at each path, in float32; errors call the corpus `name`."""
    model, recipe, update_distance = _update(run, before, after, corpus, options)
    lengths, number = text_lengths(corpus, model.vocabulary), len(paths)
    sizes, tokens = [recipe.validation, *[recipe.tokens] * number], int(lengths.sum())
    try:
        texts = null_texts(corpus, model.vocabulary, sizes, seed=run.seed, lengths=lengths)
    except DataError as error:
        needed = sum(sizes)
        if tokens >= needed:  # each part ends with a complete text
            needed += ceil(len(sizes) * lengths.mean())
        raise DataError(
            f"{name} has {tokens:,} tokens; {number} null models need {needed:,}",
            remedy="Add text of the same kind, or train fewer null models.",
        ) from error
    validation, *parts = texts
    epochs = f"{recipe.config.epochs} epoch{'s' * (recipe.config.epochs != 1)}"
    plan = (
        f"Null models: {number} trainings of {recipe.tokens:,} tokens and {epochs} each need "
        f"{sum(sizes):,} tokens; the clean text has {tokens:,}."
    )
    if missing := sum(not (path / MODEL).exists() for path in paths):
        finished = number - missing
        earlier = f"{finished} were trained earlier; the others take " if finished else ""
        seconds = missing * _seconds(recipe, model, parts[0])
        run.log(f"{plan} Time: {earlier}about {duration(seconds)}.")
    else:
        run.log(f"{plan} All were trained earlier.")
    changes = []
    # Users choose small seeds: those of the null models must differ from the update's seed.
    seed = recipe.config.seed + 1 + 1000 * run.seed
    for n, (path, part) in enumerate(zip(paths, parts, strict=True)):
        with run.progress(f"training null model {n + 1} of {number}") as step:
            null = recipe.repeat(
                path,
                part,
                model,
                seed=seed + n,
                validation=validation if len(validation) else None,
                progress=step,
            )
        changes.append(weight_change(model, null) / update_distance)
    _log_changes(run, min(changes), max(changes))


def _log_changes(run: Session, least: float, most: float) -> None:
    """Log how far the null models moved the weights, and whether that allows a verdict."""
    if isnan(least) or isnan(most):
        return  # an adapter that adds no matrices
    low, high = CHANGE_LIMITS
    moved = f"{least:.2f}" if least == most else f"{least:.2f} to {most:.2f}"
    run.log(f"The null models moved the weights {moved} times as far as the update.")
    if not low <= least <= most <= high:
        run.log(
            f"A verdict needs {low:g} to {high:g}. Change --tokens, --epochs or "
            "--learning-rate, or give the BEFORE that AFTER started from."
        )


def _update(
    run: Session, before: ModelLike, after: Path, corpus: "Corpus", options: "NullOptions"
) -> "tuple[LanguageModel, Recipe, float]":
    """The model to continue, how the update was trained, and how far it moved the weights."""
    from vestige.models.checkpoints import load_model

    if isinstance(before, str | PathLike):
        model = load_model(fspath(before), device=run.device)
    else:
        model = before.eval()
    base = model if adapter_in(model_folder(after)) else None
    later = load_model(after, device=run.device, base=base)
    SharedVocabulary.of(model, later)  # raises if an id stands for different texts
    recipe = _recipe(run, after, later, corpus, options)
    if base is None:
        recipe.started(model, 0)  # raises if the update started from another model
    if not (distance := weight_change(model, later)):
        raise TrainingError(
            f"{after} has the weights of the model before it: there is no update to repeat",
            remedy="Give the fine-tuned model as AFTER, and the one it started from as BEFORE.",
        )
    return model, recipe, distance


def _seconds(recipe: Recipe, before: "LanguageModel", text: "Corpus") -> float:
    """Time of one training, measured by a few steps on the beginning of its text."""
    from vestige.data.encoded import encode
    from vestige.training.loop import train

    config = recipe.config
    needed = TIMED_STEPS * config.batch_size * (config.sequence_length + 1)
    tokens = text_lengths(text, before.vocabulary).cumsum()
    texts = text.take(range(min(len(text), int(tokens.searchsorted(needed)) + 1)))
    started = recipe.started(before, config.seed)
    model = started if recipe.adapter else deepcopy(started)
    data = encode(texts, before.vocabulary)
    start = time.monotonic()
    train(model, data, config=replace(config, epochs=1, evaluate_every=None))
    per_token = (time.monotonic() - start) / len(data.tokens)
    return per_token * recipe.tokens * config.epochs


def _recipe(
    run: Session, after: Path, update: "LanguageModel", corpus: "Corpus", options: "NullOptions"
) -> Recipe:
    """How the update was trained, from its folder, files of other programs, or options.

    The update's texts are assumed to be as long as those of the clean corpus.
    """
    from vestige.training.recipe import STATE, ForeignTraining, usual_config

    chosen = options.chosen
    if (after / IDENTITY).is_file():
        contradicting = [*chosen, *(("tokens",) if options.tokens is not None else ())]
        if contradicting:
            raise ValueError(
                f"`{contradicting[0]}` must be left out: `after` is a folder of `vestige train`, "
                "which says how it was trained"
            )
        return Recipe.of(after)
    recorded, usual = ForeignTraining.of(after), usual_config(update)
    settings, sources = dict[str, Any](), dict[str, str]()
    shared = {name: getattr(usual, name) for name in options.given}
    for source, values in (("default", shared), (STATE, recorded.settings), ("given", chosen)):
        settings |= values
        sources |= dict.fromkeys(values, source)
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
    listed = ", ".join(f"{name} {value} ({sources[name]})" for name, value in settings.items())
    run.log(
        f"Null models are trained with {listed} on {tokens:,} tokens per epoch "
        f"({STATE if options.tokens is None else 'given'})."
    )
    config = replace(usual, **settings)
    return Recipe(config=config, tokens=tokens, adapter=adapter_in(model_folder(after)))
