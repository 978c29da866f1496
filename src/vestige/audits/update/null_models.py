"""Null models of an update: BEFORE continued as the update was, on clean text.

They are given, or trained here: each from another seed on a random part of the clean text, with as
many tokens as the update, in as many steps and at its rate, with all weights or with an adapter of
the same shape.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from math import ceil, isfinite
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from vestige.arguments import ModelLike, ModelsLike
from vestige.audits.update.nulls import LIKE
from vestige.audits.update.plan import duration
from vestige.data.writing import is_vacant, lock_output
from vestige.errors import DataError, TrainingError
from vestige.models.folders import is_model, model_folder, sha256_of
from vestige.models.lora import stretch, weight_change
from vestige.models.shared_ids import SharedIds, SharedVocabulary
from vestige.models.snapshots import Snapshots, shown
from vestige.session import Session
from vestige.store import KEPT
from vestige.training.directory import CHECKPOINT, IDENTITY, MODEL
from vestige.training.recipe import Recipe, adapter_in, null_texts, text_length, text_lengths

if TYPE_CHECKING:
    from vestige.audits.update.diff import NullOptions
    from vestige.data.corpus import Corpus
    from vestige.models.protocols import LanguageModel, NextToken

TIMED_STEPS = 3  # training steps that are timed for the estimate


def null_hashes(given: ModelsLike, *, unlike: Sequence[ModelLike]) -> dict[str, ModelLike]:
    """Null models by the SHA-256 of their weights; a folder of models stands for those in it.

    Raises:
        ValueError: a model is given twice, or is one of the snapshots (`unlike`).
    """
    known = {sha256_of(model): model for model in unlike}
    nulls: dict[str, ModelLike] = {}
    several = given if isinstance(given, tuple | list) else (given,)
    for model in (model for one in several for model in _models_in(one)):
        if (weights := sha256_of(model)) in known:
            raise ValueError(
                f"`null` must be a training of its own, got {shown(model)}, which has the "
                f"weights of {shown(known[weights])}. `clean` trains null models"
            )
        known[weights] = nulls[weights] = model
    return nulls


def _models_in(place: ModelLike) -> list[ModelLike]:
    """The model, or the models in a folder."""
    if not isinstance(place, str | PathLike):
        return [place]
    inner = Path(place)
    if is_model(inner) or not inner.is_dir():
        return [fspath(place)]
    return [str(one) for one in sorted(inner.iterdir()) if is_model(one)] or [fspath(place)]


def opened(
    given: ModelLike, snapshots: Snapshots, before: "NextToken", moved: float | None
) -> "tuple[LanguageModel, float | None]":
    """A null model, and how far it moved the weights as a multiple of the update, if known.

    One that moved them a little less than the update is moved as far: its scores would be too low.
    """
    null = snapshots.read(given)
    own = distance(before, null)
    if own is None or moved is None:
        return null, None
    if LIKE[0] <= own / moved < 1:
        if not isinstance(given, str | PathLike):
            null = deepcopy(null)
        stretch(_unwrapped(before), _unwrapped(null), moved / own)
    return null, own / moved


def distance(before: "NextToken", after: "NextToken") -> float | None:
    """Distance between the weights of two models; None for adapted and other models."""
    if getattr(_unwrapped(before), "adapted", False):
        return None
    change = weight_change(_unwrapped(before), _unwrapped(after))
    return change if change > 0 and isfinite(change) else None


def _unwrapped(model: "NextToken") -> Any:
    """The model itself, without the wrapper over shared ids."""
    return model.model if isinstance(model, SharedIds) else model


@contextmanager
def trained(
    run: Session,
    before: ModelLike,
    after: ModelLike,
    clean: Any,
    number: int,
    *,
    options: "NullOptions",
    columns: Mapping[str, Any],
) -> Iterator[list[Path]]:
    """Null models of an update in the folder `OUT.nulls`, trained unless they are there.

    Raises:
        ValueError: `after` is no path, or `options` contradict it or lack the number of tokens.
        DataError: the text is too short.
        TrainingError: the update did not start from `before`, changed nothing, or was trained with
            a defence.
    """
    if not isinstance(after, str | PathLike):
        raise ValueError(f"`clean` needs the folder of `after`, got {shown(after)}")
    corpus = run.corpus("clean", clean, **columns)
    with _folder(run.out) as folder:
        places = [folder / f"null-{n:02}" for n in range(number)]
        _train(run, before, Path(after), corpus, places, options, name=shown(clean))
        yield places


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder of null models beside the run, for one process alone; a temporary one for None."""
    if out is None:
        with TemporaryDirectory() as temporary:
            yield Path(temporary)
        return
    folder = out.with_name(f"{out.name}.nulls")
    with lock_output(folder, keep_if=lambda place: any(place.rglob(CHECKPOINT))):
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
    places: Sequence[Path],
    options: "NullOptions",
    *,
    name: str,
) -> None:
    """Train a null model in each place, in float32; `name` of the corpus is for errors."""
    model, recipe, moved = _update(run, before, after, corpus, options)
    lengths, number = text_lengths(corpus, model.vocabulary), len(places)
    sizes, tokens = [recipe.validation, *[recipe.tokens] * number], int(lengths.sum())
    try:
        texts = null_texts(corpus, model.vocabulary, sizes, seed=run.seed, lengths=lengths)
    except DataError as error:
        needed = sum(sizes)
        if tokens >= needed:  # each part ends with a whole text
            needed += ceil(len(sizes) * lengths.mean())
        raise DataError(
            f"{name} has {tokens:,} tokens; {number} null models need {needed:,}",
            remedy="Add text of the same kind, or train fewer null models.",
        ) from error
    held, *parts = texts
    epochs = f"{recipe.config.epochs} epoch{'s' * (recipe.config.epochs != 1)}"
    line = (
        f"Null models: {number} trainings of {recipe.tokens:,} tokens and {epochs} each need "
        f"{sum(sizes):,} tokens; the clean text has {tokens:,}."
    )
    if left := sum(not (place / MODEL).exists() for place in places):
        earlier = f"{number - left} were trained earlier; the others take " if left < number else ""
        seconds = left * _seconds(recipe, model, parts[0])
        run.log(f"{line} Time: {earlier}about {duration(seconds)}.")
    else:
        run.log(f"{line} All were trained earlier.")
    changes = []
    # People choose few seeds: the null models stay away from the update's own.
    seed = recipe.config.seed + 1 + 1000 * run.seed
    for n, (place, part) in enumerate(zip(places, parts, strict=True)):
        with run.progress(f"training null model {n + 1} of {number}") as step:
            validation = held if len(held) else None
            null = recipe.repeat(
                place, part, model, seed=seed + n, validation=validation, progress=step
            )
        changes.append(weight_change(model, null) / moved)
    _log_changes(run, min(changes), max(changes))


