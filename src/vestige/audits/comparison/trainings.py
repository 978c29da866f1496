"""The compared trainings: their names, their models, and the text and users that they share.

A name may have several trainings that differ in their seed: NAME=RUN repeated, or a folder of
`vestige train --seeds`.
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

    Source: TypeAlias = str | PathLike[str] | LanguageModel
    Trainings: TypeAlias = Sequence[str | PathLike[str]] | Mapping[str, Source | Sequence[Source]]
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
        name: trainings of one name differ only in their seed.
        source: a folder, or the model itself.
        model: the loaded model.
        summary: of the training's run; empty without a run.
        record: `run.json` of the training's run; empty without a run.
    """

    name: str
    source: "Source"
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
        settings = dict(self.record.get("configuration") or {})
        for name in ("seed", "seconds", "out"):
            settings.pop(name, None)
        return {**settings, "defence": self.defence}

    @property
    def validation_sha256(self) -> str | None:
        """SHA-256 of the validation text."""
        validation = (self.record.get("data") or {}).get("validation")
        return validation.get("sha256") if isinstance(validation, dict) else None

    def encoded(self, part: str) -> "EncodedCorpus | None":
        """The "training" or "validation" text of its training; None if it was not saved."""
        from vestige.data.encoded import load_encoded

        if isinstance(self.source, str | PathLike):
            with suppress(DataError):
                return load_encoded(Path(self.source) / DATA / part)
        return None


def named(runs: "Trainings") -> "list[tuple[str, Source]]":
    """Each training with its name: NAME of `NAME=PATH`, or that of the folder; grouped by name.

    Raises:
        ValueError: fewer than two names, one training twice, or two folders of one name.

    Example:
        >>> named(["gold=runs/1", "runs/plain", "gold=runs/2"])
        [('gold', 'runs/1'), ('gold', 'runs/2'), ('plain', 'runs/plain')]
    """
    trainings: dict[object, tuple[str, Source]] = {}
    for name, run in _pairs(runs):
        for source in repeats(fspath(run)) if isinstance(run, str | PathLike) else (run,):
            key = Path(source).resolve() if isinstance(source, str) else id(source)
            if key in trainings:
                raise ValueError(f"`runs` must name each training once, got {source} twice")
            trainings[key] = (name, source)
    names = list(dict.fromkeys(name for name, _ in trainings.values()))
    if len(names) < 2:
        raise ValueError(f"`runs` must name at least two trainings to compare, got {len(names)}")
    return sorted(trainings.values(), key=lambda pair: names.index(pair[0]))


def as_arguments(runs: "Trainings") -> "Trainings":
    """Trainings as arguments of the command, `NAME=PATH`, so that the record repeats the call.

    Loaded models and names with "=" have no such form; then `runs` is returned unchanged.

    Example:
        >>> as_arguments({"plain": "runs/plain", "gold": ["runs/1", "runs/2"]})
        ('plain=runs/plain', 'gold=runs/1', 'gold=runs/2')
    """
    if not isinstance(runs, Mapping) or not all(name and "=" not in name for name in runs):
        return runs
    pairs = _pairs(runs)
    if not all(isinstance(source, str | PathLike) for _, source in pairs):
        return runs
    return tuple(f"{name}={fspath(source)}" for name, source in pairs)


def _pairs(runs: "Trainings") -> "list[tuple[str, Any]]":
    """Each training or folder with its name, in the order of `runs`."""
    if isinstance(runs, Mapping):
        return [
            (name, source)
            for name, sources in runs.items()
            for source in (sources if isinstance(sources, list | tuple) else [sources])
        ]
    pairs: list[tuple[str, Any]] = []
    for run in (fspath(folder) for folder in runs):
        name, equals, path = run.partition("=")
        if not (equals and name) or Path(run).exists():
            name, path = Path(run).resolve().name, run
            if name in dict(pairs):
                raise ValueError(
                    f"`runs` must have different names, got {name!r} twice. NAME=PATH gives a "
                    "training another name, or several trainings one name"
                )
        pairs.append((name, path))
    return pairs


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

    trainings = list[TrainedModel]()
    for name, source in named(runs):
        if isinstance(source, str | PathLike):
            model = load_model(fspath(source), device=device)
            training = TrainedModel(name, source, model, *_run(Path(source)))
        else:
            training = TrainedModel(name, source, source.eval())
        trainings.append(training)
        try:
            check_compatible(trainings[0].model, training.model)
        except IncompatibleModels as error:
            raise IncompatibleModels(
                f"{trainings[0].where} and {training.where} cannot be compared: {error.problem}",
                remedy="Train them with one vocabulary: --vocabulary of the first.",
            ) from error
    for name in dict.fromkeys(training.name for training in trainings):
        _check_repeats([training for training in trainings if training.name == name])
    return trainings


