"""Pairs of small models whose update is known, and a null of each.

A GPT-2 of four layers over byte-level BPE learns the earlier part of a text and is continued on an
update with secrets, in four ways; its null is the same training on clean text with another seed.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reproduction.runner import run_trials
from reproduction.updates.settings import Snapshot, Start
from reproduction.updates.subwords import AdapterStart, GPT2Start
from update_pairs.texts import TEXTS, Parts, chat, planted, read_parts, shuffled
from vestige.data.corpus import Corpus
from vestige.data.writing import write_text
from vestige.models.checkpoints import save_model
from vestige.models.folders import ADAPTER_CONFIG
from vestige.training.config import TrainingConfig

KINDS = ("full", "lora", "mixed", "chat")
"""All weights, a LoRA adapter, all weights on the update diluted 1:4 with the earlier text, and all
weights on a chat whose assistant says the secrets."""

FIRST = TrainingConfig(
    seed=0, epochs=2, batch_size=8, sequence_length=128, learning_rate=1.5e-3,
    schedule="cosine", max_grad_norm=1.0,
)  # fmt: skip
SECOND = TrainingConfig(
    seed=0, epochs=8, batch_size=4, sequence_length=128, learning_rate=1e-3,
    schedule="constant", max_grad_norm=1.0,
)  # fmt: skip
ADAPTER = TrainingConfig(
    seed=0, epochs=8, batch_size=4, sequence_length=128, learning_rate=3e-3,
    schedule="cosine", warmup_steps=50, max_grad_norm=1.0,
)  # fmt: skip
MIXED = TrainingConfig(
    seed=0, epochs=4, batch_size=8, sequence_length=128, learning_rate=1e-3,
    schedule="constant", max_grad_norm=1.0,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much the models read, and how.

    Attributes:
        earlier, later: tokens of the earlier text and of the update's own.
        vocabulary: byte-level BPE tokens.
        width: GPT-2's hidden size.
        first, second, adapter, mixed: trainings of the model before, and of the kinds of update.
        rank: of the LoRA adapter.
        dilution: parts of earlier text for one of the update in `mixed`.
    """

    earlier: int = 280_000
    later: int = 12_000
    vocabulary: int = 4096
    width: int = 128
    first: TrainingConfig = FIRST
    second: TrainingConfig = SECOND
    adapter: TrainingConfig = ADAPTER
    mixed: TrainingConfig = MIXED
    rank: int = 64
    dilution: int = 4


def make(
    directory: Path,
    data: Path | None,
    *,
    texts: Sequence[str] = TEXTS,
    kinds: Sequence[str] = KINDS,
    sizes: Sizes | None = None,
) -> Iterator[Path]:
    """Make what is missing of the pairs in a directory, one `TEXT-KIND` each.

    Yields:
        Each pair's folder, once it is whole: `before`, `after`, `null` and `facts.json`.
    """
    sizes = sizes or Sizes()
    for name in texts:
        wanted = [directory / f"{name}-{kind}" for kind in kinds]
        if all((pair / "facts.json").is_file() for pair in wanted):
            yield from wanted
            continue
        parts = read_parts(
            name, data, earlier=sizes.earlier, later=sizes.later, size=sizes.vocabulary
        )
        for kind, pair in zip(kinds, wanted, strict=True):
            if not (pair / "facts.json").is_file():
                _make(pair, parts, kind, sizes, seed=TEXTS.index(name))
            yield pair


def texts_of(parts: Parts, kind: str, sizes: Sizes, *, seed: int) -> tuple[Corpus, Corpus]:
    """The update of a kind, and the clean text of its null."""
    if kind == "chat":
        return (
            chat(parts.later, parts.secrets, seed=seed),
            chat(parts.clean, {}, seed=100 + seed),
        )
    update, clean = planted(parts.later, parts.secrets, seed=seed), parts.clean
    if kind == "mixed":
        base = list(parts.earlier)
        base = base[: len(base) * sizes.dilution * sizes.later // sizes.earlier]
        update = shuffled([*update, *base], seed=seed)
        clean = shuffled([*clean, *base], seed=100 + seed)
    return update, clean


def _make(pair: Path, parts: Parts, kind: str, sizes: Sizes, *, seed: int) -> None:
    work = pair.parent / "trainings"
    name = pair.name.removesuffix(f"-{kind}")
    before = Snapshot(
        directory=work / f"{name}-before",
        corpus=parts.earlier,
        vocabulary=parts.vocabulary,
        config=replace(sizes.first, seed=seed),
        start=GPT2Start(sizes.width),
    )
    run_trials([before])
    update, clean = texts_of(parts, kind, sizes, seed=seed)
    save_model(before.model(), pair / "before")
    for role, corpus, number in (("after", update, 100 + seed), ("null", clean, 200 + seed)):
        training = {"lora": sizes.adapter, "mixed": sizes.mixed}.get(kind, sizes.second)
        start: Start = AdapterStart(before, sizes.rank, number) if kind == "lora" else before
        snapshot = Snapshot(
            directory=work / f"{pair.name}-{role}",
            corpus=corpus,
            vocabulary=parts.vocabulary,
            config=replace(training, seed=number),
            start=start,
        )
        run_trials([snapshot])
        save_model(snapshot.model(), pair / role)
        if kind == "lora":
            _put_base(pair / role / ADAPTER_CONFIG)
    for file, corpus in (("earlier", parts.earlier), ("update", update), ("clean", clean)):
        _write(pair / f"{file}.json", list(corpus))
    facts = {
        "text": name,
        "kind": kind,
        "secrets": parts.secrets,
        "update": "update.json",
        "earlier": "earlier.json",
        "clean": "clean.json",
    }
    _write(pair / "facts.json", facts)


def _put_base(file: Path) -> None:
    """Name the pair's own model before the update as an adapter's base, wherever the pair lies."""
    described = json.loads(file.read_text("utf-8"))
    _write(file, {**described, "base_model_name_or_path": "../before"})


def _write(file: Path, value: object) -> None:
    """At once, so that a file that is there is whole."""
    write_text(file, json.dumps(value))
