"""The trainings that are compared, and the undefended control of each."""

from dataclasses import dataclass
from typing import Literal

from vestige.defences.methods.private import DPSGD
from vestige.defences.methods.regularizers import Adversarial, Goldfish, Triplet
from vestige.defences.registry import Defence, NoDefence
from vestige.training.config import Batching

PLAIN = "unmitigated"


@dataclass(frozen=True, kw_only=True)
class Method:
    """A training that is compared, and the undefended `control` in batches of the same kind.

    Dropout is on what the layers and the head read. Optimizer and learning rate replace the
    training's: Adam moves what has no gradient as far as noise tells it to, however little that is.
    """

    name: str
    batching: Batching
    defence: Defence = NoDefence()  # noqa: RUF009 - it is frozen
    dropout: float = 0.0
    optimizer: Literal["adam", "sgd"] | None = None
    learning_rate: float | None = None
    control: str = PLAIN


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
