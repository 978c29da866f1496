"""Does anything of a private training's chance show in what is released, or come again?

Four kinds of private training are taken: DP-SGD of sequences and of users on an LSTM, DP-FedAvg,
and DP-SGD on an adapter of a tiny GPT-2, all with dropout.

First, N trainings of one seed and N of different seeds (`--trainings`). Clipping is so tight and
noise so large that gradients are noise alone. Asked are correlations between

    noise and first weights      one training's noise, wherever it stands in twelve steps, with its
                                 first weights, as they are and turned into normals
    lots and first weights       who was drawn, with as many of the first weights
    noise and lots               who was drawn, with as many numbers of the noise
    noise and noise              of two trainings
    lots and lots                of two trainings

A permutation test over 10,000 random pairings of one's noise and another's weights, in which
nothing can be, says whether the mean over the N own pairs is beyond chance; the middle 95 % of the
pairings' means stands beside it. Where all have one seed, and so the same
first weights, those of 39 other seeds stand in for another's, and p is of a t-test. For pairs of
trainings the sum of squared z-scores is compared with its chi-square. Something is beyond chance
where a p-value is below 0.05 over the number of questions.

Then kills (`--kills`): a training with a fresh secret is killed by SIGKILL at a random moment,
its secret is read from its directory, it is resumed, and all that it leaves is compared, byte for
byte, with what an undisturbed training of that secret leaves.

With `--control` the noise is torch's generator's, seeded as first weights are: the statistics have
to find that, and say so by their exit status.

    python benchmarks/private_randomness.py [--trainings 20] [--kills 20] [--seed 0] [--control]

The last line is JSON; the exit status is 1 where something is beyond chance or a byte differs.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import torch._dynamo  # every optimizer imports it, for seconds: once here, not in each child
from numpy.typing import NDArray
from safetensors import safe_open
from scipy import stats
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils.logging import disable_progress_bar

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import load_model, save_model
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMConfig
from vestige.privacy.dp_fedavg import DPFedAvgStep
from vestige.privacy.dp_sgd import DPSGDStep
from vestige.privacy.randomness import GaussianNoise
from vestige.training.config import TrainingConfig
from vestige.training.directory import CHECKPOINT, HISTORY, KEY, MODEL
from vestige.training.loop import train
from vestige.training.new_models import new_model
from vestige.training.secret import Secret

KINDS = ("sequences", "users", "dp-fedavg", "adapter")
WORDS, USERS, DOCUMENTS, LENGTH = 200, 24, 96, 12
PAIRINGS, OTHERS = 10_000, 39
FORK = multiprocessing.get_context("fork")  # a fresh interpreter would import torch for seconds
FOLDER = tempfile.TemporaryDirectory()
PIECES = SubwordVocabulary.train_bpe(Corpus.from_texts(["the cat sat on the mat"]), size=259)
Vector = NDArray[np.float64]


def text() -> EncodedCorpus:
    """Random words of random users."""
    rng = np.random.default_rng(0)
    ids = rng.integers(2, WORDS, DOCUMENTS * LENGTH).astype(np.int32)
    owners = (np.arange(DOCUMENTS) % USERS).astype(np.int32)
    names = tuple(f"user{i}" for i in range(USERS))
    return EncodedCorpus(ids, np.arange(DOCUMENTS + 1) * LENGTH, owners, names)


def first(kind: str, seed: int) -> LanguageModel:
    """The model before its training, as `vestige train --seed` makes it."""
    if kind != "adapter":
        words = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(2, WORDS))))
        shape = LSTMConfig(
            layers=1, embedding_size=16, hidden_size=16, dropout_in=0.1, dropout_out=0.1
        )
        return new_model(words, shape, seed=seed)
    whole = load_model(base())
    torch.manual_seed(seed)
    return add_lora(whole, rank=16)


@cache
def base() -> Path:
    """Where a tiny GPT-2 with dropout stands."""
    torch.manual_seed(1)
    ends = dict.fromkeys(("bos_token_id", "eos_token_id"), PIECES.eos_id)
    sizes = {"n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
    network = GPT2LMHeadModel(GPT2Config(vocab_size=len(PIECES), **sizes, **ends))
    save_model(HuggingFaceLanguageModel(network, PIECES), Path(FOLDER.name) / "base")
    return Path(FOLDER.name) / "base"


def step_of(kind: str, *, noise: float, clip: float) -> Any:
    """The private step."""
    rule = {"noise_multiplier": noise, "max_grad_norm": clip, "expected_units": 8}
    if kind == "dp-fedavg":
        return DPFedAvgStep(**rule, local_batch_size=2, local_learning_rate=0.1)
    unit = "user" if kind == "users" else "sequence"
    return DPSGDStep(**rule, sequence_length=LENGTH, unit=unit)


def config_of(kind: str, seed: int, *, epochs: int, rate: float) -> TrainingConfig:
    """How they learn; a checkpoint every second step."""
    by_user = kind in ("users", "dp-fedavg")
    return TrainingConfig(
        seed=seed,
        epochs=epochs,
        batch_size=8,
        sequence_length=LENGTH,
        optimizer="adam",
        learning_rate=rate,
        batching="poisson-users" if by_user else "poisson",
        checkpoint_every=2,
        precision="float32",
    )


class Watched:
    """A private step whose gradients and lots are kept."""

    def __init__(self, inside: Any, *, by_user: bool) -> None:
        self.by_user = by_user
        self.inside, self.settings, self.draw_from = inside, inside.settings, inside.draw_from
        self.noise: list[Vector] = []
        self.lots: list[Vector] = []

    def __call__(self, model: LanguageModel, batch: Any, state: Any) -> Any:
        done = self.inside(model, batch, state)
        learning = [p.grad.flatten() for p in model.parameters() if p.requires_grad]
        self.noise.append(torch.cat(learning).double().numpy())
        drawn = np.zeros(DOCUMENTS)
        beginnings = {tuple(row): place for place, row in enumerate(TEXT)}
        drawn[[beginnings[tuple(row)] for row in batch.targets.tolist()]] = 1
        # Lots are drawn for users, of whom the first documents are one each, or for documents.
        self.lots.append(drawn[:USERS] if self.by_user else drawn)
        return done


TEXT = text().tokens.reshape(DOCUMENTS, LENGTH).tolist()


def first_weights(kind: str, seed: int) -> Vector:
    """256 of one tensor."""
    named = {n: p for n, p in first(kind, seed).named_parameters() if p.requires_grad}
    name = next(n for n in named if "lora_A" in n or "embedding" in n)
    return named[name].detach().double().flatten()[:256].numpy().copy()


def one(kind: str, seed: int) -> tuple[Vector, Vector, Vector]:
    """First weights of one tensor, twelve steps' noise, and their lots, of one training."""
    model = first(kind, seed)
    start = first_weights(kind, seed)
    by_user = kind in ("users", "dp-fedavg")
    watched = Watched(step_of(kind, noise=1e9, clip=1e-9), by_user=by_user)
    config = config_of(kind, seed, epochs=4 if by_user else 1, rate=1e-12)
    train(model, text(), config=config, step=watched)
    return start, np.concatenate(watched.noise), np.concatenate(watched.lots)


