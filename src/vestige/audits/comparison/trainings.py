"""The compared trainings: their names, their models, and the text and users that they share.

A name may have several trainings that differ in their seed: NAME=RUN given several times, or a
folder of `vestige train --seeds`.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
    """A model, where it is from, and summary and `run.json` of its training; both may be empty."""

    name: str
    source: "Trained"
    model: "LanguageModel"
    summary: Mapping[str, Any] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """Its folder, or its class, for messages."""
        if isinstance(self.source, str | PathLike):
            return fspath(self.source)
        return f"<{type(self.source).__name__}>"

    @property
    def defence(self) -> str:
        """The training's defence; "none" without a run."""
        return str(self.summary.get("defence") or "none")

    def settings(self) -> dict[str, Any]:
        """The training's configuration without its seed; only the defence without a run."""
        made = dict(self.record.get("configuration") or {})
        for name in ("seed", "seconds", "out"):
            made.pop(name, None)
        return {**made, "defence": self.defence}

    @property
    def held_out(self) -> str | None:
        """SHA-256 of the validation text."""
        held = (self.record.get("data") or {}).get("validation")
        return held.get("sha256") if isinstance(held, dict) else None

    def encoded(self, part: str) -> "EncodedCorpus | None":
        """The "training" or "validation" text of its training; None if it was not kept."""
        from vestige.data.encoded import load_encoded

        if isinstance(self.source, str | PathLike):
            with suppress(DataError):
                return load_encoded(Path(self.source) / DATA / part)
        return None


def named(runs: "Trainings") -> "list[tuple[str, Trained]]":
    """Each training with its name, NAME of `NAME=PATH` or that of the folder; a name's together.

    Raises:
        ValueError: fewer than two names, one training twice, or two folders of one name.

    Example:
        >>> named(["gold=runs/1", "runs/plain", "gold=runs/2"])
        [('gold', 'runs/1'), ('gold', 'runs/2'), ('plain', 'runs/plain')]
    """
    found: dict[object, tuple[str, Trained]] = {}
    for name, given in _pairs(runs):
        for one in repeats(fspath(given)) if isinstance(given, str | PathLike) else (given,):
            key = Path(one).resolve() if isinstance(one, str) else id(one)
            if key in found:
                raise ValueError(f"`runs` must name each training once, got {one} twice")
            found[key] = (name, one)
    names = list(dict.fromkeys(name for name, _ in found.values()))
    if len(names) < 2:
        raise ValueError(f"`runs` must name at least two trainings to compare, got {len(names)}")
    return sorted(found.values(), key=lambda pair: names.index(pair[0]))


def listed(runs: "Trainings") -> "Trainings":
    """Trainings as a command line gives them, `NAME=PATH`, so that the record repeats the call.

    Loaded models and names with "=" have no such form; then `runs` is returned as it is.

    Example:
        >>> listed({"plain": "runs/plain", "gold": ["runs/1", "runs/2"]})
        ('plain=runs/plain', 'gold=runs/1', 'gold=runs/2')
    """
    if not isinstance(runs, Mapping) or not all(name and "=" not in name for name in runs):
        return runs
    pairs = _pairs(runs)
    words = [f"{name}={fspath(one)}" for name, one in pairs if isinstance(one, str | PathLike)]
    return tuple(words) if len(words) == len(pairs) else runs


def _pairs(runs: "Trainings") -> "list[tuple[str, Any]]":
    """Each training or folder with its name, in the order given."""
    if isinstance(runs, Mapping):
        several = {name: g if isinstance(g, list | tuple) else [g] for name, g in runs.items()}
        return [(name, one) for name, given in several.items() for one in given]
    found: list[tuple[str, Any]] = []
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
    for name, source in named(runs):
        if isinstance(source, str | PathLike):
            model = load_model(fspath(source), device=device)
            found.append(TrainedModel(name, source, model, *_run(Path(source))))
        else:
            found.append(TrainedModel(name, source, source.eval()))
        try:
            check_compatible(found[0].model, found[-1].model)
        except IncompatibleModels as error:
            raise IncompatibleModels(
                f"{found[0].where} and {found[-1].where} cannot be compared: {error.problem}",
                remedy="Train them with one vocabulary: --vocabulary of the first.",
            ) from error
    for name in {one.name: None for one in found}:
        _check_repeats([one for one in found if one.name == name])
    return found


