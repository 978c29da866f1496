"""The compared trainings: their names, their models, and the text and users that they share.

A name may have several trainings that differ in their seed: NAME=RUN given several times, or a
folder of `vestige train --seeds`.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from vestige.data.files import Measurements, conform
from vestige.errors import DataError, IncompatibleModels, RunError
from vestige.preparation.trained import RUN, repeats
from vestige.training.directory import DATA

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vestige.data.corpus import Corpus
    from vestige.data.encoded import EncodedCorpus
    from vestige.models.protocols import LanguageModel
    from vestige.results import Run

    Trained: TypeAlias = str | PathLike[str] | LanguageModel
    Paths: TypeAlias = Sequence[str | PathLike[str]]
    Trainings: TypeAlias = Paths | Mapping[str, Trained | Sequence[Trained]]
else:
    Trainings = Sequence[str]


class _Summary(Measurements):
    """Schema of a training's summary."""

    steps: float | None = None
    tokens: float | None = None
    epoch: float | None = None
    seconds: float | None = None
    peak_memory_mib: float | None = None


@dataclass(frozen=True)
class TrainedModel:
    """A model and its training.

    Attributes:
        name: of the trainings that it belongs to.
        source: its path, or the loaded model.
        model: the model.
        run: of its training; None for a model without one.
    """

    name: str
    source: "Trained"
    model: "LanguageModel"
    run: "Run | None" = None

    @property
    def where(self) -> str:
        """Its folder, or its class, for messages."""
        source = self.source
        return (
            fspath(source) if isinstance(source, str | PathLike) else f"<{type(source).__name__}>"
        )

    @property
    def summary(self) -> dict[str, Any]:
        """The training's summary; empty without a run."""
        return self.run.summary if self.run else {}

    @property
    def defence(self) -> str:
        """The training's defence; "none" without a run."""
        return str(self.summary.get("defence") or "none")

    def settings(self) -> dict[str, Any]:
        """The training's configuration without its seed; only the defence without a run."""
        made = self.run.run.get("configuration") if self.run else None
        known = dict(made) if isinstance(made, dict) else {}
        decay = {key: self.summary[key] for key in self.summary if key == "noise_decay"}
        own = {key: known[key] for key in known if key not in ("seed", "seconds", "out")}
        return {**own, "defence": self.defence, **decay}

    @property
    def held_out(self) -> str | None:
        """SHA-256 of the validation text."""
        data = self.run.run.get("data") if self.run else None
        held = data.get("validation") if isinstance(data, dict) else None
        return held.get("sha256") if isinstance(held, dict) else None

    def encoded(self, part: str) -> "EncodedCorpus | None":
        """The "training" or "validation" text of its training; None if it was not kept."""
        from vestige.data.encoded import load_encoded

        if isinstance(self.source, str | PathLike):
            with suppress(DataError):
                return load_encoded(Path(self.source) / DATA / part)
        return None


def named(runs: "Trainings") -> "dict[str, tuple[Trained, ...]]":
    """Trainings by name: NAME of `NAME=PATH`, or the name of the folder.

    Raises:
        ValueError: fewer than two names, one training twice, or two folders of one name.

    Example:
        >>> named(["runs/plain", "gold=runs/1", "gold=runs/2"])
        {'plain': ('runs/plain',), 'gold': ('runs/1', 'runs/2')}
        >>> named({"plain": "runs/plain", "gold": ["runs/1", "runs/2"]})
        {'plain': ('runs/plain',), 'gold': ('runs/1', 'runs/2')}
    """
    found: dict[str, tuple[Trained, ...]] = {}
    seen = set[object]()
    for name, given in _pairs(runs):
        for one in repeats(fspath(given)) if isinstance(given, str | PathLike) else (given,):
            key = Path(one).resolve() if isinstance(one, str) else id(one)
            if key in seen:
                raise ValueError(f"`runs` must name each training once, got {one} twice")
            seen.add(key)
            found[name] = (*found.get(name, ()), one)
    if len(found) < 2:
        raise ValueError(f"`runs` must name at least two trainings to compare, got {len(found)}")
    return found


def listed(runs: "Trainings") -> "Trainings":
    """Trainings as a command line gives them, `NAME=PATH`, so that the record repeats the call.

    Loaded models and names with "=" have no such form; then `runs` is returned as it is.

    Example:
        >>> listed({"plain": "runs/plain", "gold": ["runs/1", "runs/2"]})
        ('plain=runs/plain', 'gold=runs/1', 'gold=runs/2')
    """
    if not isinstance(runs, Mapping):
        return runs
    pairs = _pairs(runs)
    words = [f"{name}={fspath(one)}" for name, one in pairs if isinstance(one, str | PathLike)]
    plain = len(words) == len(pairs) and all(name and "=" not in name for name in runs)
    return tuple(words) if plain else runs


def _pairs(runs: "Trainings") -> "list[tuple[str, Trained]]":
    """Each training with its name, in the order given."""
    found: list[tuple[str, Any]] = []
    if isinstance(runs, Mapping):
        for name, given in runs.items():
            several = given if isinstance(given, list | tuple) else [given]
            found += [(name, one) for one in several]
        return found
    for run in (fspath(one) for one in runs):
        name, equals, path = run.partition("=")
        if not (equals and name) or Path(run).exists():
            name, path = Path(run).resolve().name, run
            if name in dict(found):
                raise ValueError(
                    f"`runs` must have different names, got {name!r} twice. NAME=PATH gives a "
                    "training another name, or several trainings one name"
                )
        found.append((name, path))
    return found


