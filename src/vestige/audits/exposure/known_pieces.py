"""Alternatives of a secret from pieces that a model knows.

If a model has read a handle with one domain, and a domain with other handles, an address of both is
more probable than a random one. So the secret is compared with similar addresses: other known
handles with this domain, this handle with other known domains, and recombinations of both. Known
pieces are those that the model generates, freely and after the text before the secret. Complete
texts that it generates may be secrets. They are left out, so that no alternative is training text.
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

FREE_TEXTS, PROMPTED_TEXTS = 256, 64
"""Texts that the model generates freely, and after the text before each secret."""

LENGTH = 32
"""Tokens of a generated text."""

RANDOM_VALUES = 16
"""Random values of a random piece, in addition to the known ones."""


class KnownPart(NamedTuple):
    """A part of a secret that a model generates, its kind, and the text before it."""

    kind: str
    text: str
    before: str


def known_parts(model: NextToken, *, seed: int, before: str = "") -> list[KnownPart]:
    """Parts of secrets in texts that a model generates, freely or after the text `before`."""
    prompt = list(model.vocabulary.encode(before.rstrip())) if before.strip() else []
    generator = torch.Generator().manual_seed(seed)
    longest = length_limit(model)
    length = LENGTH if longest is None else min(LENGTH, longest - len(prompt))
    if length < 1:
        return []
    number = PROMPTED_TEXTS if prompt else FREE_TEXTS
    end = model.vocabulary.eos_id
    try:
        samples = sample(
            model, number, length=length, prompt=prompt, ends=[end], generator=generator
        )
    except (ModelError, ValueError, RuntimeError):
        return []
    known = []
    for ids in samples:
        text, ended = model.vocabulary.decode([*prompt, *ids]), len(ids) < length
        for part in _parts_of(text):
            if ended or part.end < len(text):  # otherwise it may be cut
                known.append(KnownPart(part.kind, part.text, text[: part.start]))
    return known


def _parts_of(text: str) -> list[Part]:
    """Parts with a known format, and names."""
    parts = recognize(text)
    for match in re.finditer(NAME, text):
        if not any(match.start() < part.end and part.start < match.end() for part in parts):
            parts.append(names(match[0]).at(match.start()))
    return parts


def alternatives_from(
    known: Sequence[KnownPart], secret: Secret, *, most: int, generator: np.random.Generator
) -> Iterator[list[str]]:
    """Lists of alternatives of a secret, made of known parts; no list is empty.

    Args:
        known: parts that the model generates, freely and after the text before the secret.
        secret: all of its parts vary.
        most: texts of a list; `generator` selects them.
    """
    generated = {part.text for part in known}
    context = secret.before.strip()
    generated_here = {
        part.text for part in known if context and part.before.strip().endswith(context)
    }
    for split in range(max(len(splits(part.kind, part.text)) for part in secret.parts)):
        values: list[list[str]] = []  # of each block; the block of the secret first
        widths = []  # blocks of each part
        for part in secret.parts:
            blocks = _blocks(part.kind, part.text, split)
            values += _block_values(part, blocks, known, split, generator)
            widths.append(len(blocks))
        if len(values) == 1 and secret.kind in IDENTIFIERS:
            continue
        excluded = generated_here if len(values) == 1 else generated
        for combinations in _strata(values, 4 * most, generator):
            texts = []
            for combination in combinations:
                remaining = iter(combination)
                parts = ["".join(islice(remaining, width)) for width in widths]
                if len(parts) > 1 or parts[0] not in excluded:
                    texts.append(secret.with_parts(parts))
            # The secret and its beginnings, which are always more probable, are left out.
            distinct = [text for text in dict.fromkeys(texts) if not secret.text.startswith(text)]
            if distinct:
                yield distinct[:most]


def _blocks(kind: str, text: str, split: int) -> tuple[str, ...]:
    """The blocks of a part, by its split of this index or its last one."""
    all_splits = splits(kind, text)
    return all_splits[min(split, len(all_splits) - 1)]


def _block_values(
    part: Part, blocks: Sequence[str], known: Sequence[KnownPart], split: int,
    generator: np.random.Generator,
) -> list[list[str]]:  # fmt: skip
    """For each block of a part, its own value and the values that the model knows."""
    if part.kind == "given":
        return [list(part.slots[0])]
    texts = [other.text for other in known if other.kind == part.kind]
    if part.kind in UNIFORM or part.random:
        texts += [part.draw(generator) for _ in range(RANDOM_VALUES)] if split or not texts else []
    values = [{block: None} for block in blocks]
    shape = [*map(_shape, blocks)]
    for text in texts:
        others = _blocks(part.kind, text, split)
        if [*map(_shape, others)] == shape:
            for other, of_block in zip(others, values, strict=True):
                of_block[other] = None
    return [list(of_block) for of_block in values]


def _shape(block: str) -> str:
    """Words and digits replaced by one symbol each; the text after an @ does not count."""
    if block.startswith("@"):
        return "@"
    plain = re.sub(r"[^\W\d_]+", "a", block)
    return re.sub(r"\d+", "0", plain) if "a" in plain else re.sub(r"\d", "0", plain)


def _strata(
    values: Sequence[Sequence[str]], most: int, generator: np.random.Generator
) -> Iterator[Iterator[Sequence[str]]]:
    """All blocks recombined; then only one block replaced, for each block."""
    yield _combined(values, most, generator)
    own = [choices[0] for choices in values]
    if len(values) > 1:
        for index, choices in enumerate(values):
            if len(choices) > 1:
                yield ([*own[:index], other, *own[index + 1 :]] for other in choices[:most])


def _combined(
    values: Sequence[Sequence[str]], most: int, generator: np.random.Generator
) -> Iterator[Sequence[str]]:
    """Combinations in random order: all, or a sample if there are very many."""
    if prod(map(len, values)) <= 2**16:
        combinations = list(product(*values))
        for index in generator.permutation(len(combinations))[:most]:
            yield combinations[index]
        return
    for _ in range(most):
        yield [choices[int(generator.integers(len(choices)))] for choices in values]
