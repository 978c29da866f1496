"""What does a private step cost over a plain one, in time and in memory?

Two LSTM layers of 550 over a vocabulary of 10,000, 32 sequences of 20 tokens: `DPSGDStep` with
clipping, noise and update beside `plain_step` with update (SGD) on the same batch, in turns. The
ratio is that of the medians, that of the fastest repeats stands beside it. One thread, timed in
its own seconds on the CPU: waiting for other programs would drown what is measured. Peak memory is
that of some steps in a process of its own, the model's parameters counted as well. Opacus' DPLSTM
takes the same batch in the same run, with its examples' gradients formed ("opacus") and with ghost
clipping ("opacus_ghost").

    python benchmarks/dp_sgd.py [--repeats 24] [--no-opacus] [--device cpu]

The last line is JSON: at most 1.35 in time and 1 in memory is wanted, with vectors of 512 bits and
of 256 (ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2).
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from vestige.data.vocabulary import WordVocabulary
from vestige.memory import PeakMemory, keep_freed_pages
from vestige.models.recurrent_network import LSTMConfig
from vestige.privacy.dp_sgd import DPSGDStep
from vestige.training.batches import Batch
from vestige.training.new_models import new_model
from vestige.training.steps import StepFn, plain_step

WORDS, LAYERS, HIDDEN = 10_000, 2, 550
ROWS, LENGTH = 32, 20
LEARNING_RATE, CLIP, NOISE = 0.1, 1.0, 1.0
OPACUS_REPEATS = 2

Step = Callable[[Batch], None]


def now(device: str) -> float:
    """Seconds of this process on the CPU; on a GPU by the clock, once it has nothing left to do."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def make_batch(device: str) -> Batch:
    """Sequences of one length, their words as unequally frequent as a text's."""
    drawn = np.random.default_rng(0).zipf(1.3, (ROWS, LENGTH + 1)) % WORDS
    ids = torch.from_numpy(drawn).to(device)
    lengths = torch.full((ROWS,), LENGTH, device=device)
    return Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), lengths=lengths)


def updating(step: StepFn, device: str) -> Step:
    """A step of ours and its update, on a fresh model."""
    vocabulary = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(2, WORDS))))
    shape = LSTMConfig(layers=LAYERS, embedding_size=HIDDEN, hidden_size=HIDDEN)
    model = new_model(vocabulary, shape, seed=0).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, fused=True)

    def take(batch: Batch) -> None:
        step(model, batch, None)
        optimizer.step()

    return take


def plain(device: str) -> Step:
    """What everything is compared with."""
    return updating(plain_step(), device)


def dp_sgd(device: str) -> Step:
    """Ours."""
    step = DPSGDStep(
        noise_multiplier=NOISE, max_grad_norm=CLIP, expected_units=ROWS, sequence_length=LENGTH
    )
    return updating(step, device)


class OpacusModel(nn.Module):
    """The same network, its recurrent layers Opacus' own."""

    def __init__(self) -> None:
        from opacus.layers import DPLSTM

        super().__init__()
        self.embedding = nn.Embedding(WORDS, HIDDEN)
        self.lstm = DPLSTM(HIDDEN, HIDDEN, num_layers=LAYERS, batch_first=True)
        self.head = nn.Linear(HIDDEN, WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(ids))[0])


def opacus(device: str) -> Step:
    """Opacus with every example's gradient formed."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    module = GradSampleModule(OpacusModel().to(device))
    sgd = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
    optimizer = DPOptimizer(
        sgd, noise_multiplier=NOISE, max_grad_norm=CLIP, expected_batch_size=ROWS
    )
    criterion = nn.CrossEntropyLoss()

    def take(batch: Batch) -> None:
        optimizer.zero_grad()
        criterion(module(batch.inputs).flatten(0, 1), batch.targets.flatten()).backward()
        optimizer.step()

    return take


def opacus_ghost(device: str) -> Step:
    """Opacus with ghost clipping where it has any."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    module = GradSampleModuleFastGradientClipping(OpacusModel().to(device), max_grad_norm=CLIP)
    sgd = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
    optimizer = DPOptimizerFastGradientClipping(
        sgd, noise_multiplier=NOISE, max_grad_norm=CLIP, expected_batch_size=ROWS
    )
    criterion = DPLossFastGradientClipping(module, optimizer, nn.CrossEntropyLoss())

    def take(batch: Batch) -> None:
        optimizer.zero_grad()
        logits = module(batch.inputs)
        criterion(logits.flatten(0, 1), batch.targets.flatten(), shape=logits.shape).backward()
        optimizer.step()

    return take


KINDS = {kind.__name__: kind for kind in (plain, dp_sgd, opacus, opacus_ghost)}


def timed(steps: dict[str, Step], repeats: int, device: str) -> dict[str, list[float]]:
    """Seconds of each step, in turns; the first round warms up."""
    batch = make_batch(device)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(repeats + 1):
        for name in list(steps)[:: 1 if repeat % 2 else -1]:
            began = now(device)
            steps[name](batch)
            if repeat:
                seconds[name].append(now(device) - began)
    return seconds


def peak_memory(kind: str, device: str) -> float:
    """MiB that some steps take at most, in a process of its own."""
    command = [sys.executable, __file__, "--memory-of", kind, "--device", device]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def own_peak_memory(kind: str, device: str) -> float | None:
    """The same of this process."""
    batch = make_batch(device)
    memory = PeakMemory(torch.device(device))
    step = KINDS[kind](device)
    for _ in range(4 if kind in ("plain", "dp_sgd") else 2):
        step(batch)
    return memory.mib()


def main() -> None:
    """Time and weigh all kinds of steps and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=24)
    parser.add_argument("--no-opacus", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--memory-of", choices=KINDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    # Opacus hooks into ids, which have no gradient, and says so.
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keep_freed_pages()
    device = arguments.device
    if arguments.memory_of:
        print(own_peak_memory(arguments.memory_of, device))
        return

    names = [name for name in KINDS if not (arguments.no_opacus and "opacus" in name)]
    ours = {name: KINDS[name](device) for name in names if "opacus" not in name}
    seconds = timed(ours, arguments.repeats, device)
    for name in names:
        if name not in ours:
            seconds |= timed({name: KINDS[name](device)}, OPACUS_REPEATS, device)
    mib = {name: peak_memory(name, device) for name in names}
    result: dict[str, object] = {"benchmark": "dp_sgd"}
    for name in names[1:]:
        middle = statistics.median(seconds[name]) / statistics.median(seconds["plain"])
        result[f"{name}_time_ratio"] = round(middle, 3)
        result[f"{name}_fastest_ratio"] = round(min(seconds[name]) / min(seconds["plain"]), 3)
        result[f"{name}_memory_ratio"] = round(mib[name] / mib["plain"], 3)
    result |= {
        "plain_seconds": round(statistics.median(seconds["plain"]), 4),
        "plain_mib": round(mib["plain"]),
        "device": device,
        "repeats": arguments.repeats,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
