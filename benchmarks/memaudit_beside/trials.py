"""Trainings that leak, that do not, and that leak something else than canaries: what each says."""

import copy
import random
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from own_secrets import plain, secrets
from transformers import Trainer

import vestige as vg
from memaudit_beside import questions
from memaudit_beside.peer import quiet
from memaudit_beside.questions import Row, memaudits
from memaudit_beside.records import claims
from memaudit_beside.worlds import Planted, World, watched

COPIES = (1, 4, 16)
SCORES = ("log-ratio", "min-k-plus")
"""Of texts: Vestige's own choice with a base, and the one that suits random tokens."""
SAID = 16
"""Copies of a user's own secret."""
PRIVATE_COPIES, EPSILON = 16, 8.0
ADAPTER = {"rate": 2e-2, "epochs": 6}
LORA = {"r": 8, "target_modules": ["c_attn", "c_proj", "c_fc"], "task_type": "CAUSAL_LM"}


def repeated(world: World, seed: int, copies: int) -> list[Row]:
    """Canaries of both in one training, and Vestige asked of memaudit's own canaries."""
    planted = Planted.of(world, seed, copies)
    seen = watched(world, planted, seed)
    rows = [
        *questions.of_callbacks(seen),
        *(questions.their_canaries(world, seen.model, planted, seed, score) for score in SCORES),
    ]
    return [{"seed": seed, "copies": copies} | row for row in rows]


def null(world: World, seed: int) -> list[Row]:
    """Canaries, secrets and texts that nobody has read: whatever is claimed is a false alarm."""
    planted = Planted.of(world, seed, 4)
    model = _trained(world, planted.own, seed)
    half = len(planted.others) // 2
    first, second = planted.others[:half], planted.others[half:]
    strange = random.Random(seed).sample(list(world.elsewhere), half)
    report = memaudits(world, model, planted.manifest, first, second)
    shifted = memaudits(world, model, planted.manifest, first, strange, generate=False)
    unread = [(kind, line, False) for kind, line, _ in secrets(seed)]
    asked, another = world.asked(model), {"reference": "another kind"}
    rows: list[Row] = [
        {"tool": "memaudit", "question": "canaries", **claims(report)},
        {"tool": "memaudit", **questions.comparison(report)},
        {"tool": "memaudit", **another, **questions.comparison(shifted)},
        questions.exposure(asked, planted, seed),
        *(questions.their_canaries(world, model, planted, seed, score) for score in SCORES),
        questions.own_secrets(asked, unread, seed),
        questions.texts(world, model, first, second, seed),
        another | questions.texts(world, model, first, strange, seed),
    ]
    return [{"seed": seed} | row for row in rows]


def own_text(world: World, seed: int) -> list[Row]:
    """Secrets of the user's stand in the text sixteen times, and all canaries once."""
    listed = secrets(seed)
    said, silent = (
        [plain(line) for _, line, told in listed if told is side] for side in (True, False)
    )
    planted = Planted.of(world, seed, 1, said * SAID)
    model = _trained(world, planted.texts, seed)
    report, seconds = _took(
        memaudits, world, model, planted.manifest, planted.texts, planted.others
    )
    rows: list[Row] = [
        {"tool": "memaudit", "question": "canaries", **claims(report), "seconds": seconds},
        {"tool": "memaudit", **questions.comparison(report)},
        {"tool": "memaudit", "question": "no canaries", "says": _without_canaries(world, model)},
    ]
    asked = world.asked(model)
    for ask in (
        partial(questions.exposure, asked, planted, seed),
        partial(questions.texts, world, model, planted.own, planted.others, seed),
        partial(questions.own_secrets, asked, listed, seed),
        partial(questions.said_aloud, asked, listed),
        partial(questions.searched, world, model, said, silent, seed),
    ):
        row, seconds = _took(ask)
        rows.append(row | {"seconds": seconds})
    return [{"seed": seed} | row for row in rows]


def private_training(world: World, seed: int) -> list[Row]:
    """Sixteen copies of every canary, learnt by an adapter: with privacy of a row, and without."""
    from peft import LoraConfig, get_peft_model

    from vestige.integrations.private_trainer import private

    planted = Planted.of(world, seed, PRIVATE_COPIES)
    lora = LoraConfig(**LORA, fan_in_fan_out=True)

    def plain(model: Any, *given: Any, **settings: Any) -> Trainer:
        return Trainer(get_peft_model(model, lora), *given, **settings)

    own: dict[str, Any] = {"privacy": vg.DPSGD(epsilon=EPSILON), "peft_config": lora}
    trainings = (EPSILON, private(Trainer), own), (None, plain, {})
    return [
        {"seed": seed, "epsilon": epsilon} | row
        for epsilon, kind, settings in trainings
        for row in questions.of_callbacks(
            watched(world, planted, seed, ref="auto", kind=kind, **ADAPTER, **settings)
        )
    ]


def _trained(world: World, texts: Sequence[str], seed: int) -> Any:
    """A full fine-tune of the base, in evaluation mode."""
    model = copy.deepcopy(world.base)
    with quiet():
        world.trainer(model, texts, seed=seed).train()
    return model.eval()


def _without_canaries(world: World, model: Any) -> str:
    """What memaudit says where none of its canaries was trained on."""
    from memaudit import generate_canaries, inject

    drawn = generate_canaries(world.tokenizer, n=1, n_controls=100)
    _, manifest = inject([{"text": "a row"}], drawn, include_prob=0.0)
    try:
        memaudits(world, model, manifest, [], [], generate=False)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "a report"


def _took(ask: Any, *given: Any) -> tuple[Any, float]:
    """(the answer, seconds)."""
    began = time.perf_counter()
    return ask(*given), round(time.perf_counter() - began, 1)
