"""Trained models that are compared, by name, and the text and users that they share.

A name may have several trainings, made alike with different seeds: NAME=RUN given several times,
or a directory of `vestige train --seeds`.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from vestige.data.json_file import Measurements, conform
from vestige.errors import DataError, IncompatibleModels, RunError
from vestige.models.provenance import of_model
from vestige.training_runs import DATA, RUN, repeats
from vestige.workflows.inputs import open_model, shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vestige.data.corpus import Corpus
    from vestige.data.encoded import EncodedCorpus
    from vestige.models.protocols import LanguageModel
    from vestige.results import Run

    Trained: TypeAlias = str | PathLike[str] | LanguageModel
    Paths: TypeAlias = Sequence[str | PathLike[str]]
    TrainedModels: TypeAlias = Paths | Mapping[str, Trained | Sequence[Trained]]
else:
    TrainedModels = Sequence[str]
    """NAME=PATH or paths; or, in Python, paths and loaded models by name."""


@dataclass(frozen=True)
class TrainedModel:
    """A model before it is measured.

    Attributes:
        name: of the trainings that it is one of.
        source: its path, or the loaded model as given.
        run: of its training; None where the model was loaded or made elsewhere.
    """

    name: str
    source: "Trained"
    model: "LanguageModel"
    run: "Run | None" = None

    @property
    def path(self) -> Path | None:
        """Its directory; None of a loaded model."""
        return Path(self.source) if isinstance(self.source, str | PathLike) else None

    @property
    def where(self) -> str:
        """Its directory, or its class, for messages."""
        return shown(self.source)

    @property
    def summary(self) -> dict[str, Any]:
        """The training's summary; empty without a run."""
        return self.run.summary if self.run else {}

    @property
    def defence(self) -> str:
        """The training's defence; "none" without a run."""
        return str(self.summary.get("defence") or "none")

    def settings(self) -> dict[str, Any]:
        """The training's configuration but its seed; only the defence without a run.

        Of the defence its name, and how its noise falls, where it does: trainings with and without
        are not repeats of one.
        """
        made = self.run.run.get("configuration") if self.run else None
        known = dict(made) if isinstance(made, dict) else {}
        falls = {key: self.summary[key] for key in self.summary if key == "noise_decay"}
        own = {key: known[key] for key in known if key != "seed"}
        return {**own, "defence": self.defence, **falls}

    @property
    def held_out(self) -> str | None:
        """SHA-256 of the text that was held out."""
        data = self.run.run.get("data") if self.run else None
        held = data.get("validation") if isinstance(data, dict) else None
        return held.get("sha256") if isinstance(held, dict) else None

    def encoded(self, part: str) -> "EncodedCorpus | None":
        """The "training" or "validation" text of its training; None where it is not kept."""
        from vestige.data.encoded import load_encoded

        if self.path is None:
            return None
        with suppress(DataError):
            return load_encoded(self.path / DATA / part)
        return None


def named(runs: "TrainedModels") -> "dict[str, tuple[Trained, ...]]":
    """Trainings by name; `NAME=PATH` gives a name, else it is the directory's.

    A name that is given several times has several trainings, as has a directory of
    `vestige train --seeds`.

    Raises:
        ValueError: fewer than two names, one training twice, or two directories of one name.

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


def listed(runs: "TrainedModels") -> "TrainedModels":
    """Trainings by name as a command line gives them, `NAME=PATH`, so that a record repeats them.

    What has no such form, a loaded model or a name with "=" in it, leaves all as they were given.

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
        own: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
        found[name] = tuple(each for one in own for each in _each(one))
    return found


def _each(one: "Trained") -> "tuple[Trained, ...]":
    return repeats(fspath(one)) if isinstance(one, str | PathLike) else (one,)


def _by_prefix(runs: "Paths") -> "dict[str, tuple[Trained, ...]]":
    found: dict[str, tuple[Trained, ...]] = {}
    for run in (fspath(one) for one in runs):
        name, equals, path = run.partition("=")
        given = bool(equals and name) and not Path(run).exists()
        if not given:
            name, path = Path(run).resolve().name, run
        if name in found and not given:
            raise ValueError(
                f"`runs` must have names that differ, got {name!r} twice; "
                "NAME=PATH gives a training a name of its own, or several trainings one name"
            )
        found[name] = found.get(name, ()) + repeats(path)
    return found


def load_trainings(runs: "TrainedModels", *, device: str) -> list[TrainedModel]:
    """Read every training's model, and make sure that all share a vocabulary.

    Raises:
        ValueError: see `named`; or two of one name are one model, or of different defences.
        ModelError: one has no model.
        IncompatibleModels: their vocabularies differ.
        RunError: a summary is damaged.
    """
    from vestige.models.checkpoints import check_compatible

    found = list[TrainedModel]()
    for name, source in ((name, one) for name, several in named(runs).items() for one in several):
        model = open_model(source, device=device)
        first = found[0] if found else TrainedModel(name, source, model)
        try:
            check_compatible(first.model, model)
        except IncompatibleModels as error:
            raise IncompatibleModels(
                f"{first.where} and {shown(source)} cannot be compared: {error.problem}",
                remedy="Train them with one vocabulary: --vocabulary of the first.",
            ) from error
        found.append(TrainedModel(name, source, model, _run(source)))
    _check_repeats(found)
    return found