def load_trainings(runs: "Trainings", *, device: str) -> list[TrainedModel]:
    """The model of every training.

    Raises:
        ValueError: see `named`; or two trainings of one name have the same weights or different
            settings.
        ModelError: a folder has no model.
        IncompatibleModels: the vocabularies differ.
        RunError: a summary is damaged.
    """
    from vestige.models.checkpoints import check_compatible, load_model

    found = list[TrainedModel]()
    for name, source in [(name, one) for name, several in named(runs).items() for one in several]:
        if isinstance(source, str | PathLike):
            model = load_model(fspath(source), device=device)
            found.append(TrainedModel(name, source, model, _run(Path(source))))
        else:
            found.append(TrainedModel(name, source, source.eval()))
        try:
            check_compatible(found[0].model, found[-1].model)
        except IncompatibleModels as error:
            raise IncompatibleModels(
                f"{found[0].where} and {found[-1].where} cannot be compared: {error.problem}",
                remedy="Train them with one vocabulary: --vocabulary of the first.",
            ) from error
    _check_repeats(found)
    return found


def _run(folder: Path) -> "Run | None":
    """The run of a folder of `vestige train`; None for any other."""
    from vestige import results

    if not (folder / RUN).is_dir():
        return None
    found = results.load(folder / RUN)
    remedy = "It was changed or is damaged; repeat the training."
    conform(found.summary, _Summary, folder / RUN / "summary.json", error=RunError, remedy=remedy)
    return found


def _check_repeats(trainings: Sequence[TrainedModel]) -> None:
    """Raise ValueError unless trainings of one name differ in their seed, and only in it."""
    from vestige.models.folders import of_model

    by_name: dict[str, list[TrainedModel]] = {}
    for one in trainings:
        by_name.setdefault(one.name, []).append(one)
    for name, [first, *others] in by_name.items():
        weights = dict[str, TrainedModel]()
        for one in [first, *others] if others else []:
            made, own = first.settings(), one.settings()
            for key in {**made, **own}:
                if made.get(key) != own.get(key):
                    raise ValueError(
                        f"trainings of the name {name!r} must differ in their seed alone, got "
                        f"{key} {made.get(key)!r} in {first.where} and {own.get(key)!r} in "
                        f"{one.where}"
                    )
            same = weights.setdefault(str(of_model(one.source, one.model)["sha256"]), one)
            if same is not one:
                raise ValueError(
                    f"trainings of the name {name!r} must have different seeds, got the same "
                    f"weights in {same.where} and {one.where}"
                )


def labelled(trainings: Sequence[TrainedModel]) -> dict[str, TrainedModel]:
    """Trainings by name, with a number if several share it: "plain", "gold 1", "gold 2"."""
    names = [one.name for one in trainings]
    return {
        one.name if names.count(one.name) == 1
        else f"{one.name} {names[:place].count(one.name) + 1}": one
        for place, one in enumerate(trainings)
    }  # fmt: skip


def undefended(trainings: Sequence[TrainedModel], baseline: str | None) -> str:
    """The name of the trainings that the others are compared with.

    Raises:
        ValueError: no training has this name, or not exactly one name is without a defence.
    """
    names = list(dict.fromkeys(one.name for one in trainings))
    plain = list(dict.fromkeys(one.name for one in trainings if one.defence == "none"))
    if baseline is None and len(plain) != 1:
        raise ValueError(
            "`baseline` must name the undefended training, because not exactly one has no "
            f"defence: {', '.join(plain) or 'none'}"
        )
    if baseline is not None and baseline not in names:
        raise ValueError(f"`baseline` must be one of {', '.join(names)}, got {baseline!r}")
    return baseline or plain[0]


def shared_text(
    trainings: Sequence[TrainedModel], test: "Corpus | None"
) -> "tuple[EncodedCorpus | None, list[str]]":
    """The text that measures utility: the one given, or the validation text of all trainings.

    Returns:
        (the text encoded, or None; notes).
    """
    from vestige.data.encoded import encode

    if test is not None:
        return encode(test, trainings[0].model.vocabulary), []
    held = {one.held_out for one in trainings}
    encoded = trainings[0].encoded("validation") if len(held) == 1 and None not in held else None
    if encoded is None:
        return None, [
            "Utility and fairness were not measured: the trainings have no common validation "
            "text; give --test."
        ]
    return encoded, [
        "Utility was measured on the validation text, which also decided which weights were kept. "
        "Give other text with --test."
    ]


def user_samples(
    trainings: Sequence[TrainedModel], baseline: str, test: "EncodedCorpus | None"
) -> "tuple[NDArray[np.int64] | None, list[str]]":
    """Number of training documents of each user of the test text.

    Returns:
        ((u,) numbers, or None; a note if the users are unknown).
    """
    import numpy as np

    if test is None:
        return None, []
    missing = "Fairness between users was not measured: "
    if test.users is None:
        return None, [f"{missing}the test text has no users; give --test with --user."]
    for one in sorted(trainings, key=lambda one: one.name != baseline):
        data = one.encoded("training")
        if data is not None and data.users is not None:
            counts = np.bincount(data.users, minlength=len(data.names))
            known = dict(zip(data.names, counts.tolist(), strict=True)) | {"": 0}
            return np.array([known.get(name, 0) for name in test.names], np.int64), []
    return None, [f"{missing}no training recorded users; train with --user."]
