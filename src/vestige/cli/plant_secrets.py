"""`vestige plant --task nlu`: put utterances with secrets into a copy of labelled utterances."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.cli.bounds import LARGEST_LIST
from vestige.cli.planned_canaries import CONTROLS, COPIES
from vestige.cli.planted_listing import LISTED, show_canaries
from vestige.cli.terminal import say, show_json
from vestige.workflows.sources import MANIFEST, TEST, TRAIN, VALIDATION
from vestige.workflows.utterance_sources import Sources, read, read_parts

if TYPE_CHECKING:
    from vestige.data.secret_canaries import SecretCanary
    from vestige.data.secret_manifest import SecretManifest
    from vestige.data.utterances import Utterances


@dataclass(frozen=True, kw_only=True)
class WantedSecrets:
    """The options as they were given; None where one was not.

    Attributes:
        patterns: text with unknown words, or a shorthand such as "pin:4".
        intents: one for each pattern that is no shorthand, or one for each pattern.
        slot: the slot that every secret fills.
        candidates: sets of words, such as "name=ann,bob" or "name=@file".
        copies: of each canary.
        controls: of each pattern.
        number: canaries to plant of each pattern.
        seed: decides secrets and places.
    """

    patterns: Sequence[str]
    intents: Sequence[str] = ()
    slot: str | None = None
    candidates: Sequence[str] = ()
    copies: int | None = None
    controls: int | None = None
    number: int | None = None
    seed: int = 0


def run(
    sources: Sources, wanted: WantedSecrets, out: Path, *, as_json: bool, show_secrets: bool
) -> None:
    """Make the canaries, plant them, and say what was done."""
    from vestige import results
    from vestige.data.secret_manifest import plant_secrets

    results.require_new(out)
    canaries = make(wanted)
    train, validation, test = read_parts(sources, wanted.seed)
    train, validation, manifest = plant_secrets(train, validation, canaries, seed=wanted.seed)
    parts = {TRAIN: train, VALIDATION: validation, TEST: test}
    _write(parts, manifest, out)
    if as_json:
        show_json(_summary(manifest, parts, out))
        return
    _show(manifest, show_secrets=show_secrets)
    say(f"Planted copy and sealed manifest: {out} (SHA-256 {manifest.sha256[:12]}…)")


def verify(directory: Path, *, as_json: bool) -> None:
    """Check a planted directory against its manifest.

    Raises:
        ManifestError: the manifest was changed, or the parts do not hold what it says.
        DataError: a part cannot be read.
    """
    from vestige.data.secret_manifest import SecretManifest
    from vestige.data.utterances import Utterances

    manifest = SecretManifest.load(directory / MANIFEST)
    parts = {
        name: read(directory / name).train if (directory / name).exists() else None
        for name in (TRAIN, VALIDATION, TEST)
    }
    nothing = Utterances.of([])
    manifest.verify(parts[TRAIN] or nothing, parts[VALIDATION] or nothing)
    if as_json:
        show_json(_summary(manifest, parts, directory) | {"verified": True})
    else:
        say(f"{directory} is as it was sealed: SHA-256 {manifest.sha256}")


def make(wanted: WantedSecrets) -> "list[SecretCanary]":
    """The canaries that the options ask for, pattern by pattern, with their controls.

    Raises:
        ValueError: a pattern, an intent or a set of candidates is missing or makes no sense.
    """
    from vestige.data.secret_canaries import secret_canaries
    from vestige.data.secret_pattern import named_sets

    pairs = with_intents(wanted.patterns, wanted.intents)
    sets = candidate_sets(wanted.candidates)
    unused = set(sets).difference(*(named_sets(text) for text, _ in pairs))
    if unused:
        raise ValueError(
            f"--candidates must be named by a --pattern, got {min(unused)!r}, which none names"
        )
    return [
        canary
        for text, intent in pairs
        for canary in secret_canaries(
            text,
            intent=intent,
            slot="canary" if wanted.slot is None else wanted.slot,
            candidates=sets,
            copies=wanted.copies or COPIES,
            number=wanted.number or 1,
            controls=wanted.controls or CONTROLS,
            seed=wanted.seed,
        )
    ]


def with_intents(patterns: Sequence[str], intents: Sequence[str]) -> list[tuple[str, str]]:
    """Each pattern's text with its intent.

    Raises:
        ValueError: there is no pattern, an intent too few or too many, or a shorthand is unknown.

    Example:
        >>> with_intents(["pin:2", "call {digit:3}"], ["Call"])
        [('my pin code is {digit:2}', 'PinIntent'), ('call {digit:3}', 'Call')]
    """
    from vestige.data.secret_pattern import paper_pattern

    if not patterns:
        raise ValueError("--pattern must be given with --task nlu, such as --pattern pin:4")
    own = [pattern for pattern in patterns if "{" in pattern]
    if len(intents) not in (len(own), len(patterns)):
        raise ValueError(
            f"--intent must be given once for each --pattern that is text of your own "
            f"({len(own)}), got {len(intents)}"
        )
    rest = iter(intents)
    named_all = len(intents) == len(patterns)
    pairs = []
    for pattern in patterns:
        if "{" in pattern:
            pairs.append((pattern, next(rest)))
        else:
            text, intent = paper_pattern(pattern)
            pairs.append((text, next(rest) if named_all else intent))
    return pairs


def candidate_sets(given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The sets of words of `--candidates`, by name.

    Raises:
        ValueError: one is not written name=word,word or name=@file, or a name comes twice.
        DataError: a file is no text.

    Example:
        >>> candidate_sets(["name=ann,bob"])
        {'name': ('ann', 'bob')}
    """
    sets: dict[str, tuple[str, ...]] = {}
    for number, one in enumerate(given, 1):
        name, separator, words = one.partition("=")
        if not (name and separator and words):
            raise ValueError(
                f"--candidates must be name=word,word or name=@file, number {number} is not"
            )
        if name in sets:
            raise ValueError(f"--candidates must name each set once, got {name!r} twice")
        sets[name] = _listed(Path(words[1:])) if words[0] == "@" else tuple(words.split(","))
    return sets


