"""Trainings by name, and their models.

A name may have several trainings that differ in their seed: NAME=RUN given several times, or a
folder of `vestige train --seeds`.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from vestige.data.json_file import Measurements, conform
from vestige.errors import DataError, IncompatibleModels, RunError
from vestige.preparation.trained import RUN, repeats
from vestige.training.directory import DATA

if TYPE_CHECKING:
    from vestige.data.encoded import EncodedCorpus
    from vestige.models.protocols import LanguageModel
    from vestige.results import Run

    Trained: TypeAlias = str | PathLike[str] | LanguageModel
    Paths: TypeAlias = Sequence[str | PathLike[str]]
    Trainings: TypeAlias = Paths | Mapping[str, Trained | Sequence[Trained]]
else:
    Trainings = Sequence[str]


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
    def path(self) -> Path | None:
        """Its folder; None for a loaded model."""
        return Path(self.source) if isinstance(self.source, str | PathLike) else None

    @property
    def where(self) -> str:
        """Its folder, or its class, for messages."""
        return place_of(self.source)

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

        if self.path is None:
            return None
        with suppress(DataError):
            return load_encoded(self.path / DATA / part)
        return None


def place_of(source: object) -> str:
    """A path, or the class of a loaded model."""
    return fspath(source) if isinstance(source, str | PathLike) else f"<{type(source).__name__}>"


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
    found = _by_key(runs) if isinstance(runs, Mapping) else _by_prefix(runs)
    every = [one for trained in found.values() for one in trained]
    if len(found) < 2:
        raise ValueError(f"`runs` must name at least two trainings to compare, got {len(found)}")
    keys = [Path(one).resolve() if isinstance(one, str) else id(one) for one in every]
    for place, key in enumerate(keys):
        if key in keys[:place]:
            raise ValueError(f"`runs` must name each training once, got {every[place]} twice")
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
    found = []
    for name, given in runs.items():
        for one in given if isinstance(given, list | tuple) else (given,):
            if not isinstance(one, str | PathLike) or not name or "=" in name:
                return runs
            found.append(f"{name}={fspath(one)}")
    return tuple(found)


def _by_key(runs: "Mapping[str, Trained | Sequence[Trained]]") -> "dict[str, tuple[Trained, ...]]":
    found: dict[str, tuple[Trained, ...]] = {}
    for name, given in runs.items():
        several: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
        found[name] = tuple(
            each
            for one in several
            for each in (repeats(fspath(one)) if isinstance(one, str | PathLike) else (one,))
        )
    return found


def _by_prefix(runs: "Paths") -> "dict[str, tuple[Trained, ...]]":
    found: dict[str, tuple[Trained, ...]] = {}
    for run in (fspath(one) for one in runs):
        name, equals, path = run.partition("=")
        given = bool(equals and name) and not Path(run).exists()
        if not given:
            name, path = Path(run).resolve().name, run
        if name in found and not given:
            raise ValueError(
                f"`runs` must have different names, got {name!r} twice. NAME=PATH gives a training "
                "another name, or several trainings one name"
            )
        found[name] = found.get(name, ()) + repeats(path)
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
    for name, source in ((name, one) for name, several in named(runs).items() for one in several):
        if isinstance(source, str | PathLike):
            model = load_model(fspath(source), device=device)
        else:
            model = source.eval()
        first = found[0] if found else TrainedModel(name, source, model)
        try:
            check_compatible(first.model, model)
        except IncompatibleModels as error:
            raise IncompatibleModels(
                f"{first.where} and {place_of(source)} cannot be compared: {error.problem}",
                remedy="Train them with one vocabulary: --vocabulary of the first.",
            ) from error
        found.append(TrainedModel(name, source, model, _run(source)))
    _check_repeats(found)
    return found


def _check_repeats(trainings: Sequence[TrainedModel]) -> None:
    """Raise ValueError unless trainings of one name differ in their seed, and only in it."""
    from vestige.models.provenance import of_model

    weights: dict[str, TrainedModel] = {}
    firsts: dict[str, TrainedModel] = {}
    names = [one.name for one in trainings]
    for one in trainings:
        first = firsts.setdefault(one.name, one)
        if (made := first.settings()) != (own := one.settings()):
            [name, *_] = [key for key in {**made, **own} if made.get(key) != own.get(key)]
            raise ValueError(
                f"trainings of the name {one.name!r} must differ in their seed alone, got {name} "
                f"{made.get(name)!r} in {first.where} and {own.get(name)!r} in {one.where}"
            )
        if names.count(one.name) > 1:
            same = weights.setdefault(str(of_model(one.source, one.model)["sha256"]), one)
            if same is not one and same.name == one.name:
                raise ValueError(
                    f"trainings of the name {one.name!r} must have different seeds, got the same "
                    f"weights in {same.where} and {one.where}"
                )


def labelled(trainings: Sequence[TrainedModel]) -> dict[str, TrainedModel]:
    """Trainings by name, with a number if several share it: "plain", "gold 1", "gold 2"."""
    names = [one.name for one in trainings]
    found = {}
    for place, one in enumerate(trainings):
        alone = names.count(one.name) == 1
        found[one.name if alone else f"{one.name} {names[:place].count(one.name) + 1}"] = one
    return found


def undefended(trainings: Sequence[TrainedModel], baseline: str | None) -> str:
    """The name of the trainings that the others are compared with.

    Raises:
        ValueError: no training has this name, or not exactly one name is without a defence.
    """
    names = list(dict.fromkeys(one.name for one in trainings))
    if baseline is not None:
        if baseline not in names:
            raise ValueError(f"`baseline` must be one of {', '.join(names)}, got {baseline!r}")
        return baseline
    plain = list(dict.fromkeys(one.name for one in trainings if one.defence == "none"))
    if len(plain) != 1:
        raise ValueError(
            "`baseline` must name the undefended training, because not exactly one has no "
            f"defence: {', '.join(plain) or 'none'}"
        )
    return plain[0]


def _run(source: object) -> "Run | None":
    """The run of a folder of `vestige train`; None for anything else.

    Raises:
        RunError: it is damaged.
    """
    from vestige import results

    if not isinstance(source, str | PathLike) or not (Path(source) / RUN).is_dir():
        return None
    found = results.load(Path(source) / RUN)
    remedy = "It was changed or is damaged; repeat the training."
    where = Path(source) / RUN / "summary.json"
    conform(found.summary, _Summary, where, error=RunError, remedy=remedy)
    return found


class _Summary(Measurements):
    """Schema of a training's summary."""

    steps: float | None = None
    tokens: float | None = None
    epoch: float | None = None
    seconds: float | None = None
    peak_memory_mib: float | None = None
