"""The trainings of `vestige compare`, and the text and users that they share.

A name may have several trainings, made alike with different seeds: NAME=RUN given several times,
or a directory of `vestige train --seeds`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.cli.training_directory import repeats
from vestige.errors import DataError, IncompatibleModels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vestige.data.corpus import Corpus
    from vestige.data.encoded import EncodedCorpus
    from vestige.models.protocols import LanguageModel
    from vestige.results import Run

DATA, RUN = "data", "run"
"""Where `vestige train` keeps what it read and what it says of itself."""


@dataclass(frozen=True)
class Training:
    """A training before it is measured: its name, where it is, its model and its run."""

    name: str
    path: str
    model: "LanguageModel"
    run: "Run | None" = None

    @property
    def summary(self) -> dict[str, Any]:
        """What the training says of itself; nothing where the model came from elsewhere."""
        return self.run.summary if self.run else {}

    @property
    def defence(self) -> str:
        """As the training says; "none" where it says nothing."""
        return str(self.summary.get("defence") or "none")

    def settings(self) -> dict[str, Any]:
        """What it was made with, its seed left out; nothing where that is not known."""
        made = self.run.run.get("configuration") if self.run else None
        known = dict(made) if isinstance(made, dict) else {}
        return {**{key: known[key] for key in known if key != "seed"}, "defence": self.defence}

    @property
    def held_out(self) -> str | None:
        """SHA-256 of the text that was held out."""
        data = self.run.run.get("data") if self.run else None
        held = data.get("validation") if isinstance(data, dict) else None
        return held.get("sha256") if isinstance(held, dict) else None


def named(runs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Paths by name; `NAME=PATH` gives a name, else it is the directory's.

    A name that is given several times has several trainings, as has a directory of
    `vestige train --seeds`.

    Raises:
        ValueError: fewer than two names, one path twice, or two directories of one name.

    Example:
        >>> named(["runs/plain", "gold=runs/1", "gold=runs/2"])
        {'plain': ('runs/plain',), 'gold': ('runs/1', 'runs/2')}
    """
    found: dict[str, tuple[str, ...]] = {}
    for run in runs:
        name, equals, path = run.partition("=")
        given = bool(equals and name) and not Path(run).exists()
        if not given:
            name, path = Path(run).resolve().name, run
        if name in found and not given:
            raise ValueError(
                f"RUN must have names that differ, got {name!r} twice; "
                "NAME=PATH gives a training a name of its own, or several trainings one name"
            )
        found[name] = found.get(name, ()) + repeats(path)
    every = [path for paths in found.values() for path in paths]
    if len(found) < 2:
        raise ValueError(f"RUN must name at least two trainings to compare, got {len(found)}")
    if len({Path(path).resolve() for path in every}) < len(every):
        twice = next(path for path in every if every.count(path) > 1)
        raise ValueError(f"RUN must name each training once, got {twice} twice")
    return found


def load_trainings(runs: Sequence[str], *, device: str) -> list[Training]:
    """Read every training's model, and make sure that all share a vocabulary.

    Raises:
        ValueError: see `named`; or two of one name are one model, or of different defences.
        ModelError: one has no model.
        IncompatibleModels: their vocabularies differ.
        RunError: a summary is damaged.
    """
    from vestige.models.checkpoints import check_compatible, load_model

    found = list[Training]()
    for name, path in ((name, path) for name, paths in named(runs).items() for path in paths):
        model = load_model(path, device=device)
        first = found[0] if found else None
        try:
            check_compatible(first.model if first else model, model)
        except IncompatibleModels as error:
            raise IncompatibleModels(
                f"{first.path if first else path} and {path} cannot be compared: {error.problem}",
                remedy="Train them with one vocabulary: --vocabulary of the first.",
            ) from error
        found.append(Training(name, path, model, _run(Path(path))))
    _check_repeats(found)
    return found


