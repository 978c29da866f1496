"""Train null models: BEFORE continued as the update was, on clean text and with other seeds.

Each reads a random part of the text of its own: as many tokens as the update, in as many steps and
at its rate, with all weights or with an adapter of the same shape.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vestige.arguments import ModelLike
from vestige.attacks.update.null_searches import LIKE
from vestige.audits.update.null_recipe import NullOptions, recipe_of
from vestige.audits.update.planning import duration
from vestige.data.file_lock import claimed, vacant
from vestige.errors import DataError, TrainingError
from vestige.models.snapshots import shown
from vestige.session import Session
from vestige.store import KEPT
from vestige.training.checkpoint import CHECKPOINT, MODEL
from vestige.training.null_models import null_texts, text_lengths

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.models.protocols import LanguageModel
    from vestige.training.null_models import Recipe

Lengths = NDArray[np.int64]

TIMED_STEPS = 3
"""Training steps that are timed for the estimate."""


@dataclass(frozen=True)
class _Update:
    """The update that null models repeat.

    Attributes:
        before: the model that it started from.
        base: the base of its adapter; None if all weights were trained.
        recipe: how it was trained.
        moved: how far it moved the weights.
    """

    before: "LanguageModel"
    base: "LanguageModel | None"
    recipe: "Recipe"
    moved: float

    def start(self, seed: int) -> Any:
        """The initial model of a training: a fresh adapter, or the model to continue."""
        if self.base is not None:
            # An adapter shares the weights of its base.
            return partial(self.recipe.started, self.before, seed)
        return self.recipe.started(self.before, seed)


@contextmanager
def null_models(
    run: Session,
    before: ModelLike,
    after: ModelLike,
    clean: Any,
    number: int,
    *,
    options: NullOptions,
    columns: dict[str, Any],
) -> Iterator[list[Path]]:
    """Null models of an update in the folder `OUT.nulls`, trained unless they are there.

    Args:
        clean: text of the update's kind, without what may have leaked.
        number: of null models.
        options: how an update from another program was trained.
        columns: settings of `Session.corpus`.

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
        update = _update(run, before, Path(after), corpus, options)
        lengths = text_lengths(corpus, update.before.vocabulary)
        held, *parts = _texts(update, corpus, lengths, number, seed=run.seed, name=clean)
        places = [folder / f"null-{n:02}" for n in range(number)]
        _log_plan(run, update, places, parts[0], tokens=int(lengths.sum()))
        changes = [
            _trained(run, update, place, part, held, number=n, of=number)
            for n, (place, part) in enumerate(zip(places, parts, strict=True))
        ]
        _log_changes(run, changes)
        del update
        yield places


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder of null models beside the run, for one process alone; a temporary one for None."""
    if out is None:
        with TemporaryDirectory() as temporary:
            yield Path(temporary)
        return
    folder = out.with_name(f"{out.name}.nulls")
    with claimed(folder, worth=lambda place: any(place.rglob(CHECKPOINT))):
        try:
            yield folder
        except (OSError, KeyboardInterrupt) as error:
            if not vacant(folder):
                error.add_note(KEPT)
            raise


def _update(
    run: Session, before: ModelLike, after: Path, corpus: "Corpus", options: NullOptions
) -> _Update:
    """The update, read as a training reads it: in float32."""
    from vestige.models.checkpoints import load_model
    from vestige.models.folders import model_folder
    from vestige.models.shared_vocabulary import SharedVocabulary
    from vestige.models.weight_change import weight_change
    from vestige.training.null_models import adapter_in

    if isinstance(before, str | PathLike):
        model = load_model(fspath(before), device=run.device)
    else:
        model = before.eval()
    base = model if adapter_in(model_folder(after)) else None
    later = load_model(after, device=run.device, base=base)
    SharedVocabulary.of(model, later)  # refuses ids that stand for different texts
    recipe = recipe_of(after, later, corpus, options=options, log=run.log)
    if base is None:
        recipe.started(model, 0)  # refuses an update of another model
    moved = weight_change(model, later)
    if not moved:
        raise TrainingError(
            f"{after} has the weights of the model before it: there is no update to repeat",
            remedy="Give the fine-tuned model as AFTER, and the one it started from as BEFORE.",
        )
    return _Update(model, base, recipe, moved)


def _texts(
    update: _Update, corpus: "Corpus", lengths: Lengths, number: int, *, seed: int, name: Any
) -> "list[Corpus]":
    """Validation text, and the text of each null model.

    Args:
        corpus: clean text.
        lengths: tokens of each of its texts.
        number: of null models.
        seed: decides which texts.
        name: of the corpus, for messages.

    Raises:
        DataError: the corpus is too short.
    """
    vocabulary = update.before.vocabulary
    sizes = [update.recipe.validation, *[update.recipe.tokens] * number]
    needed = sum(sizes)
    if lengths.sum() >= needed:
        try:
            return null_texts(corpus, vocabulary, sizes, seed=seed, lengths=lengths)
        except DataError:  # each part ends with a whole text
            needed += ceil(len(sizes) * lengths.mean())
    raise DataError(
        f"{shown(name)} has {lengths.sum():,} tokens; {number} null models need {needed:,}",
        remedy="Add text of the same kind, or train fewer null models.",
    )


def _log_plan(
    run: Session, update: _Update, places: Sequence[Path], part: "Corpus", *, tokens: int
) -> None:
    """Say how much text and time the trainings need, before the first.

    Args:
        places: of the null models.
        part: the text of one.
        tokens: of all clean text.
    """
    recipe = update.recipe
    needed = recipe.validation + recipe.tokens * len(places)
    epochs = f"{recipe.config.epochs} epoch{'s' * (recipe.config.epochs != 1)}"
    line = (
        f"Null models: {len(places)} trainings of {recipe.tokens:,} tokens and {epochs} each need "
        f"{needed:,} tokens; the clean text has {tokens:,}."
    )
    left = [place for place in places if not (place / MODEL).exists()]
    if not left:
        run.log(f"{line} All were trained earlier.")
        return
    finished = len(places) - len(left)
    earlier = f"{finished} were trained earlier; the others take " if finished else ""
    run.log(f"{line} Time: {earlier}about {duration(len(left) * _seconds(update, part))}.")


def _seconds(update: _Update, part: "Corpus") -> float:
    """Time of one training, from a few steps on the beginning of its text."""
    from copy import deepcopy

    from vestige.data.encoded import encode
    from vestige.training.loop import train

    config = update.recipe.config
    wanted = TIMED_STEPS * config.batch_size * (config.sequence_length + 1)
    lengths = text_lengths(part, update.before.vocabulary).cumsum()
    texts = part.take(range(min(len(part), int(lengths.searchsorted(wanted)) + 1)))
    start = update.start(config.seed)
    model = deepcopy(start) if update.base is None else start()
    data = encode(texts, update.before.vocabulary)
    began = time.monotonic()
    train(model, data, config=replace(config, epochs=1, evaluate_every=None))
    per_token = (time.monotonic() - began) / len(data.tokens)
    return per_token * update.recipe.tokens * config.epochs


def _trained(
    run: Session,
    update: _Update,
    place: Path,
    text: "Corpus",
    held: "Corpus",
    *,
    number: int,
    of: int,
) -> float:
    """Train one null model; how far it moved the weights, as a multiple of the update's change."""
    from vestige.models.weight_change import weight_change
    from vestige.training.snapshot import snapshot

    # People choose few seeds: the null models stay away from the update's own.
    seed = update.recipe.config.seed + 1 + 1000 * run.seed + number
    with run.progress(f"training null model {number + 1} of {of}") as step:
        model = snapshot(
            place,
            text,
            start=update.start(seed),
            base=update.base,
            vocabulary=update.before.vocabulary,
            config=update.recipe.seeded(seed),
            validation=held if len(held) else None,
            progress=lambda done, total, *_: step(done, total),
        )
    return weight_change(update.before, model) / update.moved


def _log_changes(run: Session, changes: Sequence[float]) -> None:
    """Say how far the null models moved the weights, and whether that allows a verdict."""
    low, high = min(changes), max(changes)
    if low != low or high != high:
        return  # an adapter that adds no matrices
    between = f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"
    run.log(f"The null models moved the weights {between} times as far as the update.")
    if not LIKE[0] <= low <= high <= LIKE[1]:
        run.log(
            f"A verdict needs {LIKE[0]:g} to {LIKE[1]:g}. Change --tokens, --epochs or "
            "--learning-rate, or give the BEFORE that AFTER started from."
        )