def as_normals(weights: Vector) -> Vector:
    """What torch's `normal_` makes of uniforms of which these weights are multiples."""
    bound = np.abs(weights).max() * (1 + 1e-9)
    uniform = ((weights / bound + 1) / 2).reshape(-1, 2, 8).clip(1e-7, 1 - 1e-7)
    radius, angle = np.sqrt(-2 * np.log(1 - uniform[:, 0])), 2 * np.pi * uniform[:, 1]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()


def nearest(one: Vector, other: Vector) -> float:
    """The largest correlation in size of a vector with as many numbers of another, wherever."""
    n = len(one)
    windows = np.lib.stride_tricks.sliding_window_view(other, n)
    sums, squares = (np.cumsum(np.insert(power, 0, 0)) for power in (other, other**2))
    spread = np.sqrt(squares[n:] - squares[:-n] - (sums[n:] - sums[:-n]) ** 2 / n)
    own = one - one.mean()
    return float(np.abs(windows @ own / spread / np.linalg.norm(own)).max())


def correlation(one: Vector, other: Vector) -> float:
    """In size, of as many numbers as the shorter has."""
    n = min(len(one), len(other))
    return float(abs(np.corrcoef(one[:n], other[:n])[0, 1]))


def own_pairs(
    ones: list[Vector], others: list[Vector], measure: Callable[[Vector, Vector], float], seed: int
) -> dict[str, float]:
    """The mean over own pairs, and the middle 95 % of that over random pairings."""
    table = np.array([[measure(a, b) for b in others] for a in ones])
    rng, n = np.random.default_rng(seed), len(ones)
    means = [table[np.arange(n), rng.permutation(n)].mean() for _ in range(PAIRINGS)]
    low, high = np.quantile(means, [0.025, 0.975])
    own = float(np.diag(table).mean())
    largest = float(np.diag(table).max())
    return {
        "own": round(own, 4),
        "low": round(float(low), 4),
        "high": round(float(high), 4),
        "largest": round(largest, 4),
        "p": round(float(1 + sum(m >= own for m in means)) / (1 + len(means)), 4),
    }


