"""The two snapshots of `vestige diff` and `vestige rank`, and null models."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vestige.models.protocols import LanguageModel


@dataclass(frozen=True)
class Snapshots:
    """The models by role ("before", "after") and what a run records of them."""

    models: "dict[str, LanguageModel]"
    recorded: dict[str, object]


def load_snapshots(paths: dict[str, str], *, device: str) -> Snapshots:
    """Read models, each path once, and make sure that they share a vocabulary.

    Args:
        paths: where each role's model is; "before" among them.
        device: see `load_model`.

    Raises:
        ModelError: one cannot be read.
        IncompatibleModels: their vocabularies differ.
    """
    from vestige.cli.provenance import of_model
    from vestige.cli.terminal import say
    from vestige.models.checkpoints import check_compatible, load_model

    loaded = {path: load_model(path, device=device) for path in dict.fromkeys(paths.values())}
    models = {role: loaded[path] for role, path in paths.items()}
    for role, model in models.items():
        if differing := check_compatible(models["before"], model):
            say(
                f"The tokens of before and {role} are the same, but not: {', '.join(differing)}. "
                "The search reads tokens; texts are split as each model's own tokenizer does."
            )
    return Snapshots(models, {role: of_model(path, models[role]) for role, path in paths.items()})


@dataclass(frozen=True)
class NullModels:
    """Models made as an update was, of clean text; each is read when it is asked for.

    Attributes:
        paths: where they are, all different.
        hashes: SHA-256 of the weights of each.
        device: see `load_model`.
    """

    paths: tuple[str, ...]
    hashes: tuple[str, ...]
    device: str

    @classmethod
    def at(cls, given: Sequence[str], *, unlike: Sequence[str], device: str) -> "NullModels":
        """The models at some paths; a directory that is no model stands for those in it.

        Args:
            given: as on the command line.
            unlike: the two snapshots, which are no null models.
            device: see `load_model`.

        Raises:
            ValueError: a model is given twice, or is one of the snapshots.
            ModelError: there is none.
        """
        from vestige.models.checkpoints import fingerprint

        paths = [path for place in given for path in _models_at(place)]
        hashes = [fingerprint(path) for path in paths]
        told = {fingerprint(path): path for path in unlike} if paths else {}
        for path, weights in zip(paths, hashes, strict=True):
            if weights in told:
                raise ValueError(
                    f"--null must be a training of its own, got {path}, which has the weights of "
                    f"{told[weights]}: continue BEFORE on other clean text"
                )
            told[weights] = path
        return cls(tuple(paths), tuple(hashes), device)

    @property
    def recorded(self) -> dict[str, object]:
        """What a run records of them."""
        if not self.paths:
            return {}
        return {"nulls": {"path": list(self.paths), "sha256": list(self.hashes)}}

    def read(self, progress: Callable[[int, int], None]) -> "Iterator[LanguageModel]":
        """One model after the other.

        Args:
            progress: told (models done, models in all).

        Raises:
            ModelError: one cannot be read.
        """
        from vestige.models.checkpoints import load_model

        for done, path in enumerate(self.paths):
            progress(done, len(self.paths))
            yield load_model(path, device=self.device)


def _models_at(place: str) -> list[str]:
    from vestige.models.folders import is_model

    folder = Path(place)
    if is_model(folder) or not folder.is_dir():
        return [place]
    return [str(inner) for inner in sorted(folder.iterdir()) if is_model(inner)] or [place]
