"""What a measurement of `LeakageCallback` costs, in steps of the training that it interrupts.

LoRA of rank 16 on all linear layers of a chat model, steps of 8 chats, 40 coin-flip canaries and
256 references, in float32 and under bfloat16 autocast. Seconds are those of this process on its
own, so that one thread (OMP_NUM_THREADS=1) is measured whatever else runs; a ratio is that of
medians of one run.

    python benchmarks/measuring.py [--model FOLDER] [--chats chats.jsonl] [--repeats 3]
        [--canaries 40] [--references 256]

Without a folder the model is a small random one. `chats.jsonl` has {"messages": [...]} in each
line. The last line is JSON, of each precision: `step`, `moment` and `end` in seconds; `steps`, from
how many on the first measurement and the last take 3 %. At most 300 steps are wanted of
SmolLM2-135M-Instruct.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.integrations.measurement import Baseline, Measurement, training_precision
from vestige.integrations.planting import plant

BUDGET = 0.03
SAID = [
    {"role": "user", "content": "When does the train to the coast leave on Sunday morning?"},
    {"role": "assistant", "content": "At a quarter past nine, from the second platform."},
]
TEMPLATE = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
ASKS = "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"


def small() -> tuple[Any, Any]:
    """A random model with a tokenizer of a few words."""
    words = [message["content"] for message in SAID]
    tokenizer = SubwordVocabulary.train_bpe(Corpus.from_texts(words), size=300).tokenizer
    tokenizer.chat_template = TEMPLATE + ASKS
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=512, **sizes, **heads)), tokenizer


def batch_of(tokenizer: Any, chats: Sequence[Any]) -> dict[str, torch.Tensor]:
    """8 chats as a step reads them."""
    ids = [
        torch.tensor(tokenizer.apply_chat_template(one, return_dict=False)[:256])
        for one in chats[:8]
    ]
    rows = pad_sequence(ids, batch_first=True)
    labels = pad_sequence(ids, batch_first=True, padding_value=-100)
    return {"input_ids": rows, "labels": labels, "attention_mask": (labels != -100).long()}


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """Median seconds of this process."""
    work()
    taken = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def compared(
    trainer: Any, batch: dict[str, torch.Tensor], ask: Callable[[Any], Measurement]
) -> dict[str, float]:
    """Seconds of a step and of what is asked between steps, in one precision."""
    model, args = trainer.model, trainer.args
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=0.0)

    def step() -> None:
        with training_precision(args, model):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    asking = ask(trainer)

    def moment(last: bool) -> Any:
        return asking.measure(Baseline(), last=last)[0]

    found = {
        "step": seconds(step, args.repeats),
        "moment": seconds(lambda: moment(False), args.repeats),
        "end": seconds(lambda: moment(True), 1),
    }
    found["steps"] = (found["moment"] + found["end"]) / found["step"] / BUDGET
    return found


def main() -> None:
    """Print a line a precision, and all of it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a folder of Transformers with a chat template")
    parser.add_argument("--chats", help='JSONL with "messages" in each line')
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--canaries", type=int, default=40)
    parser.add_argument("--references", type=int, default=256)
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.model is None:
        network, tokenizer = small()
    else:
        tokenizer = AutoTokenizer.from_pretrained(options.model)
        network = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    lora = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(network, lora).train()
    data = Dataset.from_dict({"messages": [SAID] * 100})
    if options.chats is not None:
        data = Dataset.from_json(options.chats)
    batch, told = batch_of(tokenizer, data["messages"]), {}
    with tempfile.TemporaryDirectory() as folder:
        planted = Path(folder) / "canaries"
        plant(data, out=planted, coin_flip=options.canaries)
        ask = partial(Measurement, canaries=planted, references=options.references, seed=0)
        for name, bf16 in (("float32", False), ("bfloat16", True)):
            args = SimpleNamespace(bf16=bf16, fp16=False, repeats=options.repeats)
            trainer = SimpleNamespace(model=model, processing_class=tokenizer, args=args)
            told[name] = compared(trainer, batch, ask)
            print(
                f"{name}: " + ", ".join(f"{key} {value:.3g}" for key, value in told[name].items())
            )
    print(json.dumps(told))


if __name__ == "__main__":
    main()
