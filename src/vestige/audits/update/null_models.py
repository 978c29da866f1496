"""Null models of an update: BEFORE continued as the update was, on clean text.

They are given, or trained here: each from another seed on a random part of the clean text, with as
many tokens as the update, in as many steps and at its rate, with all weights or with an adapter of
the same shape.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import ceil, isfinite
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vestige.arguments import ModelLike, ModelsLike
from vestige.audits.update.nulls import LIKE
from vestige.audits.update.plan import duration
from vestige.data.file_lock import claimed, vacant
from vestige.errors import DataError, TrainingError
from vestige.models.folders import is_model, model_folder, sha256_of
from vestige.models.snapshots import SharedIds, SharedVocabulary, Snapshots, shown
from vestige.models.weight_change import stretch, weight_change
from vestige.session import Session
from vestige.store import KEPT
from vestige.training.checkpoint import CHECKPOINT, IDENTITY, MODEL
from vestige.training.config import TrainingConfig
from vestige.training.null_models import Recipe, adapter_in, null_texts, text_length, text_lengths

if TYPE_CHECKING:
    from vestige.audits.update.diff import NullOptions
    from vestige.data.corpus import Corpus
    from vestige.models.protocols import LanguageModel, NextToken

LONGEST = 512
"""Tokens of a training window if neither files nor options say."""

TIMED_STEPS = 3
"""Training steps that are timed for the estimate."""


def null_hashes(given: ModelsLike, *, unlike: Sequence[ModelLike]) -> dict[str, ModelLike]:
    """Null models by the SHA-256 of their weights; a folder of models stands for those in it.

    Args:
        given: paths or models.
        unlike: the two snapshots as they were given.

    Raises:
        ValueError: a model is given twice, or is one of the snapshots.
        ModelError: a model does not exist.
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
    folder = Path(place)
    if is_model(folder) or not folder.is_dir():
        return [fspath(place)]
    return [str(inner) for inner in sorted(folder.iterdir()) if is_model(inner)] or [fspath(place)]


