"""Privacy ledger: the trainings that made a model, and the guarantee of each.

A model that goes on from another one has read the other's text as well, so that a guarantee holds
for a record only together with every earlier training that read it. The ledger is the list of
these trainings, oldest first; it stands in `privacy.json` beside the weights.

It is released with the weights, and so holds no hash of a record, nor of a text: whoever knows all
records but one could compute the hash for every candidate and compare. What was read stands in the
directory of the training, which is not released (`data/read_records.py`). The ids are random.

A ledger is what the folder says of itself: nothing proves that it is true, or whole.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, Final

from vestige import _validate
from vestige.data.files import parse_object
from vestige.defences.accounting import Accountant, Unit, check_mechanism
from vestige.defences.composition import Mechanism
from vestige.defences.noise_schedule import check_decay, falling
from vestige.defences.registry import DEFENCES, NoDefence
from vestige.errors import ModelError

FORMAT = "vestige-privacy-1"
UNKNOWN: Final = "unknown"
"""What stands for unknown reading, or an unknown text of the vocabulary."""

_ID = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One training in the ancestry of a model.

    Attributes:
        id: random, 32 hexadecimal digits.
        defence: by name; "none", or "unknown" for whatever a model from elsewhere has read.
        vocabulary: id of the training of whose text the vocabulary was made, or "unknown".
        unit: what is protected; None, like all that follows, where there is no guarantee to state.
        sequence_length: tokens of a sequence at most: of a longer document, each piece is a unit.
        noise_multiplier: sigma, over the clipping norm; where it falls, that of the first stage.
        sample_rate: q of the Poisson sampling.
        steps_planned: what epsilon is of.
        steps: that were taken; None before the end.
        bands: steps over which noise is correlated: one step in so many is a unit's turn, and
            sample rate and steps are those of its turns.
        max_grad_norm: the clipping norm, C.
        accountant: who counted.
        epsilon: at delta, of this training alone; None where it is infinite.
        delta: of this training.
        void: what voids the guarantee, in words; empty where nothing does.
        noise_decay: sigma of the last of 8 stages over that of the first (`noise_schedule`); 1: it
            is constant, and no ledger says so.

    Raises:
        ValueError: the numbers are those of no training.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {
        "strict": True,
        "extra": "forbid",
        "allow_inf_nan": False,
        "hide_input_in_errors": True,
    }

    id: str
    defence: str
    vocabulary: str = UNKNOWN
    unit: Unit | None = None
    sequence_length: int | None = None
    noise_multiplier: float | None = None
    sample_rate: float | None = None
    steps_planned: int | None = None
    steps: int | None = None
    bands: int = 1
    max_grad_norm: float | None = None
    accountant: Accountant | None = None
    epsilon: float | None = None
    delta: float | None = None
    void: tuple[str, ...] = ()
    noise_decay: float = 1.0

    def __post_init__(self) -> None:
        _validate.one_of((UNKNOWN, NoDefence.name, *DEFENCES.names()), defence=self.defence)
        if not (
            _ID.fullmatch(self.id) and _ID.fullmatch(self.vocabulary.replace(UNKNOWN, "0" * 32))
        ):
            raise ValueError(
                f"id and vocabulary must be 32 hexadecimal digits, got {self.id!r} and "
                f"{self.vocabulary!r}"
            )
        _validate.at_least(1, bands=self.bands)
        check_decay(self.noise_decay)
        if self.noise_decay < 1 and self.bands > 1:
            raise ValueError(f"noise_decay must be 1 with bands {self.bands}, got {self}")
        if self.unit is None:
            return
        needed = (
            self.noise_multiplier,
            self.sample_rate,
            self.steps_planned,
            self.delta,
            self.accountant,
        )
        if None in needed or self.sequence_length is None:
            raise ValueError(f"unit must come with all that the guarantee is of, got {self}")
        check_mechanism(*needed)  # type: ignore[arg-type]

    @property
    def mechanism(self) -> Mechanism | None:
        """What it promises by; None where it promises nothing."""
        if self.lacks is not None:
            return None
        assert self.noise_multiplier is not None
        assert self.sample_rate is not None
        assert self.steps_planned is not None
        return Mechanism(
            noise_multiplier=falling(self.noise_multiplier, self.noise_decay, self.steps_planned),
            sample_rate=self.sample_rate,
            steps=self.steps_planned,
        )

    @property
    def lacks(self) -> str | None:
        """Why it promises nothing to what it read; None where it promises something."""
        if self.defence == UNKNOWN:
            return "the training text of the model it started from is unknown"
        if self.unit is None:
            return f"{self.name} trained on them without a guarantee"
        if self.void:
            return f"the guarantee of {self.name} is void"
        return f"{self.name} trained on them without noise" if self.epsilon is None else None

    @property
    def name(self) -> str:
        """What it is called in a sentence."""
        if self.defence == UNKNOWN:
            return "the model it started from"
        kind = "undefended" if self.defence == "none" else self.defence
        return f"training {self.id[:8]} ({kind})"

    def ended(self, steps: int) -> "LedgerEntry":
        """The same after its last step, counted from 1."""
        return replace(self, steps=-(-steps // self.bands))


def to_json(ledger: Sequence[LedgerEntry]) -> str:
    """What stands in `privacy.json`."""
    trainings = [asdict(entry) for entry in ledger]
    for training in trainings:
        if training["noise_decay"] == 1:  # older versions refuse what they do not know
            del training["noise_decay"]
    return json.dumps({"format": FORMAT, "trainings": trainings}, indent=2) + "\n"


def from_json(content: bytes, *, where: object) -> tuple[LedgerEntry, ...]:
    """What `to_json` wrote.

    Args:
        content: of the file.
        where: the file, for the message.

    Raises:
        ModelError: it is no ledger.
    """
    from pydantic import TypeAdapter, ValidationError

    remedy = (
        "Restore it from the run of the model. Without it, the earlier training text is unknown, "
        "and the guarantee says so."
    )
    found = parse_object(content, where, error=ModelError, remedy=remedy)
    try:
        rows = found.get("trainings")
        if found.get("format") != FORMAT or not isinstance(rows, list):
            raise ValueError(f"it does not list trainings in the format {FORMAT}")
        adapter = TypeAdapter(LedgerEntry)
        return tuple(adapter.validate_json(json.dumps(row)) for row in rows)
    except (ValueError, ValidationError) as error:
        problem = " ".join(str(error).split("For further")[0].split())
        raise ModelError(f"{where} is not a privacy ledger: {problem}", remedy=remedy) from error