def same_weights(kind: str, seed: int, noise: list[Vector]) -> dict[str, float]:
    """Noise of trainings of one seed, with its first weights and with those of other seeds."""
    means = []
    for other in range(seed, seed + OTHERS + 1):
        start = first_weights(kind, other)
        means.append(np.mean([nearest(v, n) for v in (start, as_normals(start)) for n in noise]))
    own, chance, spread = means[0], np.mean(means[1:]), np.std(means[1:], ddof=1)
    reach = stats.t.ppf(0.975, OTHERS - 1) * spread * np.sqrt(1 + 1 / OTHERS)
    t = (own - chance) / (spread * np.sqrt(1 + 1 / OTHERS))
    return {
        "own": round(float(own), 4),
        "low": round(float(chance - reach), 4),
        "high": round(float(chance + reach), 4),
        "p": round(float(stats.t.sf(t, OTHERS - 1)), 4),
    }


def between(vectors: list[Vector]) -> dict[str, float]:
    """All pairs of trainings: the sum of squared z-scores, and its chi-square's middle 95 %."""
    n, length = len(vectors), len(vectors[0])
    r = np.corrcoef(vectors)[np.triu_indices(n, 1)]
    statistic, pairs = float((r**2).sum() * (length - 1)), len(r)
    low, high = stats.chi2.ppf([0.025, 0.975], pairs)
    return {
        "chi2": round(statistic, 1),
        "low": round(float(low), 1),
        "high": round(float(high), 1),
        "largest_correlation": round(float(np.abs(r).max()), 4),
        "p": round(float(stats.chi2.sf(statistic, pairs)), 4),
    }


def correlations(kind: str, seeds: list[int], seed: int) -> dict[str, dict[str, float]]:
    """All five questions of one kind of training."""
    starts, noise, lots = map(list, zip(*[one(kind, s) for s in seeds], strict=True))
    found = {"noise_noise": between(noise), "lots_lots": between(lots)}
    found["noise_lots"] = own_pairs(lots, noise, correlation, seed)
    if len(set(seeds)) > 1:  # else first weights are one and the same
        found["noise_weights"] = own_pairs(starts, noise, nearest, seed)
        normals = [as_normals(start) for start in starts]
        found["noise_weights_as_normals"] = own_pairs(normals, noise, nearest, seed)
        found["lots_weights"] = own_pairs(starts, lots, correlation, seed)
    else:
        found["noise_weights"] = same_weights(kind, seeds[0], noise)
    return found


def small_training(kind: str, directory: Path, secret: bytes | None) -> None:
    """What is killed."""
    torch.set_num_threads(1)
    train(
        first(kind, 1),
        text(),
        config=config_of(kind, 1, epochs=6, rate=0.01),
        step=step_of(kind, noise=1.0, clip=0.5),
        directory=directory,
        resume=True,
        secret=None if secret is None else Secret(secret),
    )


