"""The rows of a private training by a `Trainer`, and their Poisson-sampled batches."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.defences.methods.private import DPSGD
from vestige.errors import DataError, TrainingError
from vestige.privacy.accounting import check_delta
from vestige.training.secret import Secret
from vestige.training.sequences import poisson_sample

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class PrivateRows:
    """The rows of a training set with their users, and Poisson-sampled batches.

    Attributes:
        number: number of rows.
        user_ids: int64 (rows,) user of each row, from 0; None if the unit is a row.
        users: names of the users; None if the unit is a row.
        expected_units: expected number of rows or users in a batch; 0 before `batched`.
    """

    number: int
    user_ids: Ids | None = None
    users: frozenset[str] | None = None
    expected_units: int = 0

    @classmethod
    def of(cls, data: Any, privacy: DPSGD, user_column: str | None) -> "PrivateRows":
        """The rows of a training set, before the trainer removes columns.

        Raises:
            ValueError: the unit is a user without a column, or a row with a column.
            DataError: the column is missing or contains None, or the data set has no length.
        """
        if data is None or not hasattr(data, "__len__"):
            raise DataError(
                "the training set has no length; a guarantee counts its rows",
                remedy="Pass a `datasets.Dataset`, not a stream.",
            )
        if (privacy.protected == "user") != (user_column is not None):
            raise ValueError(
                "`user_column` must be given with `DPSGD(unit='user')` and only with it, got "
                f"{user_column!r} with unit {privacy.protected!r}"
            )
        if user_column is None:
            return cls(len(data))
        columns = getattr(data, "column_names", None) or []
        if user_column not in columns:
            raise DataError(
                f"the training set has no column {user_column}; it has {', '.join(columns)}",
                remedy="Pass the column of users (`user_column`).",
            )
        values = list(data[user_column])
        if None in values:
            raise DataError(
                f"{user_column} is None in {values.count(None):,} rows of the training set, first "
                f"in row {values.index(None) + 1:,}; a guarantee for users needs every user",
                remedy=(
                    "Set the user of each row; for planted canaries, `plant(..., "
                    "user_column=...)` does."
                ),
            )
        users, user_ids = np.unique([str(user) for user in values], return_inverse=True)
        return cls(len(data), user_ids.astype(np.int64), frozenset(users.tolist()))

    def batched(self, prepared: Any, privacy: DPSGD, args: Any) -> "PrivateRows":
        """The same rows with the batch size of a trainer, which `prepared` them.

        Raises:
            TrainingError: the trainer changed the number of rows, so that users are unknown.
            ValueError: a batch has more units than the data set, or delta is out of range.
        """
        if len(prepared) != self.number:
            raise TrainingError(
                f"the trainer made {len(prepared):,} rows of {self.number:,}: a row can have "
                "several texts, or a text several rows",
                remedy="Switch packing off.",
            )
        expected = (
            args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        )
        if expected > self.units:
            raise ValueError(
                f"`per_device_train_batch_size` must be at most {self.units} in all (times "
                f"accumulation and processes), as many {privacy.protected}s as there are, got "
                f"{expected}"
            )
        if privacy.delta is not None:
            check_delta(privacy.delta, self.units)
        return replace(self, expected_units=expected)

    @property
    def units(self) -> int:
        """Number of rows or users."""
        return self.number if self.users is None else len(self.users)

    @property
    def sample_rate(self) -> float:
        """Probability that a unit is in a batch."""
        return self.expected_units / self.units

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which each unit is sampled once on average."""
        return math.ceil(self.units / self.expected_units)

    def batch(self, secret: Secret, step: int, process: int, processes: int) -> tuple[Ids, Ids]:
        """The batch of a process in a step: rows, and the unit of each row."""
        key, rate = secret.key("sampling"), self.sample_rate
        sampled = poisson_sample(key, step, units=self.units, sample_rate=rate)[process::processes]
        if self.user_ids is None:
            return sampled, sampled
        rows = np.flatnonzero(np.isin(self.user_ids, sampled))
        return rows, self.user_ids[rows]
