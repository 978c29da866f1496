"""Trainings in which canaries cannot be learnt, by a mistake: does either tool say so?

memaudit reads the prepared data set before the first step and refuses; Vestige measures, and says
what it finds of canaries that were never learnt.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from datasets import Dataset
from transformers import Trainer

from memaudit_beside.peer import quiet
from memaudit_beside.questions import Row, of_exposure
from memaudit_beside.worlds import CANARIES, Planted, World
from vestige.data.canaries.texts import Manifest
from vestige.integrations.leakage_callback import LeakageCallback

COPIES, SHORT, BLOCK = 4, 8, 64
Ids = Sequence[Sequence[int]]


def rows(world: World, seed: int) -> Iterator[Row]:
    """A row a mistake and tool; the first of all is no mistake."""
    planted = Planted.of(world, seed, COPIES)
    for name, change in CASES.items():
        data = change(world, planted)
        for tool, ask in (("memaudit", _memaudit), ("vestige", _vestige)):
            yield {
                "seed": seed,
                "mistake": name,
                "tool": tool,
                **ask(world, planted, data, seed),
            }


def _none(world: World, planted: Planted) -> Dataset:
    return world.encoded(planted.texts)


def _left_out(world: World, planted: Planted) -> Dataset:
    return world.encoded(planted.own)


def _truncated(world: World, planted: Planted) -> Dataset:
    ids = world.encoded(planted.texts)["input_ids"]
    return Dataset.from_dict({"input_ids": [row[:SHORT] for row in ids]})


def _masked(world: World, planted: Planted) -> Dataset:
    data, known = world.encoded(planted.texts), _phrases(planted)
    labels = [
        [-100] * len(ids) if _holds(text, known) else ids
        for text, ids in zip(planted.texts, data["input_ids"], strict=True)
    ]
    return data.add_column("labels", labels)


def _blocks(world: World, planted: Planted) -> Dataset:
    every = [token for ids in world.encoded(planted.texts)["input_ids"] for token in ids]
    blocks = [every[at : at + BLOCK] for at in range(0, len(every) - BLOCK, BLOCK)]
    return Dataset.from_dict({"input_ids": blocks})


CASES: Mapping[str, Callable[[World, Planted], Dataset]] = {
    "none": _none,
    "trained on the text without canaries": _left_out,
    f"rows cut to {SHORT} tokens": _truncated,
    "canaries left out of the loss": _masked,
    f"rows packed into blocks of {BLOCK}": _blocks,
}


def _phrases(planted: Planted) -> list[str]:
    canaries = Manifest.load(planted.place / "manifest.json").canaries
    return [canary.phrase for canary in canaries] + planted.secrets(included=True)


def _holds(text: str, phrases: Sequence[str]) -> bool:
    return any(phrase in text for phrase in phrases)


def _memaudit(world: World, planted: Planted, data: Dataset, seed: int) -> Row:
    from memaudit import MemorizationAuditCallback
    from memaudit.exceptions import MemauditError

    trainer = _trainer(world, planted, data, seed)
    callback = MemorizationAuditCallback(
        trainer=trainer,
        manifest=dict(planted.manifest),
        ref=copy.deepcopy(world.base),
        real_sample=0,
        skip_generation=True,
    )
    trainer.add_callback(callback)
    try:
        with quiet():
            trainer.train()
    except MemauditError as error:
        return {"refused": True, "says": str(error)}
    told = callback.preflight or {}
    found = (callback.report or {})["membership"]
    return {
        "refused": False,
        "says": " ".join(told.get("warnings", [])),
        "detected": found["n_detected"],
        "of": CANARIES,
    }


def _vestige(world: World, planted: Planted, data: Dataset, seed: int) -> Row:
    from vestige.errors import VestigeError

    trainer = _trainer(world, planted, data, seed)
    callback = LeakageCallback(planted.place, trainer, seed=seed)
    trainer.add_callback(callback)
    try:
        with quiet():
            trainer.train()
    except VestigeError as error:
        return {"refused": True, "says": str(error)}
    found = callback.moments[-1].found
    return {"refused": False, **of_exposure(found), "says": found.sentence}


def _trainer(world: World, planted: Planted, data: Dataset, seed: int, **settings: Any) -> Trainer:
    """A training on rows as they are given, with labels where they have some."""
    trainer = world.trainer(copy.deepcopy(world.base), planted.own[:1], seed=seed, **settings)
    trainer.train_dataset = data
    if "labels" in data.column_names:
        from transformers import DataCollatorForSeq2Seq

        trainer.data_collator = DataCollatorForSeq2Seq(world.tokenizer)
    return trainer
