"""Fine-tune a causal model on texts with Transformers' `Trainer`, and measure what it reveals.

    python examples/trainer.py MODEL texts.jsonl --out trained

The lines marked with "# vestige" are the whole measurement.
"""

import argparse
from pathlib import Path

from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

from vestige.integrations.transformers import LeakageCallback, plant  # vestige


def main() -> None:
    """Train, and leave the model, the measurements and a page in `--out`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a folder of Transformers")
    parser.add_argument("texts", help='JSONL with a "text" in each line')
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args()
    out: Path = given.out

    tokenizer = AutoTokenizer.from_pretrained(given.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(given.model)
    data = Dataset.from_json(given.texts).train_test_split(0.1, seed=0)
    train = data["train"]
    train = plant(train, out=out / "canaries", coin_flip=100, copies=4)  # vestige

    def encoded(row: dict[str, str]) -> dict[str, list[int]]:
        return {"input_ids": tokenizer(row["text"], truncation=True, max_length=128)["input_ids"]}

    trainer = Trainer(
        model,
        TrainingArguments(
            out / "trainer",
            num_train_epochs=given.epochs,
            per_device_train_batch_size=8,
            learning_rate=1e-4,
            report_to="none",
            logging_steps=10,
            save_steps=20,
            save_total_limit=2,
        ),
        train_dataset=train.map(encoded, remove_columns=train.column_names),
        eval_dataset=data["test"].map(encoded, remove_columns=data["test"].column_names),
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        processing_class=tokenizer,
    )
    watch = LeakageCallback(out / "canaries", trainer, out=out / "leakage")  # vestige
    trainer.add_callback(watch)  # vestige
    trainer.train(resume_from_checkpoint=given.resume)
    trainer.save_model(out / "model")


if __name__ == "__main__":
    main()
