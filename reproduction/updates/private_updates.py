"""RQ5: an all-low canary in updates with differential privacy.

Zanella-Béguelin et al. (2020), section 4: Penn Treebank and Penn Treebank with 50 copies of the
all-low canary, each learnt with sequence-level DP-SGD at epsilon 5 and 111.

Differs from the paper: the canaries of the other patterns are planted as well, as in Table 1, whose
undefended pair is this table's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from reproduction.papers import Plan, Row, paper_numbers, table
from reproduction.updates.canary_tables import CanaryCopies, planted_text
from reproduction.updates.exposures import exposures
from reproduction.updates.settings import Material, Snapshot, prepare
from vestige.data.canaries.texts import Canary
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.defences.methods.private import DPSGD
from vestige.privacy.accounting import Mechanism, noise_for
from vestige.training.config import TrainingConfig
from vestige.training.sequences import SequenceBatches, Sequences

PATTERN = "all-low"


@dataclass(frozen=True, kw_only=True)
class PrivateUpdate:
    """The canaries of Table 1 in one updated model, and updates that are private to degrees.

    Attributes:
        trial: its snapshots before the update and with `copies` are the undefended pair.
        private: how the private pairs learn, with Poisson sampling; its seed is not used.
        epsilons: of each private training.
        delta: likewise.
        max_grad_norm: what a sequence's gradient is clipped to.
        copies: of each canary; one of the undefended models'.
    """

    trial: CanaryCopies
    private: TrainingConfig
    epsilons: tuple[float, ...] = (5.0, 111.0)
    delta: float = 1e-5
    max_grad_norm: float = 0.25
    copies: int = 50


@table("updates", "rq5", folder="table1")
def private_plan(update: PrivateUpdate, directory: Path, data: Path | None) -> Plan:
    """A row for each epsilon; None (undefended) first."""
    paper = paper_numbers("updates", "rq5", key=1)
    copies, material = update.copies, prepare(update.trial.setting, directory, data)
    text, canaries = planted_text(update.trial, material, copies, seed=copies)
    before = material.snapshot("copies-0", material.original, seed=0)
    after = material.snapshot(f"copies-{copies}", text, seed=100 + copies)
    pairs: dict[float | None, tuple[Snapshot, Snapshot]] = {None: (before, after)}
    spent: dict[float | None, Row] = {None: {}}
    for epsilon in update.epsilons:
        first, _ = _private(update, material, before, epsilon)
        second, mechanism = _private(update, material, after, epsilon)
        pairs[epsilon] = first, second
        spent[epsilon] = {
            "epsilon": mechanism.epsilon(update.delta),
            "delta": update.delta,
            "noise_multiplier": mechanism.noise_multiplier,
            "steps": mechanism.steps,
        }

    def rows() -> Iterator[Row]:
        for epsilon, pair in pairs.items():
            known = paper.get((epsilon,), {})
            yield {
                "defence": "none" if epsilon is None else "dp-sgd",
                "asked_epsilon": epsilon,
                **spent[epsilon],
                **_exposed(material, *pair, canaries, update.trial.budget),
                **{f"paper_{name}": value for name, value in known.items()},
            }

    return Plan(trials=[one for pair in pairs.values() for one in pair], rows=rows)


def batches_of(update: PrivateUpdate, material: Material, text: Corpus) -> SequenceBatches:
    """How the private training of a text samples its sequences."""
    config = DPSGD(noise_multiplier=1.0).suited(update.private)
    encoded = encode(text, material.vocabulary)
    sequences = Sequences.of(encoded, length=config.sequence_length)
    draw: Any = config.batching
    return SequenceBatches(sequences, config.batch_size, draw, 0, torch.device("cpu"))


def _private(
    update: PrivateUpdate, material: Material, plain: Snapshot, epsilon: float
) -> tuple[Snapshot, Mechanism]:
    """The private training of the text that a snapshot learns plainly, and what it spends."""
    batches, epochs = batches_of(update, material, plain.corpus), update.private.epochs
    noise = noise_for(
        epsilon=epsilon,
        delta=update.delta,
        sample_rate=batches.sample_rate,
        steps=epochs * len(batches),
    )
    private = replace(
        plain,
        directory=plain.directory.with_name(f"private-{epsilon:g}-{plain.directory.name}"),
        config=replace(update.private, seed=plain.config.seed),
        defence=DPSGD(noise_multiplier=noise, max_grad_norm=update.max_grad_norm),
    )
    return private, Mechanism(
        noise_multiplier=noise, sample_rate=batches.sample_rate, steps=epochs * len(batches)
    )


def _exposed(
    material: Material,
    before: Snapshot,
    after: Snapshot,
    canaries: Sequence[Canary],
    budget: int,
) -> Row:
    found = exposures(before.model(), after.model(), canaries, budget=budget)
    row = next(one for one in found if one["pattern"] == PATTERN)
    learnt = material.learnt(before, after)
    shown = (
        *("copies", "phrase", "score", "control_score", "beam_rank", "in_beam"),
        *("prefix_rank_lower", "prefix_rank_upper", "rank_lower", "rank_upper"),
    )
    return {
        **{name: learnt[f"{name}_after"] for name in ("accuracy", "perplexity", "epoch")},
        **{name: row[name] for name in shown},
    }
