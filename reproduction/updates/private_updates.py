"""RQ5: an all-low canary in updates with differential privacy.

Zanella-Béguelin et al. (2020), section 4: Penn Treebank and Penn Treebank with 50 copies of the
all-low canary, each learnt with sequence-level DP-SGD at epsilon 5 and 111.

Differs from the paper: the canaries of the other patterns are planted as well, as in Table 1, whose
undefended pair is this table's.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from reproduction.papers import Row, paper_numbers, table
from reproduction.stages import Call, Work
from reproduction.updates.canary_tables import pair_of
from reproduction.updates.exposures import exposures
from reproduction.updates.snapshots import Planting, models_of, prepare, train
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import Vocabulary
from vestige.defences.methods.private import DPSGD
from vestige.privacy.accounting import Mechanism, noise_for
from vestige.training.config import TrainingConfig
from vestige.training.sequences import SequenceBatches, Sequences

PATTERN = "all-low"
SHOWN = (
    *("copies", "phrase", "score", "control_score", "beam_rank", "in_beam"),
    *("prefix_rank_lower", "prefix_rank_upper", "rank_lower", "rank_upper"),
)


@table("updates", "rq5")
def rq5(
    work: Work,
    planting: Planting,
    private: TrainingConfig,
    budget: int = 20_000,
    epsilons: tuple[float, ...] = (5.0, 111.0),
    delta: float = 1e-5,
    max_grad_norm: float = 0.25,
    copies: int = 50,
) -> Iterator[Row]:
    """RQ5: a row for each epsilon; None (undefended) first.

    `private` is how the private pairs learn, with Poisson sampling; its seed is not used. Epsilon
    and delta are of each private training by itself.
    """
    paper = paper_numbers("updates", "rq5", key=1)
    material = prepare(planting.setting, work)
    _, canaries = material.with_copies(planting, copies, seed=copies)
    undefended = pair_of(planting, material, copies)
    pairs: dict[float | None, list[Call]] = {None: undefended}
    spent: dict[float | None, Row] = {None: {}}
    for epsilon in epsilons:
        trainings = [
            private_training(plain, private, epsilon, delta, max_grad_norm) for plain in undefended
        ]
        pairs[epsilon] = [call for call, _ in trainings]
        mechanism = trainings[1][1]
        spent[epsilon] = {
            "epsilon": mechanism.epsilon(delta),
            "delta": delta,
            "noise_multiplier": mechanism.noise_multiplier,
            "steps": mechanism.steps,
        }
    work.all(call for pair in pairs.values() for call in pair)
    for asked, pair in pairs.items():
        before, after = work.all(pair)
        found = exposures(*models_of([before, after]), canaries, budget=budget)
        row = next(one for one in found if one["pattern"] == PATTERN)
        known = paper.get((asked,), {})
        yield {
            "defence": "none" if asked is None else "dp-sgd",
            "asked_epsilon": asked,
            **spent[asked],
            **{name: after.value[name] for name in ("accuracy", "perplexity", "epoch")},
            **{name: row[name] for name in SHOWN},
            **{f"paper_{name}": value for name, value in known.items()},
        }


def private_training(
    plain: Call, private: TrainingConfig, epsilon: float, delta: float, max_grad_norm: float
) -> tuple[Call, Mechanism]:
    """The private training of the text that a snapshot learns plainly, and what it spends."""
    given = plain.arguments
    batches = batches_of(private, given["corpus"], given["vocabulary"])
    sampling: Any = {
        "sample_rate": batches.sample_rate,
        "steps": private.epochs * len(batches),
    }
    noise = noise_for(epsilon=epsilon, delta=delta, **sampling)
    config = replace(private, seed=given["config"].seed)
    defence = DPSGD(noise_multiplier=noise, max_grad_norm=max_grad_norm)
    call = train(**{**given, "config": config, "defence": defence})
    return call, Mechanism(noise_multiplier=noise, **sampling)


def batches_of(private: TrainingConfig, text: Corpus, vocabulary: Vocabulary) -> SequenceBatches:
    """How the private training of a text samples its sequences."""
    config = DPSGD(noise_multiplier=1.0).suited(private)
    sequences = Sequences.of(encode(text, vocabulary), length=config.sequence_length)
    draw: Any = config.batching
    return SequenceBatches(sequences, config.batch_size, draw, 0, torch.device("cpu"))