def _check_repeats(trainings: Sequence[TrainedModel]) -> None:
    """TrainedModels of one name differ in their seed alone, and do differ."""
    weights: dict[str, TrainedModel] = {}
    firsts: dict[str, TrainedModel] = {}
    repeated = [one.name for one in trainings]
    for one in trainings:
        first = firsts.setdefault(one.name, one)
        if (made := first.settings()) != (own := one.settings()):
            [name, *_] = [key for key in {**made, **own} if made.get(key) != own.get(key)]
            raise ValueError(
                f"trainings of the name {one.name!r} must differ in their seed alone, got {name} "
                f"{made.get(name)!r} in {first.where} and {own.get(name)!r} in {one.where}"
            )
        if repeated.count(one.name) > 1:
            same = weights.setdefault(str(of_model(one.source, one.model)["sha256"]), one)
            if same is not one and same.name == one.name:
                raise ValueError(
                    f"trainings of the name {one.name!r} must be made with different seeds, got "
                    f"the same weights in {same.where} and {one.where}"
                )


def labelled(trainings: Sequence[TrainedModel]) -> dict[str, TrainedModel]:
    """Each training by its name, with its number where several share it: "plain", "gold 2"."""
    names = [one.name for one in trainings]
    found = {}
    for place, one in enumerate(trainings):
        alone = names.count(one.name) == 1
        found[one.name if alone else f"{one.name} {names[:place].count(one.name) + 1}"] = one
    return found


def undefended(trainings: Sequence[TrainedModel], wanted: str | None) -> str:
    """The name of the trainings that the others are compared with.

    Raises:
        ValueError: none has the name wanted, or not exactly one is without a defence.
    """
    names = list(dict.fromkeys(one.name for one in trainings))
    if wanted is not None:
        if wanted not in names:
            raise ValueError(f"`baseline` must be one of {', '.join(names)}, got {wanted!r}")
        return wanted
    plain = list(dict.fromkeys(one.name for one in trainings if one.defence == "none"))
    if len(plain) != 1:
        raise ValueError(
            "`baseline` must name the undefended training where not exactly one has no defence, "
            f"got {', '.join(plain) or 'none'} without one"
        )
    return plain[0]


def shared_text(
    trainings: Sequence[TrainedModel], test: "Corpus | None"
) -> "tuple[EncodedCorpus | None, list[str]]":
    """The text that measures utility: the one given, or what all trainings held out.

    Returns:
        (the text encoded, or None; notes).
    """
    from vestige.data.encoded import encode

    if test is not None:
        return encode(test, trainings[0].model.vocabulary), []
    held = {one.held_out for one in trainings}
    if len(held) == 1 and None not in held:
        encoded = trainings[0].encoded("validation")
        if encoded is not None:
            return encoded, [
                "Utility was measured on the text that the trainings held out, which also "
                "decided which weights were kept; --test gives another."
            ]
    return None, ["Utility and fairness: the trainings did not hold out one text; give --test."]


def by_frequencies(one: TrainedModel, test: "EncodedCorpus") -> float | None:
    """Perplexity of the test text under word frequencies of the training text, if that is kept."""
    from vestige.training.word_frequencies import frequency_perplexity

    data = one.encoded("training")
    if data is None:
        return None
    return frequency_perplexity(data, test, size=len(one.model.vocabulary))


def user_samples(
    trainings: Sequence[TrainedModel], baseline: str, test: "EncodedCorpus | None"
) -> "tuple[NDArray[np.int64] | None, list[str]]":
    """The number of training documents of each user of the test text; None and why, if unknown."""
    import numpy as np

    if test is None:
        return None, []
    if test.users is None:
        return None, ["Fairness between users: the test text names none; give --test with --user."]
    for one in sorted(trainings, key=lambda one: one.name != baseline):
        data = one.encoded("training")
        if data is not None and data.users is not None:
            counts = np.bincount(data.users, minlength=len(data.names))
            known = dict(zip(data.names, counts.tolist(), strict=True)) | {"": 0}
            return np.array([known.get(name, 0) for name in test.names], np.int64), []
    return None, [
        "Fairness between users: no training recorded whose each document is; train with --user."
    ]


def _run(source: object) -> "Run | None":
    """The run of a training's directory; None where it is none of `vestige train`.

    Raises:
        RunError: it is none of a training, or holds no numbers where these belong.
    """
    from vestige import results

    if not isinstance(source, str | PathLike) or not (Path(source) / RUN).is_dir():
        return None
    found = results.load(Path(source) / RUN)
    remedy = "It was changed or is damaged; repeat the training."
    where = Path(source) / RUN / "summary.json"
    conform(found.summary, _Trained, where, error=RunError, remedy=remedy)
    return found


class _Trained(Measurements):
    """Schema of what a training's summary says that it took."""

    steps: float | None = None
    tokens: float | None = None
    epoch: float | None = None
    seconds: float | None = None
    peak_memory_mib: float | None = None
