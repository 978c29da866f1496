"""Trainings with the callback and with `PrivateTrainer`, as in a user's script."""

import re
from math import inf
from pathlib import Path
from typing import Any

from tests.contract.world import World, texts_of
from vestige.claims import LEAK, NO_LEAK, UNDECIDED


def _parts(world: World, model: str, rows: list[str]) -> tuple[Any, Any, Any, Any]:
    """Model, data set, collator and tokenizer."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling

    tokenizer = AutoTokenizer.from_pretrained(world.path("base"))
    tokenizer.pad_token = tokenizer.eos_token
    data = Dataset.from_dict({"input_ids": [[*tokenizer.encode(row)[:62], 0] for row in rows]})
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    return AutoModelForCausalLM.from_pretrained(world.path(model)), data, collator, tokenizer


def _arguments(world: World, **settings: Any) -> Any:
    from transformers import TrainingArguments

    return TrainingArguments(
        str(world.folder / "trainer"), report_to=[], use_cpu=True, disable_tqdm=True,
        save_strategy="no", seed=0, **settings,
    )  # fmt: skip


def callback(world: World, model: str, *, rate: float, planted: Path) -> str:
    """The callback's verdict after two steps; an exceeded limit counts as a leak."""
    from transformers import Trainer

    from vestige.integrations.leakage_callback import Leakage, LeakageCallback

    network, data, collator, tokenizer = _parts(world, model, texts_of(planted))
    leakage = LeakageCallback(str(planted), fail_above={"exposure": 3.0}, every=1.0)
    trainer = Trainer(
        model=network, train_dataset=data, data_collator=collator, processing_class=tokenizer,
        args=_arguments(world, max_steps=2, per_device_train_batch_size=8, learning_rate=rate),
    )  # fmt: skip
    leakage.trainer = trainer
    trainer.add_callback(leakage)
    try:
        trainer.train()
    except Leakage:
        return LEAK
    return leakage.result.claim.verdict


def private(world: World, case: str) -> str:
    """A verdict on the statement of a private training; a refusal is raised."""
    from transformers import Trainer

    from vestige import DPSGD
    from vestige.integrations.private_trainer import PrivateTrainer

    model = case if case == "broken" else "base"
    network, data, collator, tokenizer = _parts(world, model, world.texts["members"][:40])
    arguments = _arguments(
        world, max_steps=3, per_device_train_batch_size=4, learning_rate=1e-3, optim="sgd"
    )
    if case == "trained without privacy before":
        Trainer(network, arguments, train_dataset=data, data_collator=collator).train()
    trainer = PrivateTrainer(
        network, arguments, train_dataset=data, data_collator=collator,
        processing_class=tokenizer, privacy=DPSGD(epsilon=8),
    )  # fmt: skip

    def epsilon() -> float:
        trainer.train()
        if trainer.privacy_statement[0].startswith("No guarantee"):
            return inf
        return float(re.search(r"ε = ([\d.]+)", trainer.privacy_statement[0])[1])

    first = epsilon()
    if first == inf:
        return UNDECIDED
    if case == "trained twice" and epsilon() <= 1.02 * first:
        return LEAK  # two trainings cost more than one
    return NO_LEAK
