"""Are shadow models from a cluster those of this machine, and is a second node worth it?

Trains some small shadow models four times: here, one after the other; on a Ray cluster of one
node; of two nodes on this machine, which share no folder as far as the trainings know; and of two
nodes again, where one worker is sent SIGKILL in the middle of a training. Every shadow is compared
with the local one byte for byte, scores included. Workers have their libraries loaded before the
clock starts. The efficiency is t1 / (2 t2), with t1 the seconds on one node and t2 those on two:
1 where a second node halves the time, at least two idle cores given.

    python benchmarks/shadows.py [--shadows 10] [--epochs 6]

The last line is JSON; the exit status is 1 where a byte differs. Without Ray it says so and stops.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

os.environ |= {
    "OMP_NUM_THREADS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # in this spelling; a node's agents do not go before its workers
}

import numpy as np

from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models.recurrent_network import LSTMConfig
from vestige.parallel import map_cluster
from vestige.training import checkpoint
from vestige.training.config import TrainingConfig
from vestige.training.shadow_jobs import ShadowJob, ShadowPlan, shadow_jobs
from vestige.training.shadows import (
    Shadow,
    keep_shadow,
    train_shadow,
    train_shadow_away,
    train_shadows,
)

WORDS, USERS, DOCUMENTS, LENGTH = 500, 60, 20, 12
SHAPE = LSTMConfig(layers=1, embedding_size=64, hidden_size=64, dropout_out=0.2)
STORE = 100 * 2**20  # bytes of shared memory of a node

Train = Callable[[ShadowJob], dict[str, bytes]]


def reference() -> Corpus:
    """Random documents of users who each like some words."""
    rng = np.random.default_rng(0)
    texts, users = [], []
    for user in range(USERS):
        liked = rng.choice(np.arange(2, WORDS), 40, replace=False)
        for _ in range(DOCUMENTS):
            texts.append(" ".join(f"w{word}" for word in rng.choice(liked, LENGTH)))
            users.append(f"user {user}")
    return Corpus.from_texts(texts, users=users)


def jobs_in(folder: Path, *, shadows: int, epochs: int) -> list[ShadowJob]:
    """The same jobs, in a folder of their own."""
    training = TrainingConfig(
        seed=0,
        epochs=epochs,
        batch_size=16,
        batching="documents",
        learning_rate=0.01,
        precision="float32",
        checkpoint_every=50,
    )
    plan = ShadowPlan(seed=0, count=shadows, models=(SHAPE,), training=training)
    words = ("<unk>", "<eos>", *(f"w{i}" for i in range(2, WORDS)))
    return shadow_jobs(plan, reference(), WordVocabulary(words), folder)


def killed_once(job: ShadowJob, *, victim: str, mark: str) -> dict[str, bytes]:
    """Train a shadow; the worker that trains the victim first dies before its third checkpoint."""
    if job.digest == victim and not Path(mark).exists():
        saves = iter(range(3))

        def dying(*given: object, save: Callable[..., None] = checkpoint.save) -> None:
            if next(saves) == 2:
                Path(mark).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            save(*given)

        checkpoint.save = dying
    return train_shadow_away(job)


def on_cluster(jobs: list[ShadowJob], address: str, train: Train) -> tuple[list[Shadow], float]:
    """The shadows of a cluster, and the seconds that they took."""
    nodes = partial(map_cluster, address=address, receive=keep_shadow)
    began = time.perf_counter()
    return train_shadows(jobs, train=train, map_fn=nodes), time.perf_counter() - began


def contents(shadows: list[Shadow]) -> list[tuple[Shadow, bytes]]:
    """All that an audit sees of them, wherever they are kept."""
    place = Path()
    return [
        (
            replace(shadow, directory=place),
            (shadow.directory / "model" / "model.safetensors").read_bytes(),
        )
        for shadow in shadows
    ]


def main() -> None:
    """Train four times, compare, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shadows", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=6)
    arguments = parser.parse_args()
    try:
        import ray
        from ray.cluster_utils import Cluster
    except ImportError:
        print(json.dumps({"benchmark": "shadows", "skipped": "Ray is not installed"}))
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make = partial(jobs_in, shadows=arguments.shadows, epochs=arguments.epochs)
        warm = jobs_in(root / "warm", shadows=4, epochs=1)
        train_shadow(warm[0])
        began = time.perf_counter()
        here = contents(train_shadows(make(root / "here")))
        seconds = {"local": time.perf_counter() - began}

        node = {"num_cpus": 1, "object_store_memory": STORE}
        cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        try:
            ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
            list(map_cluster(train_shadow_away, warm[1:2], address=cluster.address))
            one, seconds["one_node"] = on_cluster(
                make(root / "one"), cluster.address, train_shadow_away
            )
            cluster.add_node(**node)
            cluster.wait_for_nodes()
            list(map_cluster(train_shadow_away, warm, address=cluster.address))
            two, seconds["two_nodes"] = on_cluster(
                make(root / "two"), cluster.address, train_shadow_away
            )
            jobs, mark = make(root / "killed"), root / "mark"
            victim = jobs[len(jobs) // 2].digest
            dying = partial(killed_once, victim=victim, mark=str(mark))
            killed, seconds["two_nodes_with_a_kill"] = on_cluster(jobs, cluster.address, dying)
        finally:
            ray.shutdown()
            cluster.shutdown()
        same = contents(one) == here and contents(two) == here
        same_after_a_kill = mark.exists() and contents(killed) == here
    result = {
        "benchmark": "shadows",
        "shadows": arguments.shadows,
        "same_bits": same,
        "same_bits_after_a_kill": same_after_a_kill,
        "efficiency": round(seconds["one_node"] / (2 * seconds["two_nodes"]), 2),
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
    }
    print(json.dumps(result))
    sys.exit(0 if same and same_after_a_kill else 1)


if __name__ == "__main__":
    main()