def _run(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Summary and record of a folder of `vestige train`; both empty for any other."""
    from vestige import results

    if not (folder / RUN).is_dir():
        return {}, {}
    found = results.load(folder / RUN)
    remedy = "It was changed or is damaged; repeat the training."
    conform(found.summary, _Summary, folder / RUN / "summary.json", error=RunError, remedy=remedy)
    return found.summary, found.run


def _check_repeats(trainings: Sequence[TrainedModel]) -> None:
    """Raise ValueError unless the trainings of one name differ in their seed, and only in it."""
    from vestige.models.folders import model_record

    first, weights = trainings[0], dict[str, TrainedModel]()
    for one in trainings if len(trainings) > 1 else ():
        made, own = first.settings(), one.settings()
        for key in {**made, **own}:
            if made.get(key) != own.get(key):
                raise ValueError(
                    f"trainings of the name {one.name!r} must differ in their seed alone, got "
                    f"{key} {made.get(key)!r} in {first.where} and {own.get(key)!r} in {one.where}"
                )
        same = weights.setdefault(str(model_record(one.source, one.model)["sha256"]), one)
        if same is not one:
            raise ValueError(
                f"trainings of the name {one.name!r} must have different seeds, got the same "
                f"weights in {same.where} and {one.where}"
            )


def undefended(trainings: Sequence[TrainedModel], baseline: str | None) -> str:
    """The name of the trainings that the others are compared with.

    Raises:
        ValueError: no training has this name, or not exactly one name is without a defence.
    """
    plain = list(dict.fromkeys(one.name for one in trainings if one.defence == "none"))
    if baseline is None:
        if len(plain) != 1:
            raise ValueError(
                "`baseline` must name the undefended training, because not exactly one has no "
                f"defence: {', '.join(plain) or 'none'}"
            )
        return plain[0]
    names = list(dict.fromkeys(one.name for one in trainings))
    if baseline not in names:
        raise ValueError(f"`baseline` must be one of {', '.join(names)}, got {baseline!r}")
    return baseline


def shared_text(
    trainings: Sequence[TrainedModel], test: "Corpus | None", notes: list[str]
) -> "EncodedCorpus | None":
    """The text that measures utility: the one given, or the validation text of all trainings."""
    from vestige.data.encoded import encode

    if test is not None:
        return encode(test, trainings[0].model.vocabulary)
    held = {one.held_out for one in trainings}
    encoded = trainings[0].encoded("validation") if len(held) == 1 and None not in held else None
    notes.append(
        "Utility and fairness were not measured: the trainings have no common validation text; "
        "give --test."
        if encoded is None
        else "Utility was measured on the validation text, which also decided which weights were "
        "kept. Give other text with --test."
    )
    return encoded


def user_samples(
    trainings: Sequence[TrainedModel],
    baseline: str,
    test: "EncodedCorpus | None",
    notes: list[str],
) -> "NDArray[np.int64] | None":
    """(u,) training documents of each user of the test text; None, and why, if unknown."""
    import numpy as np

    if test is None:
        return None
    missing = "Fairness between users was not measured: "
    if test.users is None:
        notes.append(f"{missing}the test text has no users; give --test with --user.")
        return None
    for one in sorted(trainings, key=lambda one: one.name != baseline):
        data = one.encoded("training")
        if data is not None and data.users is not None:
            counts = np.bincount(data.users, minlength=len(data.names))
            known = dict(zip(data.names, counts.tolist(), strict=True)) | {"": 0}
            return np.array([known.get(name, 0) for name in test.names], np.int64)
    notes.append(f"{missing}no training recorded users; train with --user.")
    return None