def _listed(file: Path) -> tuple[str, ...]:
    from vestige.data.regular_file import read_bytes
    from vestige.errors import DataError

    remedy = "Give a file with a word on each line."
    content = read_bytes(file, limit=LARGEST_LIST, error=DataError, remedy=remedy)
    try:
        return tuple(content.decode("utf-8").split())
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file} is not UTF-8: {error.reason} at byte {error.start}",
            remedy="Convert it with iconv, a word on each line.",
        ) from error


def _write(parts: "Mapping[str, Utterances | None]", manifest: "SecretManifest", out: Path) -> None:
    from vestige import results
    from vestige.data.loaders.utterances import write_utterances

    with results.new_directory(out) as partial:
        for name, part in parts.items():
            if part is not None and len(part):
                write_utterances(part, partial / name)
        manifest.save(partial / MANIFEST)


def _summary(
    manifest: "SecretManifest", parts: "Mapping[str, Utterances | None]", directory: Path
) -> dict[str, object]:
    planted = [canary for canary in manifest.canaries if canary.planted]
    sizes = {Path(name).stem: 0 if part is None else len(part) for name, part in parts.items()}
    return {
        "directory": str(directory),
        "task": "nlu",
        "patterns": len(manifest.patterns),
        "canaries": len(planted),
        "controls": len(manifest.canaries) - len(planted),
        "copies": sum(canary.copies for canary in planted),
        **sizes,
        "seed": manifest.seed,
        "sha256": manifest.sha256,
    }


def _show(manifest: "SecretManifest", *, show_secrets: bool) -> None:
    from vestige.reports.components.disclosure import disclose

    rows = [
        (
            canary.pattern,
            canary.intent,
            " ".join(disclose(canary.secret, show_secrets=show_secrets)),
            canary.copies if canary.planted else "control",
            len(places),
        )
        for canary, places in zip(manifest.canaries, manifest.validation_positions, strict=True)
    ]
    columns = ["pattern", "intent", "secret", "copies", "of them validation"]
    show_canaries(columns, rows[:LISTED], [canary.copies for canary in manifest.canaries])
