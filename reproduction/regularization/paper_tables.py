"""Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
Language Models", arXiv:2103.07567: Figures 2 to 4 and Table 1, its numbers beside ours.

Differs from the paper: Reddit's college comments stand in for its Reddit and for Avocado, which is
licensed; every method has an undefended control in the same kind of batches and a dropout control,
every canary its words in another order, every number five seeds; exposure is read where the test
perplexities are equal, not near each other; the goldfish loss stands beside the paper's defences.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from reproduction.paper_numbers import paper_numbers
from reproduction.regularization.equal_utility import (
    Comparison,
    Method,
    Row,
    Scale,
    completion_rows,
    exposure_chart,
    exposure_rows,
    plan_of,
    subgroup_rows,
    training_rows,
)
from reproduction.regularization.user_texts import UserText
from reproduction.reproduction import Part, caption, run_paper
from vestige.defences.methods.private import DPSGD
from vestige.defences.methods.regularizers import Adversarial, Goldfish, Triplet
from vestige.models.recurrent_network import LSTMConfig
from vestige.training.config import TrainingConfig

PAPER_TABLE1 = paper_numbers("regularization", "table1", key=3)
PAPER_GAPS = paper_numbers("regularization", "figure3c", key=1)

_ADVERSARIAL = Adversarial(weight=20.0)
_TRIPLET = Triplet(weight=0.1)
_IN_BATCH = Triplet(weight=0.1, pairing="in-batch")
_GOLDFISH = Goldfish(k=4)
_NOISE = DPSGD(noise_multiplier=0.01, max_grad_norm=0.5)

METHODS = (
    Method(name="unmitigated", batching="users"),
    Method(name="unmitigated, mixed", batching="documents", control="unmitigated, mixed"),
    Method(
        name="unmitigated, SGD",
        batching="documents",
        optimizer="sgd",
        learning_rate=10.0,  # a sequence has about half of the 32 tokens that dp divides by
        control="unmitigated, SGD",
    ),
    Method(name="dropout 0.5", batching="users", dropout=0.5),
    Method(
        name="dp",
        batching="poisson",
        defence=_NOISE,
        optimizer="sgd",
        learning_rate=20.0,
        control="unmitigated, SGD",
    ),
    Method(name="adversarial", batching="users", defence=_ADVERSARIAL),
    Method(name="triplet", batching="users", defence=_TRIPLET),
    Method(
        name="triplet, in-batch",
        batching="documents",
        defence=_IN_BATCH,
        control="unmitigated, mixed",
    ),
    Method(name="goldfish", batching="users", defence=_GOLDFISH),
)

_REDDIT = UserText(dataset="reddit", users=100, fewest=40, most=250, longest=30)
_LSTM = LSTMConfig(layers=2, embedding_size=128, hidden_size=128)
_TRAINING = TrainingConfig(
    seed=0,
    epochs=30,
    batch_size=20,
    sequence_length=32,
    learning_rate=2e-3,
    max_grad_norm=1.0,
    precision="float32",
    evaluate_every=80,
    checkpoint_every=300,
)
SMALL = Scale(
    text=_REDDIT,
    shape=_LSTM,
    training=_TRAINING,
    methods=METHODS,
    levels=(320.0, 260.0),
    seeds=(0, 1, 2, 3, 4),
)
FULL = replace(
    SMALL,
    text=replace(_REDDIT, users=4000, fewest=20, most=2500, vocabulary_size=40_000),
    shape=LSTMConfig(layers=2, embedding_size=550, hidden_size=550),
    training=replace(_TRAINING, batch_size=100, learning_rate=1e-3, precision="auto"),
    levels=(150.0, 110.0),
)
SMOKE = Scale(
    text=UserText(
        dataset="grammar",
        users=10,
        fewest=5,
        most=60,
        held_out=0.3,
        vocabulary_size=260,
        repetitions=(1, 4),
        controls=20,
    ),
    shape=LSTMConfig(layers=1, embedding_size=16, hidden_size=16),
    training=replace(
        _TRAINING,
        epochs=3,
        batch_size=10,
        sequence_length=12,
        evaluate_every=5,
        learning_rate=5e-3,
    ),
    methods=METHODS,
    levels=(240.0, 200.0),
    seeds=(0, 1),
)


FILLS: dict[str, Callable[[Comparison], Iterator[Row]]] = {
    "figure2": exposure_rows,
    "figure3ab": completion_rows,
    "figure3c": partial(subgroup_rows, paper=PAPER_GAPS),
    "table1": partial(training_rows, paper=PAPER_TABLE1),
}


def parts_of(scale: Scale) -> dict[str, Part]:
    """The figures and the table of the paper at one scale, by name."""
    values = {
        "users": scale.text.users,
        "dataset": scale.text.dataset,
        "repetitions": ", ".join(map(str, scale.text.repetitions)),
        "seeds": ", ".join(map(str, scale.seeds)),
    }
    return {
        name: Part(
            **caption("regularization", name, **values),
            folder="trainings",
            settings=scale,
            plan=partial(plan_of, scale, fill=fill),
            draw=exposure_chart if name == "figure2" else None,
        )
        for name, fill in FILLS.items()
    }


run = partial(run_paper, parts_of)
"""Fill these tables at a scale; see `reproduction.run_paper`."""
