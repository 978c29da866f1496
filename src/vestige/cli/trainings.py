"""The trainings of `vestige compare`, and the text and users that they share."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

    @property
    def held_out(self) -> str | None:
        """SHA-256 of the text that was held out."""
        data = self.run.run.get("data") if self.run else None
        held = data.get("validation") if isinstance(data, dict) else None
        return held.get("sha256") if isinstance(held, dict) else None


def named(runs: Sequence[str]) -> dict[str, str]:
    """Paths by name; `NAME=PATH` gives a name, else it is the directory's.

    Raises:
        ValueError: fewer than two, or a name twice.

    Example:
        >>> named(["runs/plain", "gold=runs/goldfish"])
        {'plain': 'runs/plain', 'gold': 'runs/goldfish'}
    """
    if len(runs) < 2:
        raise ValueError(f"RUN must name at least two trainings to compare, got {len(runs)}")
    found: dict[str, str] = {}
    for run in runs:
        name, equals, path = run.partition("=")
        if not equals or not name or Path(run).exists():
            name, path = Path(run).resolve().name, run
        if name in found:
            raise ValueError(
                f"RUN must have names that differ, got {name!r} twice; "
                "NAME=PATH gives a training a name of its own"
            )
        found[name] = path
    return found


def load_trainings(runs: Sequence[str], *, device: str) -> list[Training]:
    """Read every training's model, and make sure that all share a vocabulary.

    Raises:
        ValueError: see `named`.
        ModelError: one has no model.
        IncompatibleModels: their vocabularies differ.
        RunError: a summary is damaged.
    """
    from vestige.models.checkpoints import check_compatible, load_model

    paths, found = named(runs), list[Training]()
    for name, path in paths.items():
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
    return found


def undefended(trainings: Sequence[Training], wanted: str | None) -> str:
    """The name of the training that the others are compared with.

    Raises:
        ValueError: none has the name wanted, or not exactly one is without a defence.
    """
    names = [one.name for one in trainings]
    if wanted is not None:
        if wanted not in names:
            raise ValueError(f"--baseline must be one of {', '.join(names)}, got {wanted!r}")
        return wanted
    plain = [one.name for one in trainings if one.defence == "none"]
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
