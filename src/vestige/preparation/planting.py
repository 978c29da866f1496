"""The result of `vestige plant`: the planted copy and its manifest, and the folder of both."""

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
    """A corpus with canaries, and their manifest.

    Attributes:
        manifest: the canaries and their positions, with a checksum.
        parts: the planted copy by file name: a corpus, or parts of labelled utterances.
        directory: the folder of the copy and the manifest; None if they were not written.
        verified: whether the folder was checked against its manifest.
    """

    manifest: "Manifest | SecretManifest"
    parts: "Mapping[str, Corpus | Utterances]"
    directory: Path | None = None
    verified: bool = False

    @classmethod
    def make(
        cls,
        manifest: "Manifest | SecretManifest",
        parts: "Mapping[str, Corpus | Utterances]",
        directory: Path | None = None,
        *,
        verified: bool = False,
    ) -> Self:
        """Make a planting with its summary and its rows, one per canary and control."""
        summary: dict[str, object] = {} if directory is None else {"directory": str(directory)}
        summary |= _summary_counts(manifest, parts)
        summary |= {"seed": manifest.seed, "sha256": manifest.sha256}
        if verified:
            summary["verified"] = True
        return cls(
            kind="Planting",
            summary=summary,
            rows=tuple(_rows(manifest)),
            manifest=manifest,
            parts=parts,
            directory=directory,
            verified=verified,
        )

    @property
    def labelled(self) -> bool:
        """Whether the corpus consists of labelled utterances."""
        return CORPUS not in self.parts

    @property
    def corpus(self) -> "Corpus | Utterances":
        """The part to train on."""
        return self.parts[TRAIN if self.labelled else CORPUS]

    def next_step(self, out: object) -> str:
        """Message after the result: the next command."""
        task = " --task nlu" if self.labelled else ""
        return f"Train on it: vestige train {out}{task} --out trained"

    def in_turn(self, turn: "Turn") -> Self:
        """The same planting with canaries of running text as turns of conversations."""
        manifest: Any = self.manifest
        return type(self).make(replace(manifest, turn=turn), self.parts, self.directory)


def _summary_counts(manifest: Any, parts: Mapping[str, Any]) -> dict[str, object]:
    """Numbers of canaries, controls, copies, and of users or utterances."""
    planted = [canary for canary in manifest.canaries if canary.planted]
    counts = {
        "canaries": len(planted),
        "controls": len(manifest.canaries) - len(planted),
        "copies": sum(canary.copies for canary in planted),
    }
    if CORPUS in parts:
        return {**counts, "users": len({canary.user for canary in planted if canary.user})}
    sizes = {Path(name).stem: len(parts.get(name, ())) for name in (TRAIN, VALIDATION, TEST)}
    return {"task": "nlu", "patterns": len(manifest.patterns), **counts, **sizes}


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
    """Write the copy and its manifest atomically; returns the planting with its folder.

    Raises:
        RunError: the folder exists or cannot be written.
    """
    from vestige.data.corpus import Corpus, write_corpus
    from vestige.data.utterances import write_utterances

    writing = monitor.progress("writing the planted copy")
    with new_files.new_directory(out) as staging, writing as step:
        for name, part in planting.parts.items():
            if isinstance(part, Corpus):
                write_corpus(part, staging / name, progress=partial(_report_step, step, len(part)))
            elif len(part):
                write_utterances(part, staging / name)
        planting.manifest.save(staging / MANIFEST)
    return Planting.make(planting.manifest, planting.parts, out)


def _report_step(step: Step, total: int, done: int) -> None:
    step(done, total)


def verify_planting(directory: Path) -> Planting:
    """Check a planted folder against its manifest.

    Raises:
        ManifestError: the folder differs from its manifest, or the manifest was changed.
        DataError: a file cannot be read.
    """
    from vestige.data.canaries.planting import format_of
    from vestige.data.canaries.texts import Manifest
    from vestige.data.canaries.utterances import SecretManifest
    from vestige.data.formats.reading import read_source
    from vestige.data.utterances import Utterances

    if format_of(directory / MANIFEST) != SecretManifest.FORMAT:
        manifest = Manifest.load(directory / MANIFEST)
        users = "user" if _has_user_column(directory / CORPUS) else None
        corpus = read_source(str(directory / CORPUS), user=users)
        manifest.verify(corpus)
        return Planting.make(manifest, {CORPUS: corpus}, directory, verified=True)
    secret_manifest, no_utterances = SecretManifest.load(directory / MANIFEST), Utterances.of([])
    names = [name for name in (TRAIN, VALIDATION, TEST) if (directory / name).exists()]
    parts = {TRAIN: no_utterances} | {name: read_parts(directory / name).train for name in names}
    secret_manifest.verify(parts[TRAIN], parts.get(VALIDATION, no_utterances))
    return Planting.make(secret_manifest, parts, directory, verified=True)


def _has_user_column(path: Path) -> bool:
    try:
        with path.open("rb") if path.is_file() else BytesIO() as file:
            return b'"user":' in file.readline()
    except OSError:
        return False  # `read_source` raises the error