def _check_repeats(trainings: Sequence[Training]) -> None:
    """Trainings of one name differ in their seed alone, and do differ."""
    from vestige.models.checkpoints import fingerprint

    weights: dict[str, Training] = {}
    firsts: dict[str, Training] = {}
    repeated = [one.name for one in trainings]
    for one in trainings:
        first = firsts.setdefault(one.name, one)
        if (made := first.settings()) != (own := one.settings()):
            [name, *_] = [key for key in {**made, **own} if made.get(key) != own.get(key)]
            raise ValueError(
                f"trainings of the name {one.name!r} must differ in their seed alone, got {name} "
                f"{made.get(name)!r} in {first.path} and {own.get(name)!r} in {one.path}"
            )
        if repeated.count(one.name) > 1:
            same = weights.setdefault(fingerprint(one.path), one)
            if same is not one and same.name == one.name:
                raise ValueError(
                    f"trainings of the name {one.name!r} must be made with different seeds, got "
                    f"the same weights in {same.path} and {one.path}"
                )


def labelled(trainings: Sequence[Training]) -> dict[str, Training]:
    """Each training by its name, with its number where several share it: "plain", "gold 2"."""
    names = [one.name for one in trainings]
    found = {}
    for place, one in enumerate(trainings):
        alone = names.count(one.name) == 1
        found[one.name if alone else f"{one.name} {names[:place].count(one.name) + 1}"] = one
    return found


def undefended(trainings: Sequence[Training], wanted: str | None) -> str:
    """The name of the trainings that the others are compared with.

    Raises:
        ValueError: none has the name wanted, or not exactly one is without a defence.
    """
    names = list(dict.fromkeys(one.name for one in trainings))
    if wanted is not None:
        if wanted not in names:
            raise ValueError(f"--baseline must be one of {', '.join(names)}, got {wanted!r}")
        return wanted
    plain = list(dict.fromkeys(one.name for one in trainings if one.defence == "none"))
    if len(plain) != 1:
        raise ValueError(
            "--baseline must name the undefended training where not exactly one has no defence, "
            f"got {', '.join(plain) or 'none'} without one"
        )
    return plain[0]


def shared_text(
    trainings: Sequence[Training], test: "Corpus | None"
) -> "tuple[EncodedCorpus | None, list[str]]":
    """The text that measures utility: the one given, or what all trainings held out.

    Returns:
        (the text encoded, or None; notes).
    """
    from vestige.data.encoded import encode, load_encoded

    if test is not None:
        return encode(test, trainings[0].model.vocabulary), []
    held = {one.held_out for one in trainings}
    if len(held) == 1 and None not in held:
        with suppress(DataError):
            encoded = load_encoded(Path(trainings[0].path) / DATA / "validation")
            return encoded, [
                "Utility was measured on the text that the trainings held out, which also "
                "decided which weights were kept; --test gives another."
            ]
    return None, ["Utility and fairness: the trainings did not hold out one text; give --test."]


def by_frequencies(one: Training, test: "EncodedCorpus") -> float | None:
    """What the frequencies of the words that it learnt from reach on the test text."""
    from vestige.data.encoded import load_encoded
    from vestige.training.word_frequencies import frequency_perplexity

    with suppress(DataError):
        data = load_encoded(Path(one.path) / DATA / "training")
        return frequency_perplexity(data, test, size=len(one.model.vocabulary))
    return None


def user_samples(
    trainings: Sequence[Training], baseline: str, test: "EncodedCorpus | None"
) -> "tuple[NDArray[np.int64] | None, list[str]]":
    """How many training documents each user of the test text has, or why nobody knows."""
    import numpy as np

    from vestige.data.encoded import load_encoded

    if test is None:
        return None, []
    if test.users is None:
        return None, ["Fairness between users: the test text names none; give --test with --user."]
    ordered = sorted(trainings, key=lambda one: one.name != baseline)
    for one in ordered:
        with suppress(DataError):
            data = load_encoded(Path(one.path) / DATA / "training")
            if data.users is not None:
                counts = np.bincount(data.users, minlength=len(data.names))
                known = dict(zip(data.names, counts.tolist(), strict=True)) | {"": 0}
                return np.array([known.get(name, 0) for name in test.names], np.int64), []
    return None, [
        "Fairness between users: no training recorded whose each document is; train with --user."
    ]


def _run(path: Path) -> "Run | None":
    """What the training says of itself; None where it is no directory of `vestige train`."""
    from vestige import results

    return results.load(path / RUN) if (path / RUN).is_dir() else None
