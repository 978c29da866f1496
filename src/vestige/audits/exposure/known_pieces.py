"""Texts of pieces that a model knows: what a piece of a secret that was read elsewhere explains.

A model that has read a handle with one domain, and a domain with other handles, makes an address of
both more probable than random ones. It is then one of many such addresses: other known handles with
this domain, this handle with other known domains, and both recombined. Known pieces are those that
the model generates, freely and after the text before the secret. Texts that it generates whole may
be secrets themselves and are left out, so the secret is compared with texts that nobody read.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice, product
from math import prod
from typing import NamedTuple

import numpy as np
import torch

from vestige.data.secrets.kinds import IDENTIFIERS, NAME, UNIFORM, Part, names, recognize, splits
from vestige.data.secrets.lines import Secret
from vestige.errors import ModelError
from vestige.models.protocols import NextToken, length_limit
from vestige.models.sampling import sample

FREE, AFTER = 256, 64
"""Texts that the model generates freely, and after the text before each secret."""

LENGTH = 32
"""Tokens of each."""

RANDOM = 16
"""Sampled values of a random piece, in addition to the known ones."""


class Known(NamedTuple):
    """A part of a secret that a model generates, its kind, and the text before it."""

    kind: str
    text: str
    before: str


def known_parts(model: NextToken, *, seed: int, before: str = "") -> list[Known]:
    """Parts of secrets in texts that a model generates, freely or after the text `before`."""
    ids = list(model.vocabulary.encode(before.rstrip())) if before.strip() else []
    generator = torch.Generator().manual_seed(seed)
    longest = length_limit(model)
    length = LENGTH if longest is None else min(LENGTH, longest - len(ids))
    if length < 1:
        return []
    number = AFTER if ids else FREE
    end = model.vocabulary.eos_id
    try:
        texts = sample(model, number, length=length, prompt=ids, ends=[end], generator=generator)
    except (ModelError, ValueError, RuntimeError):
        return []
    found = []
    for text in texts:
        said, ended = model.vocabulary.decode([*ids, *text]), len(text) < length
        for part in _parts_of(said):
            if ended or part.end < len(said):  # else it may be cut
                found.append(Known(part.kind, part.text, said[: part.start]))
    return found


def _parts_of(text: str) -> list[Part]:
    found = recognize(text)
    for match in re.finditer(NAME, text):
        if not any(match.start() < part.end and part.start < match.end() for part in found):
            found.append(names(match[0]).at(match.start()))
    return found


def pools(
    secret: Secret, known: Sequence[Known], *, most: int, generator: np.random.Generator
) -> Iterator[list[str]]:
    """Texts of known pieces, a list for each way to split the secret; empty lists are left out.

    Args:
        secret: all of its parts vary.
        known: parts that the model generates, freely and after the text before the secret.
        most: texts of a list; `generator` chooses among more.
    """
    ways = max(len(splits(part.kind, part.text)) for part in secret.parts)
    whole = {one.text for one in known}
    context = secret.before.strip()
    here = {one.text for one in known if context and one.before.strip().endswith(context)}
    for way in range(ways):
        values: list[list[str]] = []  # of each block, the secret's own first
        widths = []
        for part in secret.parts:
            own = _split(part.kind, part.text, way)
            values += _values(part, own, known, way, generator)
            widths.append(len(own))
        if len(values) == 1 and secret.kind in IDENTIFIERS:
            continue
        left_out = here if len(values) == 1 else whole
        for chosen in _strata(values, 4 * most, generator):
            found = []
            for blocks in chosen:
                rest = iter(blocks)
                parts = ["".join(islice(rest, width)) for width in widths]
                if len(parts) > 1 or parts[0] not in left_out:
                    found.append(secret.with_parts(parts))
            # The secret itself and its beginnings, which are always more probable, are left out.
            unique = [text for text in dict.fromkeys(found) if not secret.text.startswith(text)]
            if unique:
                yield unique[:most]


def _split(kind: str, text: str, way: int) -> tuple[str, ...]:
    every = splits(kind, text)
    return every[min(way, len(every) - 1)]


def _values(
    part: Part, own: Sequence[str], known: Sequence[Known], way: int, generator: np.random.Generator
) -> list[list[str]]:
    """For each block of a part, its own value and those that the model knows."""
    if part.kind == "given":
        return [list(part.slots[0])]
    values = [{block: None} for block in own]
    others = [one.text for one in known if one.kind == part.kind]
    if part.kind in UNIFORM or part.random:
        others += [part.draw(generator) for _ in range(RANDOM)] if way or not others else []
    for text in others:
        blocks = _split(part.kind, text, way)
        if [*map(_shape, blocks)] == [*map(_shape, own)]:
            for block, seen in zip(blocks, values, strict=True):
                seen[block] = None
    return [list(seen) for seen in values]


def _shape(block: str) -> str:
    """Letters as one, each digit; what follows an @ does not count."""
    if block.startswith("@"):
        return "@"
    plain = re.sub(r"[^\W\d_]+", "a", block)
    return re.sub(r"\d+", "0", plain) if "a" in plain else re.sub(r"\d", "0", plain)


def _strata(
    values: Sequence[Sequence[str]], most: int, generator: np.random.Generator
) -> Iterator[Iterator[Sequence[str]]]:
    """All blocks recombined; then each block replaced alone."""
    yield _combined(values, most, generator)
    own = [choices[0] for choices in values]
    if len(values) > 1:
        for place, choices in enumerate(values):
            if len(choices) > 1:
                yield ([*own[:place], other, *own[place + 1 :]] for other in choices[:most])


def _combined(
    values: Sequence[Sequence[str]], most: int, generator: np.random.Generator
) -> Iterator[Sequence[str]]:
    """All combinations in random order, or some of very many."""
    if prod(map(len, values)) <= 2**16:
        every = list(product(*values))
        for place in generator.permutation(len(every))[:most]:
            yield every[place]
        return
    for _ in range(most):
        yield [choices[int(generator.integers(len(choices)))] for choices in values]