def run(
    kind: str, directory: Path, secret: bytes | None = None, *, kill_after: float | None = None
) -> bool:
    """Run the training in a process of its own; True when it was killed."""
    process = FORK.Process(target=small_training, args=(kind, directory, secret))
    process.start()
    process.join(kill_after)
    killed = process.is_alive()
    if killed:
        process.kill()
        process.join()
    elif process.exitcode != 0:
        sys.exit(f"a training in {directory} failed with exit code {process.exitcode}")
    return killed


def outcome(directory: Path) -> str:
    """One hash over all that a training leaves behind, but for the seconds that it took."""
    digest = hashlib.sha256()
    for path in sorted((directory / MODEL).rglob("*.safetensors")):
        digest.update(path.read_bytes())
    history = json.loads((directory / HISTORY).read_text())
    with safe_open(directory / CHECKPOINT, "pt") as file:
        position = json.loads(file.metadata()["position"])
        for name in sorted(file.keys()):
            digest.update(name.encode() + file.get_tensor(name).numpy().tobytes())
    for record in (*history, *position["epochs"], position):
        del record["seconds"]
    digest.update(json.dumps([history, position]).encode())
    return digest.hexdigest()


def kills(kind: str, count: int, seed: int) -> dict[str, object]:
    """Kill, resume, compare."""
    moments, stages = random.Random(seed), Counter[str]()
    compared, equal, left = 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        began = time.perf_counter()
        run(kind, root / "timed")
        seconds = time.perf_counter() - began
        done = 0
        while done < count:
            directory, whole = root / f"killed-{done}", root / f"whole-{done}"
            if not run(kind, directory, kill_after=moments.uniform(0, seconds)):
                run(kind, root / "timed")
                continue
            done += 1
            if not (directory / KEY).exists():
                stages["before the secret or after the model"] += 1
                run(kind, directory)  # no step was taken, or all were: nothing to compare with
                continue
            secret = (directory / KEY).read_bytes()
            began_with = (directory / CHECKPOINT).exists()
            stages["after a checkpoint" if began_with else "before the first checkpoint"] += 1
            run(kind, directory)
            run(kind, whole, secret)
            compared += 1
            equal += outcome(directory) == outcome(whole)
            left += (directory / KEY).exists() + (whole / KEY).exists()
    return {
        "kills": count,
        "compared": compared,
        "equal": equal,
        "secrets_left": left,
        "stages": dict(stages),
    }


def leak(seeds: list[int]) -> None:
    """Let the noise of one training after the other come from its seed: the control."""
    generators = (torch.Generator().manual_seed(seed) for seed in seeds)
    current: list[torch.Generator] = []

    def fill(self: GaussianNoise, tensors: Any, *, step: int, deviation: float) -> None:
        if step == 0:
            current[:] = [next(generators)]
        for tensor in tensors:
            tensor.normal_(0.0, deviation, generator=current[0])

    GaussianNoise.fill = fill  # type: ignore[method-assign]


def main() -> None:
    """Correlate, kill, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainings", type=int, default=20)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--control", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    disable_progress_bar()
    result: dict[str, Any] = {"benchmark": "private_randomness"}
    fine, lowest = True, []
    n = arguments.trainings
    if arguments.control:
        arguments.kills = 0
        leak([seed for _ in KINDS for seed in (*[0] * n, *range(n))])
    for kind in KINDS:
        found: dict[str, Any] = {}
        if n:
            found["one seed"] = correlations(kind, [0] * n, arguments.seed)
            found["own seeds"] = correlations(kind, list(range(n)), arguments.seed)
        for name, asked in found.items():
            for question, answer in asked.items():
                print(f"{kind}, {name}, {question}: {answer}", file=sys.stderr, flush=True)
                lowest.append(answer["p"])
        if arguments.kills:
            found["kills"] = kills(kind, arguments.kills, arguments.seed)
            print(f"{kind}: {found['kills']}", file=sys.stderr, flush=True)
            fine &= found["kills"]["equal"] == found["kills"]["compared"]
            fine &= found["kills"]["secrets_left"] == 0
        result[kind] = found
    if lowest:
        fine &= min(lowest) > 0.05 / len(lowest)
    result |= {"questions": len(lowest), "lowest_p": min(lowest, default=None), "fine": fine}
    print(json.dumps(result))
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
