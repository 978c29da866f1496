"""The compared trainings, and the undefended control of each."""

from dataclasses import dataclass
from typing import Literal

from vestige.defences.methods.private import DPSGD
from vestige.defences.methods.regularizers import Adversarial, Goldfish, Triplet
from vestige.defences.registry import Defence, NoDefence
from vestige.training.config import Batching

PLAIN = "unmitigated"


@dataclass(frozen=True, kw_only=True)
class Method:
    """A compared training, and its undefended `control` in batches of the same kind.

    Dropout is applied to the inputs of the layers and of the head. Optimizer and learning rate
    replace the training's: Adam would scale up the smallest noise on weights without a gradient.
    """

    name: str
    batching: Batching
    defence: Defence = NoDefence()  # noqa: RUF009 - it is frozen
    dropout: float = 0.0
    optimizer: Literal["adam", "sgd"] | None = None
    learning_rate: float | None = None
    control: str = PLAIN


METHODS = (
    Method(name=PLAIN, batching="users"),
    Method(name="unmitigated, mixed", batching="documents", control="unmitigated, mixed"),
    Method(
        name="unmitigated, SGD",
        batching="documents",
        optimizer="sgd",
        learning_rate=10.0,  # dp divides by 32 tokens, a sequence has about half as many
        control="unmitigated, SGD",
    ),
    Method(name="dropout 0.5", batching="users", dropout=0.5),
    Method(
        name="dp",
        batching="poisson",
        defence=DPSGD(noise_multiplier=0.01, max_grad_norm=0.5),
        optimizer="sgd",
        learning_rate=20.0,
        control="unmitigated, SGD",
    ),
    Method(name="adversarial", batching="users", defence=Adversarial(weight=20.0)),
    Method(name="triplet", batching="users", defence=Triplet(weight=0.1)),
    Method(
        name="triplet, in-batch",
        batching="documents",
        defence=Triplet(weight=0.1, pairing="in-batch"),
        control="unmitigated, mixed",
    ),
    Method(name="goldfish", batching="users", defence=Goldfish(k=4)),
)
