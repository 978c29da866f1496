"""Which secret does `vestige extract-nlu` ask for? Its options, or a manifest."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.cli.plant_secrets import candidate_sets, with_intents
from vestige.workflows.sources import MANIFEST

if TYPE_CHECKING:
    from vestige.data.secret_manifest import SecretManifest
    from vestige.data.secret_pattern import SecretPattern


@dataclass(frozen=True, kw_only=True)
class ExtractionTarget:
    """The options as they were given; None where one was not.

    Attributes:
        prefix: words before the unknown ones.
        slots: the unknown ones, such as "{digit:4}".
        suffix: words after them.
        pattern: in place of these three.
        intent: of the utterance.
        slot: that the unknown words fill.
        candidates: sets of words, such as "name=ann,bob" or "name=@file".
        truth: the true words with blanks between them.
    """

    prefix: str | None = None
    slots: str | None = None
    suffix: str | None = None
    pattern: str | None = None
    intent: str | None = None
    slot: str | None = None
    candidates: tuple[str, ...] = ()
    truth: str | None = None

    @property
    def text(self) -> str:
        """The pattern's text, or its shorthand."""
        parts = (self.prefix, self.slots, self.suffix)
        return self.pattern or " ".join(part for part in parts if part)

    @property
    def recorded(self) -> dict[str, object]:
        """What a run directory says was asked; the truth is in its rows alone."""
        return {
            "pattern": self.text or None,
            "intent": self.intent,
            "slot": self.slot,
            "candidates": list(self.candidates),
        }

    def check(self) -> None:
        """Raise ValueError where the options name no utterance, or two."""
        parts = {"--prefix": self.prefix, "--slots": self.slots, "--suffix": self.suffix}
        named = [name for name, value in parts.items() if value is not None]
        if self.pattern is not None and named:
            raise ValueError(f"{named[0]} must be left out with --pattern, which is the whole text")
        if self.pattern is None and not named:
            raise ValueError(
                "what to ask must be given: --prefix and --slots, --pattern such as pin:4, or "
                "--manifest"
            )
        if self.pattern is None and not self.slots:
            raise ValueError(
                'the unknown words must be given by --slots, such as --slots "{digit:4}"'
            )

    def parsed(self, intents: Sequence[str]) -> "SecretPattern":
        """The pattern to ask for.

        Args:
            intents: that the model knows, to be named where none was given.

        Raises:
            ValueError: the pattern cannot be read, or has no intent.
            DataError: a file of candidates is no text.
        """
        from vestige.data.secret_pattern import SecretPattern, named_sets

        if self.intent is None and (self.pattern is None or "{" in self.pattern):
            raise ValueError(
                "--intent must be given: what the utterance is labelled with; the model knows "
                f"{', '.join(intents[:40])}{', …' if len(intents) > 40 else ''}"
            )
        own = [] if self.intent is None else [self.intent]
        if self.pattern is None:
            [(text, intent)] = [(self.text, own[0])]
        else:
            [(text, intent)] = with_intents([self.pattern], own)
        sets = candidate_sets(self.candidates)
        unused = set(sets).difference(named_sets(text))
        if unused:
            raise ValueError(
                f"--candidates must be named by the unknown words, got {min(unused)!r}, which "
                "none of them names"
            )
        slot = "canary" if self.slot is None else self.slot
        return SecretPattern.parse(text, intent=intent, slot=slot, candidates=sets)

    def truths(self, pattern: "SecretPattern") -> list[list[str]] | None:
        """The true secret; None where it was not given.

        Raises:
            ValueError: the pattern cannot have it; the message does not name its words.
        """
        if self.truth is None:
            return None
        words = self.truth.split()
        try:
            pattern.check(words)
        except ValueError as error:
            raise ValueError(
                f"--truth does not fit the pattern: {error}; put blanks between the words"
            ) from error
        return [words]


def load_secrets(path: Path) -> "SecretManifest":
    """The record of planted secrets.

    Args:
        path: a manifest, or the directory of `vestige plant --task nlu` that holds one.

    Raises:
        ManifestError: it is missing, malformed, was changed, or tells of canaries of text.
    """
    from vestige.data.checksum import format_of
    from vestige.data.secret_manifest import FORMAT, SecretManifest
    from vestige.errors import ManifestError

    file = path / MANIFEST if path.is_dir() else path
    if file.is_file() and format_of(file) not in (FORMAT, None):
        raise ManifestError(
            f"{file} tells of canaries in running text, not in labelled utterances",
            remedy="Plant with `vestige plant --task nlu`, or measure a language model with "
            "`vestige exposure`.",
        )
    return SecretManifest.load(file)
