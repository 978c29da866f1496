"""What does a private step cost over a plain one, in time and in memory?

A Llama of SmolLM2-135M's shape with a LoRA adapter on all its linear layers, or trained whole
(`--rank 0`), one batch: `DPSGDStep` with clipping, noise and update beside `plain_step` with
update, in turns, each first in every other one. Opacus takes the same batch in the same run, with
hooks that form every example's gradient ("opacus_hooks") and with ghost clipping ("opacus_ghost"),
and so does fastDP where it can be imported; "users" is our step with four rows of each user clipped
as one. A ratio is that of the medians; on a CPU of its own seconds there, so that one thread
(OMP_NUM_THREADS=1) is measured whatever else runs. Each pair is measured in a process of its own.
Peak memory is that of two steps in a process of its own, all of it on a CPU, torch's on a GPU.

    python benchmarks/private_lora.py [--rows 32] [--length 128] [--rank 8] [--repeats 5]
        [--device cpu] [--shape smollm2-135m] [--optimizer adamw] [--only ours]

The last line is JSON: of an adapter at most 1.25 in time and 1.2 in memory is wanted.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.memory import keep_freed_pages, resident_mib
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.privacy.dp_sgd import DPSGDStep
from vestige.training.batches import Batch
from vestige.training.steps import StepFn, plain_step

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
             "tie_word_embeddings": True},
    "small": {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 8,
              "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 8192,
              "tie_word_embeddings": False},
    "smollm2-135m": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
                     "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
                     "tie_word_embeddings": True},
    "llama-3.2-1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
                     "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
                     "tie_word_embeddings": True},
}  # fmt: skip
CLIP, NOISE, RATE = 1.0, 1.0, 1e-4

Step = Callable[[Batch], None]


def make_model(options: argparse.Namespace) -> HuggingFaceLanguageModel:
    """Random weights: what a step costs does not depend on them."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(["the cat sat"]), size=265)
    dtype = torch.bfloat16 if options.device != "cpu" else torch.float32
    network = LlamaForCausalLM(LlamaConfig(**SHAPES[options.shape]))
    model = HuggingFaceLanguageModel(network, vocabulary)
    if options.rank:
        model = add_lora(model.to(dtype), rank=options.rank, target_modules=TARGETS)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return model.to(options.device).train()


def make_batch(options: argparse.Namespace) -> Batch:
    """Random tokens, without padding."""
    size = (options.rows, options.length + 1)
    ids = torch.randint(SHAPES[options.shape]["vocab_size"], size, device=options.device)
    return Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())


def optimizer_of(model: nn.Module, options: argparse.Namespace) -> torch.optim.Optimizer:
    """The same for all."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[options.optimizer](learning, RATE)


def updating(step: StepFn, options: argparse.Namespace) -> Step:
    """A step of ours and its update, on a fresh model."""
    model = make_model(options)
    optimizer = optimizer_of(model, options)

    def take(batch: Batch) -> None:
        step(model, batch, None)
        optimizer.step()

    return take


def plain(options: argparse.Namespace) -> Step:
    """What everything is compared with."""
    return updating(plain_step(), options)


def private_step(options: argparse.Namespace, **settings: Any) -> DPSGDStep:
    """With the noise and the clipping of all."""
    return DPSGDStep(
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        expected_units=options.rows,
        sequence_length=options.length,
        **settings,
    )


def ours(options: argparse.Namespace) -> Step:
    """Sequences' norms and their clipped sum from the one backward pass."""
    return updating(private_step(options), options)


def users(options: argparse.Namespace) -> Step:
    """The same of users with four sequences each."""
    take = updating(private_step(options, unit="user"), options)

    def of_users(batch: Batch) -> None:
        owners = torch.arange(len(batch.inputs), device=batch.inputs.device) // 4
        take(replace(batch, users=owners))

    return of_users


def logits_of(network: Any, batch: Batch) -> torch.Tensor:
    """With positions for every row, as Opacus needs."""
    places = torch.arange(batch.inputs.shape[1], device=batch.inputs.device)
    rows = places.repeat(len(batch.inputs), 1)
    answer = network(input_ids=batch.inputs, position_ids=rows, use_cache=False)
    logits: torch.Tensor = answer.logits
    return logits


