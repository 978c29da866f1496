"""Secrets that the user lists, with the contexts in which they occur in the training text."""

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

LEAST, LONGEST = 4, 300  # letters and digits of a secret at least, and characters at most

_MARK = re.compile(r"\{\{(.*?)\}\}")
_REMEDY = "Write one secret per line, or mark it: the code is {{4917}}."


def listed_secrets(
    run: Session, secrets: Any, trained: Sequence[str]
) -> tuple[tuple[FoundSecret, ...], tuple[str, ...]]:
    """Secrets of a list, each once, and notes.

    A line marks its secrets, as in "the code is {{4917}}"; otherwise the parts that have a format
    are the secrets, or else the whole line. Of a folder or manifest of `vestige plant`, they are
    the planted canaries. Their contexts are those of the training text.

    Raises:
        DataError: the file cannot be read, has no secret, or a mark is empty.
        ManifestError: a manifest is malformed.
    """
    if secrets is None:
        return (), ()
    run.withhold(secrets=secrets)
    shown = fspath(secrets) if isinstance(secrets, str | PathLike) else "`secrets`"
    found: dict[str, FoundSecret] = {}
    unusable: dict[int, None] = {}
    for number, line in enumerate(_lines(run, secrets), 1):
        for value, kind, before in _of_line(line.strip(), f"{shown}, line {number}"):
            if len(squeeze(value)) < LEAST or len(value) > LONGEST:
                unusable[number] = None
            elif squeeze(value) not in found:
                found[squeeze(value)] = _placed(value, kind, before, trained)
    limits = f"{LEAST} letters and digits at least, {LONGEST} characters at most"
    if not found:
        few = f": a secret has {limits}" if unusable else ""
        raise DataError(f"{shown} has no secret{few}", remedy=_REMEDY)
    notes = []
    if unusable:
        lines = ", ".join(map(str, unusable))
        notes.append(f"Left out of --secrets: line {lines}. A secret has {limits}.")
    absent = sum(one.places[0][0] < 0 for one in found.values())
    if trained and absent:
        notes.append(f"{absent} of {len(found)} listed secrets do not occur in --trained-on.")
    return tuple(found.values()), tuple(notes)


def _lines(run: Session, secrets: Any) -> list[str]:
    """Lines of a list, or the phrases of planted canaries."""
    if not isinstance(secrets, str | PathLike):
        return run.lines(secrets, one="secret")
    file = Path(secrets) / MANIFEST if Path(secrets).is_dir() else Path(secrets)
    if file.suffix != ".json":
        return run.lines(file, one="secret")
    from vestige.data.canaries.texts import Manifest

    return [f"{{{{{one.phrase}}}}}" for one in Manifest.load(file).canaries if not one.control]


def _of_line(line: str, where: str) -> Iterator[tuple[str, str, str]]:
    """Each secret of a line, its kind, and the text before it."""
    plain, marked = "", []
    for place, piece in enumerate(_MARK.split(line)):
        if place % 2:  # inside a mark, whose first part is the secret, and the others alternatives
            piece = piece.partition("|")[0].strip()
            if not squeeze(piece):
                raise DataError(f"{where}: a mark has no letter or digit", remedy=_REMEDY)
            marked.append((piece, plain))
        plain += piece
    known = find_secrets([plain])
    if marked:
        kinds = {one.value: one.kind for one in known}
        yield from ((value, kinds.get(value, "listed"), before) for value, before in marked)
    elif known:
        yield from ((one.value, one.kind, one.places[0][1]) for one in known)
    elif plain:
        yield plain, "listed", ""


def _placed(value: str, kind: str, before: str, texts: Sequence[str]) -> FoundSecret:
    """A secret with the first place of each text in which it occurs, else after its own line.

    A place counts where no letter or digit touches its ends.
    """
    whole = re.compile(rf"(?<![^\W_]){re.escape(value)}(?![^\W_])")
    places = [
        (number, text[max(0, at.start() - CONTEXT) : at.start()])
        for number, text in enumerate(texts)
        if value in text and (at := whole.search(text))
    ]
    return FoundSecret(value, kind, tuple(places) or ((-1, before),))