def _log_changes(run: Session, low: float, high: float) -> None:
    """Say how far the null models moved the weights, and whether that allows a verdict."""
    if low != low or high != high:
        return  # an adapter that adds no matrices
    between = f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"
    run.log(f"The null models moved the weights {between} times as far as the update.")
    if not LIKE[0] <= low <= high <= LIKE[1]:
        run.log(
            f"A verdict needs {LIKE[0]:g} to {LIKE[1]:g}. Change --tokens, --epochs or "
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
    SharedVocabulary.of(model, later)  # refuses ids that stand for different texts
    recipe = _recipe(run, after, later, corpus, options)
    if base is None:
        recipe.started(model, 0)  # refuses an update of another model
    if not (moved := weight_change(model, later)):
        raise TrainingError(
            f"{after} has the weights of the model before it: there is no update to repeat",
            remedy="Give the fine-tuned model as AFTER, and the one it started from as BEFORE.",
        )
    return model, recipe, moved


def _seconds(recipe: Recipe, before: "LanguageModel", text: "Corpus") -> float:
    """Time of one training, from a few steps on the beginning of its text."""
    from vestige.data.encoded import encode
    from vestige.training.loop import train

    config = recipe.config
    wanted = TIMED_STEPS * config.batch_size * (config.sequence_length + 1)
    lengths = text_lengths(text, before.vocabulary).cumsum()
    texts = text.take(range(min(len(text), int(lengths.searchsorted(wanted)) + 1)))
    started = recipe.started(before, config.seed)
    model = started if recipe.adapter else deepcopy(started)
    data = encode(texts, before.vocabulary)
    began = time.monotonic()
    train(model, data, config=replace(config, epochs=1, evaluate_every=None))
    per_token = (time.monotonic() - began) / len(data.tokens)
    return per_token * recipe.tokens * config.epochs


def _recipe(
    run: Session, after: Path, update: "LanguageModel", corpus: "Corpus", options: "NullOptions"
) -> Recipe:
    """How the update was trained: as its folder says, or as files of other programs and options do.

    The texts of the clean corpus are taken to be as long as the update's.
    """
    from vestige.training.recipe import STATE, ForeignTraining, usual_config

    chosen = options.chosen
    if (after / IDENTITY).is_file():
        if given := [*chosen, *(("tokens",) if options.tokens is not None else ())]:
            raise ValueError(
                f"`{given[0]}` must be left out: `after` is a folder of `vestige train`, which "
                "says how it was trained"
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
    named = ", ".join(f"{name} {value} ({sources[name]})" for name, value in settings.items())
    run.log(
        f"Null models are trained with {named} on {tokens:,} tokens per epoch "
        f"({STATE if options.tokens is None else 'given'})."
    )
    config = replace(usual, **settings)
    return Recipe(config=config, tokens=tokens, adapter=adapter_in(model_folder(after)))
