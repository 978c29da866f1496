"""RQ5: does differential privacy keep the update from giving a canary away?

Zanella-Béguelin et al. (2020), section 4: Penn Treebank and Penn Treebank with 50 copies of the
all-low canary, each learnt with sequence-level DP-SGD at epsilon 5 and 111.

Differs from the paper: the canaries of the other patterns are planted as well, as in Table 1, whose
undefended pair is this table's.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vestige.data.canary import Canary
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.defences.accounting import noise_for
from vestige.defences.composition import Mechanism
from vestige.defences.methods.dp_sgd import DPSGD
from vestige.experiments.settings import Material, Plan, chosen_canaries, prepare
from vestige.experiments.snapshots import Training
from vestige.experiments.updates.canary_tables import Trial
from vestige.experiments.updates.exposures import exposures
from vestige.training.config import TrainingConfig
from vestige.training.sequences import SequenceBatches, Sequences

Row = dict[str, Any]
PATTERN = "all-low"


@dataclass(frozen=True, kw_only=True)
class PrivateUpdate:
    """The canaries of a trial in one updated model, and updates that are private to degrees.

    Attributes:
        trial: its snapshots before the update and with `copies` are the undefended pair.
        private: how the private pairs learn, by lot; its seed is not used.
        epsilons: of each private training.
        delta: likewise.
        max_grad_norm: what a sequence's gradient is clipped to.
        copies: of each canary; one of the trial's.
    """

    trial: Trial
    private: TrainingConfig
    epsilons: tuple[float, ...] = (5.0, 111.0)
    delta: float = 1e-5
    max_grad_norm: float = 0.25
    copies: int = 50


@dataclass(frozen=True)
class _Budget:
    """What one private training may do, and what it spends."""

    mechanism: Mechanism
    delta: float

    def summary(self) -> Row:
        return {
            "epsilon": self.mechanism.epsilon(self.delta),
            "delta": self.delta,
            "noise_multiplier": self.mechanism.noise_multiplier,
            "steps": self.mechanism.steps,
        }


def private_plan(
    update: PrivateUpdate,
    directory: Path,
    data: Path | None,
    *,
    paper: Mapping[float | None, Mapping[str, float]],
) -> Plan:
    """A row for each degree of privacy, None (undefended) first.

    Args:
        update: what is learnt.
        directory: where the setting keeps its snapshots.
        data: the folder of corpora.
        paper: its accuracy, differential score and prefix rank by epsilon.
    """
    trial, copies = update.trial, update.copies
    material = prepare(trial.setting, directory, data)
    made = chosen_canaries(material, trial.phrases, trial.controls, copies=copies)
    text, canaries = material.planted(material.original, made, seed=copies)
    texts = {"copies-0": (material.original, 0), f"copies-{copies}": (text, 100 + copies)}
    trainings = [
        material.training(name, corpus, seed=seed) for name, (corpus, seed) in texts.items()
    ]
    budgets: dict[float, _Budget] = {}
    for epsilon in update.epsilons:
        for name, (corpus, seed) in texts.items():
            budgets[epsilon] = _budget(update, material, corpus, epsilon)
            noise = budgets[epsilon].mechanism.noise_multiplier
            trainings.append(_private(update, material, _name(name, epsilon), corpus, seed, noise))

    def rows() -> Iterator[Row]:
        for epsilon in (None, *update.epsilons):
            yield {
                "defence": "none" if epsilon is None else "dp-sgd",
                "asked_epsilon": epsilon,
                **(budgets[epsilon].summary() if epsilon is not None else {}),
                **_measured(update, material, canaries, epsilon),
                **{f"paper_{name}": value for name, value in paper.get(epsilon, {}).items()},
            }

    return Plan(trainings=tuple(trainings), rows=rows)


def _budget(update: PrivateUpdate, material: Material, text: Corpus, epsilon: float) -> _Budget:
    """The noise with which all steps of the training spend at most epsilon."""
    config = DPSGD(noise_multiplier=1.0).suited(update.private)
    encoded = encode(text, material.vocabulary)
    sequences = Sequences.of(encoded, length=config.sequence_length)
    draw: Any = config.batching
    lots = SequenceBatches(sequences, config.batch_size, draw, 0, torch.device("cpu"))
    noise = noise_for(
        epsilon=epsilon,
        delta=update.delta,
        sample_rate=lots.sample_rate,
        steps=config.epochs * len(lots),
    )
    mechanism = Mechanism.of(lots, noise_multiplier=noise, epochs=config.epochs)
    return _Budget(mechanism, update.delta)


def _private(
    update: PrivateUpdate, material: Material, name: str, text: Corpus, seed: int, noise: float
) -> Training:
    plain = material.training(name, text, seed=seed)
    defence = DPSGD(noise_multiplier=noise, max_grad_norm=update.max_grad_norm)
    return replace(plain, config=replace(update.private, seed=seed), defence=defence)


def _measured(
    update: PrivateUpdate, material: Material, canaries: Iterable[Canary], epsilon: float | None
) -> Row:
    before, after = (_name(f"copies-{k}", epsilon) for k in (0, update.copies))
    found = exposures(
        material.model(before), material.model(after), tuple(canaries), budget=update.trial.budget
    )
    row = next(one for one in found if one["pattern"] == PATTERN)
    learnt = material.learnt(before, after)
    return {
        **{name: learnt[f"{name}_after"] for name in ("accuracy", "perplexity", "epoch")},
        "copies": row["copies"],
        "phrase": row["phrase"],
        "score": row["score"],
        "control_score": row["control_score"],
        "beam_rank": row["beam_rank"],
        "in_beam": row["in_beam"],
        "prefix_rank_lower": row["prefix_rank_lower"],
        "prefix_rank_upper": row["prefix_rank_upper"],
        "rank_lower": row["rank_lower"],
        "rank_upper": row["rank_upper"],
    }


def _name(of: str, epsilon: float | None) -> str:
    return of if epsilon is None else f"private-{epsilon:g}-{of}"
