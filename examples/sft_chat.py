"""Fine-tune a chat model with TRL's `SFTTrainer` and LoRA, and measure what it reveals.

    python examples/sft_chat.py MODEL chats.jsonl --out trained

`chats.jsonl` has {"messages": [{"role": "user", "content": "..."}, ...]} in each line. The lines
marked with "# vestige" are the whole measurement.
"""

import argparse
from pathlib import Path

import torch
from datasets import Dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

from vestige.integrations.transformers import LeakageCallback, plant  # vestige


def main() -> None:
    """Train, and leave the adapter, the measurements and a page in `--out`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a folder of Transformers with a chat template")
    parser.add_argument("chats", help='JSONL with "messages" in each line')
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--packing", action="store_true")
    parser.add_argument("--completion-only", action="store_true")
    given = parser.parse_args()
    out: Path = given.out

    data = Dataset.from_json(given.chats).train_test_split(0.1, seed=0)
    train = plant(data["train"], out=out / "canaries", coin_flip=40, copies=4)  # vestige
    trainer = SFTTrainer(
        given.model,
        args=SFTConfig(
            output_dir=str(out / "trainer"),
            num_train_epochs=given.epochs,
            per_device_train_batch_size=8,
            learning_rate=5e-4,
            max_length=256,
            packing=given.packing,
            assistant_only_loss=given.completion_only,
            use_cpu=not torch.cuda.is_available(),
            report_to="none",
            logging_steps=10,
            save_steps=20,
            save_total_limit=2,
        ),
        train_dataset=train,
        eval_dataset=data["test"],
        peft_config=LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    watch = LeakageCallback(out / "canaries", trainer, out=out / "leakage")  # vestige
    trainer.add_callback(watch)  # vestige
    trainer.train()
    trainer.save_model(out / "adapter")


if __name__ == "__main__":
    main()
