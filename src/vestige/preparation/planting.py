"""A planted corpus: the copy, its sealed manifest, and the folder with both."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from vestige import new_files
from vestige.data.sources import CORPUS, MANIFEST, TEST, TRAIN, VALIDATION, read_parts
from vestige.monitor import Monitor, Step
from vestige.results import Result

if TYPE_CHECKING:
    from vestige.data.canaries.texts import Manifest, Turn
    from vestige.data.canaries.utterances import SecretManifest
    from vestige.data.corpus import Corpus
    from vestige.data.utterances import Utterances


@dataclass(frozen=True, kw_only=True)
class Planting(Result):
    """A corpus with canaries, and the sealed manifest of them.

    Attributes:
        manifest: the canaries and their positions; `sha256` is the seal.
        parts: the copy by file name: one `Corpus`, or the parts of labelled utterances.
        directory: the folder with both; None if they were not written.
        verified: whether the folder was checked against its manifest.
    """

    manifest: "Manifest | SecretManifest"
    parts: "Mapping[str, Corpus | Utterances]"
    directory: Path | None = None
    verified: bool = False

    @classmethod
    def made(
        cls,
        manifest: "Manifest | SecretManifest",
        parts: "Mapping[str, Corpus | Utterances]",
        directory: Path | None = None,
        *,
        verified: bool = False,
    ) -> Self:
        """A planting, with its summary and one row for each canary and control."""
        where = {} if directory is None else {"directory": str(directory)}
        seal = {"seed": manifest.seed, "sha256": manifest.sha256}
        checked = {"verified": True} if verified else {}
        return cls(
            kind="Planting",
            summary={**where, **_counts(manifest, parts), **seal, **checked},
            rows=tuple(_rows(manifest)),
            manifest=manifest,
            parts=parts,
            directory=directory,
            verified=verified,
        )

    @property
    def labelled(self) -> bool:
        """Whether secrets were planted in labelled utterances."""
        return CORPUS not in self.parts

    @property
    def corpus(self) -> "Corpus | Utterances":
        """The copy to train on."""
        return self.parts[TRAIN if self.labelled else CORPUS]

    def next_step(self, out: object) -> str:
        """A line for the terminal about the folder."""
        task = " --task nlu" if self.labelled else ""
        return f"Train on it: vestige train {out}{task} --out trained"

    def in_turn(self, turn: "Turn") -> Self:
        """The same canaries of running text, as turns of conversations."""
        manifest: Any = self.manifest
        return type(self).made(replace(manifest, turn=turn), self.parts, self.directory)


def _counts(manifest: Any, parts: Mapping[str, Any]) -> dict[str, object]:
    """Numbers of canaries, controls, copies, and of users or utterances."""
    planted = [canary for canary in manifest.canaries if canary.planted]
    shared = {
        "canaries": len(planted),
        "controls": len(manifest.canaries) - len(planted),
        "copies": sum(canary.copies for canary in planted),
    }
    if CORPUS in parts:
        return {**shared, "users": len({canary.user for canary in planted if canary.user})}
    sizes = {Path(name).stem: len(parts.get(name, ())) for name in (TRAIN, VALIDATION, TEST)}
    return {"task": "nlu", "patterns": len(manifest.patterns), **shared, **sizes}


def _rows(manifest: Any) -> Iterator[dict[str, object]]:
    """One row for each canary and control, in the manifest's order."""
    from vestige.data.canaries.texts import Manifest

    for canary in manifest.canaries:
        row: dict[str, object] = {"pattern": canary.pattern, "copies": canary.copies}
        if isinstance(manifest, Manifest):
            yield row | {"phrase": canary.phrase, "user": canary.user}
        else:
            secret, validated = list(canary.secret), len(canary.validation)
            yield row | {"intent": canary.intent, "secret": secret, "validation": validated}


def write_planting(planting: Planting, out: Path, monitor: Monitor) -> Planting:
    """Write the copy and its manifest, whole or not at all; the planting with its folder.

    Raises:
        RunError: the folder exists, or cannot be written.
    """
    from vestige.data.corpus import Corpus, write_corpus
    from vestige.data.utterances import write_utterances

    writing = monitor.progress("writing the planted copy")
    with new_files.new_directory(out) as hidden, writing as step:
        for name, part in planting.parts.items():
            if isinstance(part, Corpus):
                write_corpus(part, hidden / name, progress=partial(_tell, step, len(part)))
            elif len(part):
                write_utterances(part, hidden / name)
        planting.manifest.save(hidden / MANIFEST)
    return Planting.made(planting.manifest, planting.parts, out)


def _tell(step: Step, total: int, done: int) -> None:
    step(done, total)


def verify_planting(directory: Path) -> Planting:
    """A planted folder that agrees with its manifest.

    Raises:
        ManifestError: it does not, or the manifest was changed.
        DataError: a file cannot be read.
    """
    from vestige.data.canaries.planting import format_of
    from vestige.data.canaries.texts import Manifest
    from vestige.data.canaries.utterances import SecretManifest
    from vestige.data.formats.reading import read_source
    from vestige.data.utterances import Utterances

    made = partial(Planting.made, directory=directory, verified=True)
    if format_of(directory / MANIFEST) != SecretManifest.FORMAT:
        manifest = Manifest.load(directory / MANIFEST)
        users = "user" if _has_users(directory / CORPUS) else None
        corpus = read_source(str(directory / CORPUS), user=users)
        manifest.verify(corpus)
        return made(manifest, {CORPUS: corpus})
    secrets, empty = SecretManifest.load(directory / MANIFEST), Utterances.of([])
    names = [name for name in (TRAIN, VALIDATION, TEST) if (directory / name).exists()]
    parts = {TRAIN: empty} | {name: read_parts(directory / name).train for name in names}
    secrets.verify(parts[TRAIN], parts.get(VALIDATION, empty))
    return made(secrets, parts)


def _has_users(path: Path) -> bool:
    try:
        with path.open("rb") if path.is_file() else BytesIO() as file:
            return b'"user":' in file.readline()
    except OSError:
        return False  # `read_source` says what is wrong with it