def opened(
    given: ModelLike, snapshots: Snapshots, before: "NextToken", moved: float | None
) -> "tuple[LanguageModel, float | None]":
    """A null model, and how far it moved the weights as a multiple of the update's change.

    One that moved them a little less than the update is moved as far: its scores would be too low.

    Args:
        given: a path or a model, which is copied before it is moved.
        snapshots: of the update; null models are read over their token ids.
        before: the model that the update and the null models continue.
        moved: how far the update moved the weights; None if that is not known.
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
        update = _Update.of(run, before, Path(after), corpus, options)
        lengths = text_lengths(corpus, update.before.vocabulary)
        held, *parts = update.texts(corpus, lengths, number, name=clean)
        places = [folder / f"null-{n:02}" for n in range(number)]
        update.log_plan(places, parts[0], tokens=int(lengths.sum()))
        changes = [
            update.train(place, part, held, number=n, of=number)
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


@dataclass(frozen=True)
class _Update:
    """The update that null models repeat.

    Attributes:
        run: the call.
        before: the model that it started from.
        base: the base of its adapter; None if all weights were trained.
        recipe: how it was trained.
        moved: how far it moved the weights.
    """

    run: Session
    before: "LanguageModel"
    base: "LanguageModel | None"
    recipe: Recipe
    moved: float

    @classmethod
    def of(
        cls, run: Session, before: ModelLike, after: Path, corpus: "Corpus", options: "NullOptions"
    ) -> "_Update":
        """The update, read as a training reads it: in float32."""
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
        moved = weight_change(model, later)
        if not moved:
            raise TrainingError(
                f"{after} has the weights of the model before it: there is no update to repeat",
                remedy="Give the fine-tuned model as AFTER, and the one it started from as BEFORE.",
            )
        return cls(run, model, base, recipe, moved)

    def start(self, seed: int) -> Any:
        """The model to continue, or what makes a fresh adapter, which shares its base's weights."""
        started = partial(self.recipe.started, self.before, seed)
        return started() if self.base is None else started

    def texts(
        self, corpus: "Corpus", lengths: NDArray[np.int64], number: int, *, name: Any
    ) -> "list[Corpus]":
        """Validation text, and the text of each null model; `name` of the corpus is for errors."""
        sizes = [self.recipe.validation, *[self.recipe.tokens] * number]
        vocabulary = self.before.vocabulary
        try:
            return null_texts(corpus, vocabulary, sizes, seed=self.run.seed, lengths=lengths)
        except DataError as error:
            needed = sum(sizes)
            if lengths.sum() >= needed:  # each part ends with a whole text
                needed += ceil(len(sizes) * lengths.mean())
            raise DataError(
                f"{shown(name)} has {lengths.sum():,} tokens; {number} null models need {needed:,}",
                remedy="Add text of the same kind, or train fewer null models.",
            ) from error

    def log_plan(self, places: Sequence[Path], part: "Corpus", *, tokens: int) -> None:
        """Say how much text and time the trainings need; `part` is the text of one of them."""
        recipe, number = self.recipe, len(places)
        epochs = f"{recipe.config.epochs} epoch{'s' * (recipe.config.epochs != 1)}"
        line = (
            f"Null models: {number} trainings of {recipe.tokens:,} tokens and {epochs} each need "
            f"{recipe.validation + recipe.tokens * number:,} tokens; the clean text has {tokens:,}."
        )
        left = sum(not (place / MODEL).exists() for place in places)
        if not left:
            self.run.log(f"{line} All were trained earlier.")
            return
        earlier = f"{number - left} were trained earlier; the others take " if left < number else ""
        self.run.log(f"{line} Time: {earlier}about {duration(left * self._seconds(part))}.")

    def _seconds(self, part: "Corpus") -> float:
        """Time of one training, from a few steps on the beginning of its text."""
        from vestige.data.encoded import encode
        from vestige.training.loop import train

        config, vocabulary = self.recipe.config, self.before.vocabulary
        wanted = TIMED_STEPS * config.batch_size * (config.sequence_length + 1)
        lengths = text_lengths(part, vocabulary).cumsum()
        texts = part.take(range(min(len(part), int(lengths.searchsorted(wanted)) + 1)))
        start = self.start(config.seed)
        model = deepcopy(start) if self.base is None else start()
        data = encode(texts, vocabulary)
        began = time.monotonic()
        train(model, data, config=replace(config, epochs=1, evaluate_every=None))
        per_token = (time.monotonic() - began) / len(data.tokens)
        return per_token * self.recipe.tokens * config.epochs

    def train(self, place: Path, text: "Corpus", held: "Corpus", *, number: int, of: int) -> float:
        """Train one null model; how far it moved, as a multiple of the update's change."""
        from vestige.training.snapshot import snapshot

        # People choose few seeds: the null models stay away from the update's own.
        seed = self.recipe.config.seed + 1 + 1000 * self.run.seed + number
        with self.run.progress(f"training null model {number + 1} of {of}") as step:
            model = snapshot(
                place,
                text,
                start=self.start(seed),
                base=self.base,
                vocabulary=self.before.vocabulary,
                config=self.recipe.seeded(seed),
                validation=held if len(held) else None,
                progress=lambda done, total, *_: step(done, total),
            )
        return weight_change(self.before, model) / self.moved


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


def _recipe(
    run: Session, after: Path, update: "LanguageModel", corpus: "Corpus", options: "NullOptions"
) -> Recipe:
    """How the update was trained: as its folder says, or as files of other programs and options do.

    The texts of the clean corpus are taken to be as long as the update's.
    """
    from vestige.training.foreign_recipe import STATE, ForeignTraining
    from vestige.training.presets import gentle

    chosen = options.chosen
    if (after / IDENTITY).is_file():
        if given := [*chosen, *(("tokens",) if options.tokens is not None else ())]:
            raise ValueError(
                f"`{given[0]}` must be left out: `after` is a folder of `vestige train`, which "
                "says how it was trained"
            )
        return Recipe.of(after)
    recorded, defaults = ForeignTraining.of(after), asdict(gentle(update))
    defaults["sequence_length"] = min(LONGEST, getattr(update, "longest", None) or LONGEST)
    settings, sources = dict[str, Any](), dict[str, str]()
    shared = {name: defaults[name] for name in options.given if name in defaults}
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
    config = TrainingConfig(**{**defaults, **settings, "seed": 0, "batching": "documents"})
    return Recipe(config=config, tokens=tokens, adapter=adapter_in(model_folder(after)))
