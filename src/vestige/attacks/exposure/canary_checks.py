"""Checks of a model that is asked about planted canaries."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.data.sources import CORPUS

if TYPE_CHECKING:
    from vestige.claims import Check
    from vestige.data.manifest import Manifest
    from vestige.models.protocols import NextToken

TEXTS, LENGTH = 64, 64
"""Texts of the corpus, and tokens of each, on which a model is compared with word frequencies."""

_FEWEST = 8
_LINES = 1000
"""Lines of the corpus that are looked through at most."""


def canary_checks(
    model: "NextToken",
    manifest: "str | PathLike[str] | Manifest",
    sealed: "Manifest",
    *,
    readable: int,
    seed: int = 0,
    useless: str | None = None,
) -> "tuple[Check, ...]":
    """The checks "alive" and "read", and "different" of an adapter against its base.

    Args:
        model: as it was loaded, before it is put behind a template's beginning.
        manifest: as it was given: a corpus beside its file is what the model is read on.
        sealed: the same, read.
        readable: canaries and controls that the model's vocabulary holds.
        seed: of the texts that the model samples where there is no corpus.
        useless: what the training itself says against the model, if anything.
    """
    from vestige import claims
    from vestige.attacks.model_checks import adapter_check, alive_by_samples, log_probs_of

    if useless is not None:
        alive = claims.Check("alive", "failed", useless)
    else:
        texts = [] if not isinstance(manifest, str | PathLike) else _texts(manifest, sealed)
        longest = min(LENGTH, (getattr(model, "longest", None) or LENGTH) - 1)
        ids = [read[:longest] for read in model.vocabulary.encode_batch(texts) if len(read) > 1]
        if len(ids) < _FEWEST:
            alive = alive_by_samples(model, seed=seed)
        else:
            alive = claims.alive(log_probs_of(model, ids), ids, who="the model")
    read = claims.read(readable, len(sealed.canaries), what="the canaries and controls")
    adapter = adapter_check(model, seed=seed)
    return (alive, read) if adapter is None else (alive, read, adapter)


def _texts(manifest: "str | PathLike[str]", sealed: "Manifest") -> list[str]:
    """Texts of the corpus beside a manifest that are no canaries; none where it cannot be read."""
    from vestige.attacks.manifests import manifest_file

    corpus = manifest_file(manifest).parent / CORPUS
    planted = set(sealed.places)
    try:
        return list(islice(_rows(corpus, planted), TEXTS))
    except (OSError, ValueError):
        return []


def _rows(corpus: Path, planted: "set[int] | Sequence[int]") -> Iterator[str]:
    with corpus.open(encoding="utf-8") as file:
        for number, line in enumerate(islice(file, _LINES)):
            row = json.loads(line)
            text = row.get("text") if isinstance(row, dict) else None
            if number not in planted and isinstance(text, str) and text:
                yield text