def _run(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Summary and record of a folder of `vestige train`; both empty for other folders."""
    from vestige import results

    if not (folder / RUN).is_dir():
        return {}, {}
    run = results.load(folder / RUN)
    remedy = "It was changed or is damaged; repeat the training."
    conform(run.summary, _Summary, folder / RUN / "summary.json", error=RunError, remedy=remedy)
    return run.summary, run.run


def _check_repeats(trainings: Sequence[TrainedModel]) -> None:
    """Raise ValueError unless the trainings of one name differ in their seed, and only in it."""
    from vestige.models.folders import model_record

    if len(trainings) == 1:
        return
    first, by_weights = trainings[0], dict[str, TrainedModel]()
    for training in trainings:
        expected, settings = first.settings(), training.settings()
        for key in {**expected, **settings}:
            if expected.get(key) != settings.get(key):
                raise ValueError(
                    f"trainings of the name {training.name!r} must differ in their seed alone, got "
                    f"{key} {expected.get(key)!r} in {first.where} and {settings.get(key)!r} in "
                    f"{training.where}"
                )
        sha256 = str(model_record(training.source, training.model)["sha256"])
        same = by_weights.setdefault(sha256, training)
        if same is not training:
            raise ValueError(
                f"trainings of the name {training.name!r} must have different seeds, got the same "
                f"weights in {same.where} and {training.where}"
            )


def undefended(trainings: Sequence[TrainedModel], baseline: str | None) -> str:
    """The name of the trainings that the others are compared with.

    Raises:
        ValueError: no training has this name, or not exactly one name is without a defence.
    """
    if baseline is None:
        plain = list(dict.fromkeys(t.name for t in trainings if t.defence == "none"))
        if len(plain) != 1:
            raise ValueError(
                "`baseline` must name the undefended training, because not exactly one has no "
                f"defence: {', '.join(plain) or 'none'}"
            )
        return plain[0]
    names = list(dict.fromkeys(training.name for training in trainings))
    if baseline not in names:
        raise ValueError(f"`baseline` must be one of {', '.join(names)}, got {baseline!r}")
    return baseline


def utility_text(
    trainings: Sequence[TrainedModel], test: "Corpus | None", notes: list[str]
) -> "EncodedCorpus | None":
    """The text that measures utility: `test`, or the validation text if all trainings share it."""
    from vestige.data.encoded import encode

    if test is not None:
        return encode(test, trainings[0].model.vocabulary)
    validation = {training.validation_sha256 for training in trainings}
    shared = len(validation) == 1 and None not in validation
    encoded = trainings[0].encoded("validation") if shared else None
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
    """(u,) training documents of each user of the test text; None and a note if unknown."""
    import numpy as np

    if test is None:
        return None
    missing = "Fairness between users was not measured: "
    if test.users is None:
        notes.append(f"{missing}the test text has no users; give --test with --user.")
        return None
    for training in sorted(trainings, key=lambda training: training.name != baseline):
        data = training.encoded("training")
        if data is not None and data.users is not None:
            counts = np.bincount(data.users, minlength=len(data.names))
            by_user = dict(zip(data.names, counts.tolist(), strict=True)) | {"": 0}
            return np.array([by_user.get(name, 0) for name in test.names], np.int64)
    notes.append(f"{missing}no training recorded users; train with --user.")
    return None
