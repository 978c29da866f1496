"""A training with the callback, as in a user's script."""

from pathlib import Path

from tests.contract.world import World, texts_of
from vestige.claims import LEAK


def callback(world: World, model: str, *, rate: float, planted: Path) -> str:
    """The callback's verdict after two steps; an exceeded limit counts as a leak."""
    from datasets import Dataset
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        DataCollatorForLanguageModeling,
        Trainer,
        TrainingArguments,
    )

    from vestige.integrations.leakage_callback import Leakage, LeakageCallback

    tokenizer = AutoTokenizer.from_pretrained(world.path("base"))
    tokenizer.pad_token = tokenizer.eos_token
    rows = [[*tokenizer.encode(text)[:62], 0] for text in texts_of(planted)]
    arguments = TrainingArguments(
        str(world.folder / "trainer"), report_to=[], use_cpu=True, disable_tqdm=True, seed=0,
        save_strategy="no", max_steps=2, per_device_train_batch_size=8, learning_rate=rate,
    )  # fmt: skip
    leakage = LeakageCallback(str(planted), fail_above={"exposure": 3.0}, every=1.0)
    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained(world.path(model)), args=arguments,
        train_dataset=Dataset.from_dict({"input_ids": rows}), processing_class=tokenizer,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )  # fmt: skip
    leakage.trainer = trainer
    trainer.add_callback(leakage)
    try:
        trainer.train()
    except Leakage:
        return LEAK
    return leakage.result.claim.verdict