def opacus_hooks(options: argparse.Namespace) -> Step:
    """Opacus with every example's gradient formed by hooks."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    network = GradSampleModule(make_model(options).network)
    optimizer = DPOptimizer(
        optimizer_of(network, options),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        expected_batch_size=options.rows,
    )
    criterion = nn.CrossEntropyLoss()

    def take(batch: Batch) -> None:
        optimizer.zero_grad()
        logits = logits_of(network, batch).float()
        criterion(logits.flatten(0, 1), batch.targets.flatten()).backward()
        optimizer.step()

    return take


def opacus_ghost(options: argparse.Namespace) -> Step:
    """Opacus with ghost clipping."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    network = GradSampleModuleFastGradientClipping(make_model(options).network, max_grad_norm=CLIP)
    optimizer = DPOptimizerFastGradientClipping(
        optimizer_of(network, options),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        expected_batch_size=options.rows,
    )
    criterion = DPLossFastGradientClipping(network, optimizer, nn.CrossEntropyLoss())

    def take(batch: Batch) -> None:
        optimizer.zero_grad()
        logits = logits_of(network, batch).float()
        criterion(logits.flatten(0, 1), batch.targets.flatten(), shape=logits.shape).backward()
        optimizer.step()

    return take


def fastdp(options: argparse.Namespace) -> Step:
    """fastDP's book-keeping, its own choice of mode."""
    from fastDP import PrivacyEngine

    network = make_model(options).network
    optimizer = optimizer_of(network, options)
    engine = PrivacyEngine(
        network,
        batch_size=options.rows,
        sample_size=100 * options.rows,
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        epochs=1,
        clipping_fn="Abadi",
        clipping_mode="MixOpt",
        loss_reduction="mean",
    )
    engine.attach(optimizer)

    def take(batch: Batch) -> None:
        logits = logits_of(network, batch).float()
        nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return take


KINDS = {kind.__name__: kind for kind in (plain, ours, users, opacus_hooks, opacus_ghost, fastdp)}


def now(device: str) -> float:
    """Seconds of this process on the CPU; on a GPU by the clock, once it has nothing left to do."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def timed(steps: dict[str, Step], options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of each repeat, in turns; the first one is not counted."""
    batch = make_batch(options)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(options.repeats + 1):
        order = list(steps.items())
        for name, take in order if repeat % 2 else reversed(order):
            begin = now(options.device)
            take(batch)
            if repeat:
                seconds[name].append(now(options.device) - begin)
    return seconds


def beside_plain(name: str, options: argparse.Namespace) -> float:
    """Median seconds of a kind over those of a plain step, in turns in this process."""
    steps = {"plain": plain(options), name: KINDS[name](options)}
    seconds = timed(steps, options)
    return statistics.median(seconds[name]) / statistics.median(seconds["plain"])


def peak(name: str, options: argparse.Namespace) -> float:
    """GiB at most in two steps, in this process."""
    take, batch = KINDS[name](options), make_batch(options)
    for _ in range(2):
        take(batch)
    if options.device == "cpu":
        return resident_mib("VmHWM") / 2**10
    return torch.cuda.max_memory_allocated() / 2**30


MEASURES = {"time": beside_plain, "peak": peak}


def apart(measure: str, name: str) -> float | None:
    """A measure in a process of its own; None where that fails, as for want of memory."""
    words = [sys.executable, __file__, *sys.argv[1:], "--measure", measure, "--of", name]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name}: {(done.stderr.strip().splitlines() or ['killed'])[-1]}")
        return None
    return float(done.stdout.splitlines()[-1])


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rank", type=int, default=8, help="of the adapter; 0: all learns")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shape", choices=SHAPES, default="smollm2-135m")
    parser.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw")
    parser.add_argument("--only", default=",".join(name for name in KINDS if name != "plain"))
    parser.add_argument("--measure", choices=MEASURES, help=argparse.SUPPRESS)
    parser.add_argument("--of", choices=KINDS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, and print a line for each kind and one of JSON."""
    options = arguments()
    warnings.filterwarnings("ignore")
    keep_freed_pages()
    if options.measure:
        print(MEASURES[options.measure](options.of, options))
        return
    base, found = apart("peak", "plain"), {}
    print(f"plain: {base or float('nan'):.2f} GiB")
    for name in options.only.split(","):
        memory, ratio = apart("peak", name), apart("time", name)
        more = memory / base if memory and base else None
        told = [float("nan") if one is None else one for one in (ratio, more)]
        print(f"{name}: {told[0]:.3f} of the time, {told[1]:.3f} of the memory", flush=True)
        found[name] = {"time": ratio, "memory": more}
    settings = {name: getattr(options, name) for name in ("shape", "rank", "rows", "length")}
    print(json.dumps({**settings, "ratios": found}))


if __name__ == "__main__":
    main()
