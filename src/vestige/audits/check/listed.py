"""Secrets that the user lists, with their contexts in the training text."""

import re
from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from vestige.audits.check.finder import CONTEXT, find_secrets
from vestige.audits.check.unprompted import squeeze
from vestige.data.secrets.alternatives import FoundSecret
from vestige.data.sources import MANIFEST
from vestige.errors import DataError
from vestige.session import Session

LEAST, LONGEST = 4, 300  # least letters and digits, most characters of a secret

_MARK = re.compile(r"\{\{(.*?)\}\}")
_REMEDY = "Write one secret per line, or mark it: the code is {{4917}}."


def listed_secrets(
    run: Session, secrets: Any, trained: Sequence[str]
) -> tuple[tuple[FoundSecret, ...], tuple[str, ...]]:
    """Distinct secrets of a list, and notes for the user.

    The secrets of a line are its marked parts, as in "the code is {{4917}}"; without a mark, the
    parts with a known format; without these, the whole line. The secrets of a folder or manifest of
    `vestige plant` are its planted canaries.

    Raises:
        DataError: the file cannot be read, has no secret, or a mark is empty.
        ManifestError: a manifest is malformed.
    """
    if secrets is None:
        return (), ()
    run.withhold(secrets=secrets)
    name = fspath(secrets) if isinstance(secrets, str | PathLike) else "`secrets`"
    listed: dict[str, FoundSecret] = {}
    unusable_lines: dict[int, None] = {}
    for number, line in enumerate(_lines(run, secrets), 1):
        for value, kind, before in _secrets_of_line(line.strip(), f"{name}, line {number}"):
            if len(squeeze(value)) < LEAST or len(value) > LONGEST:
                unusable_lines[number] = None
            elif squeeze(value) not in listed:
                listed[squeeze(value)] = _with_contexts(value, kind, before, trained)
    limits = f"{LEAST} letters and digits at least, {LONGEST} characters at most"
    if not listed:
        reason = f": a secret has {limits}" if unusable_lines else ""
        raise DataError(f"{name} has no secret{reason}", remedy=_REMEDY)
    notes = []
    if unusable_lines:
        lines = ", ".join(map(str, unusable_lines))
        notes.append(f"Left out of --secrets: line {lines}. A secret has {limits}.")
    absent = sum(secret.occurrences[0][0] < 0 for secret in listed.values())
    if trained and absent:
        notes.append(f"{absent} of {len(listed)} listed secrets do not occur in --trained-on.")
    return tuple(listed.values()), tuple(notes)


def _lines(run: Session, secrets: Any) -> list[str]:
    """Lines of a list, or the phrases of planted canaries."""
    if not isinstance(secrets, str | PathLike):
        return run.lines(secrets, item="secret")
    file = Path(secrets) / MANIFEST if Path(secrets).is_dir() else Path(secrets)
    if file.suffix != ".json":
        return run.lines(file, item="secret")
    from vestige.data.canaries.texts import Manifest

    canaries = Manifest.load(file).canaries
    return [f"{{{{{canary.phrase}}}}}" for canary in canaries if not canary.control]


def _secrets_of_line(line: str, location: str) -> Iterator[tuple[str, str, str]]:
    """Each secret of a line, its kind, and the text before it."""
    plain, marked = "", []
    for index, piece in enumerate(_MARK.split(line)):
        if index % 2:  # marked: the secret, perhaps followed by alternatives
            piece = piece.partition("|")[0].strip()
            if not squeeze(piece):
                raise DataError(f"{location}: a mark has no letter or digit", remedy=_REMEDY)
            marked.append((piece, plain))
        plain += piece
    recognized = find_secrets([plain])
    if marked:
        kinds = {secret.value: secret.kind for secret in recognized}
        yield from ((value, kinds.get(value, "listed"), before) for value, before in marked)
    elif recognized:
        yield from ((secret.value, secret.kind, secret.occurrences[0][1]) for secret in recognized)
    elif plain:
        yield plain, "listed", ""


def _with_contexts(value: str, kind: str, before: str, texts: Sequence[str]) -> FoundSecret:
    """A secret with its first context in each text, or with the start of its line if it has none.

    No letter or digit may adjoin the value in a text.
    """
    pattern = re.compile(rf"(?<![^\W_]){re.escape(value)}(?![^\W_])")
    contexts = [
        (number, text[max(0, match.start() - CONTEXT) : match.start()])
        for number, text in enumerate(texts)
        if value in text and (match := pattern.search(text))
    ]
    return FoundSecret(value, kind, tuple(contexts) or ((-1, before),))
