"""Ranks of secrets that were never planted, by what an update changed.

A secret's gain is the logarithm of how much more probable the update made it. Its rank among texts
of its format says how many of them gained at least as much: what the model knew before, of areas,
names or usual codes, does not count.

Differs from the differential score of a phrase (`attacks.update.differential_rank`): that sums
differences of probabilities, token by token, which are next to nothing where a token was improbable
before and after; and it ranks among all sequences of as many tokens, most of which are no secret.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from vestige.attacks.exposure.secret_exposure import Progress, secret_exposure
from vestige.attacks.exposure.secret_result import SecretExposure
from vestige.data.secret_lines import SecretList
from vestige.data.secret_shapes import Secret
from vestige.models.checkpoints import check_compatible
from vestige.models.protocols import NextToken


@dataclass(frozen=True, kw_only=True)
class SecretRank(SecretExposure):
    """Ranks of secrets among texts of their format, by the gains of an update.

    The attributes are those of `SecretExposure`; a log-perplexity is that after the update less
    that before it.
    """

    verb: ClassVar[str] = "exposure --before"
    known: ClassVar[str] = "promoted more than its alternatives"
    finding: ClassVar[str] = "The update reveals"

    @property
    def exact(self) -> int:
        """How many ranks were counted in the whole space."""
        return sum(one.whole for one in self.secrets)

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        return {**super().summary(), "exact": self.exact}

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a secret; ranks in its whole space as log2, 0 the first."""
        for row, one in zip(super().rows(), self.secrets, strict=True):
            del row["log_perplexity"]
            ends = {"": one.exposure, "_low": one.high, "_high": one.low}
            bits = {end: max(one.space_bits - exposure, 0.0) for end, exposure in ends.items()}
            yield {
                **row,
                "gain": -one.log_perplexity,
                **{f"log2_space_rank{end}": value for end, value in bits.items()},
            }


def secret_rank(
    before: NextToken,
    after: NextToken,
    secrets: Sequence[Secret] | SecretList,
    *,
    seed: int,
    samples: int = 2**14,
    level: float = 0.05,
    progress: Progress | None = None,
) -> SecretRank:
    """Rank secrets by what an update changed.

    Args:
        before: the model before the update.
        after: the model after it.
        secrets: at least one; each is read from the beginning of a text.
        seed: draws the texts to compare with.
        samples: of them at most; a space of no more is enumerated, and the rank exact.
        level: probability of a false leak among all secrets together.
        progress: told (secrets done, all).

    Raises:
        ValueError: an argument is out of range.
        IncompatibleModels: the vocabularies differ.
        DataError: the models can read no secret.
        ModelError: their scores are not finite.
    """
    check_compatible(before, after)
    found = secret_exposure(
        after,
        secrets,
        before=before,
        seed=seed,
        references=samples,
        level=level,
        progress=progress,
    )
    return SecretRank(**{one.name: getattr(found, one.name) for one in fields(found)})
