"""Ranks of secrets that one already has, by what an update made of them.

A secret's gain is the logarithm of how much likelier the update made it. Its rank among texts of
the same shape says how many the update promoted at least as much: what the model knew before,
of areas, names or usual codes, is no part of it.

Differs from the differential score of a phrase (`attacks.update.differential_rank`): that sums
differences of probabilities, token by token, which are next to nothing where a token was unlikely
before and after; and it ranks among all sequences of so many tokens, most of which are no secret.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vestige.attacks.exposure.secret_exposure import Progress, secret_exposure
from vestige.attacks.exposure.secret_result import SecretExposure
from vestige.data.secret_shapes import Secret
from vestige.models.checkpoints import check_compatible
from vestige.models.protocols import NextToken


@dataclass(frozen=True, kw_only=True)
class SecretRank(SecretExposure):
    """Ranks of secrets among texts of the same shape, by what an update made of them.

    The attributes are those of `SecretExposure`; a log-perplexity is that after the update less
    that before it.
    """

    @property
    def exact(self) -> int:
        """How many ranks were counted in the whole space."""
        return sum(one.whole for one in self.secrets)

    @property
    def sentence(self) -> str:
        """The number, what it means, and what it does not mean."""
        number = len(self.secrets)
        every = "the secret" if number == 1 else f"{number} secrets"
        ranks = f"Ranks counted in the whole space: {self.exact} of {number}."
        if self.found:
            return (
                f"{self.found} of {every} found: promoted by the update more than texts of the "
                f"same shape, but for a chance of {self.level:g} that any of this is one."
                f"{self.of_pieces} {ranks}"
            )
        if not self.possible:
            need = int(number / self.level)
            return (
                f"None of {every} found, and not all could have been: it takes {need:,} "
                f"alternatives of each: more `samples`, a larger space, or fewer secrets. {ranks}"
            )
        return (
            f"None of {every} found.{self.of_pieces} It does not follow that the update never read "
            f"them: what was said once or twice is seldom told from what was not. {ranks}"
        )

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
    secrets: Sequence[Secret],
    *,
    seed: int,
    samples: int = 2**14,
    level: float = 0.05,
    progress: Progress | None = None,
) -> SecretRank:
    """Rank secrets by what an update made of them.

    Args:
        before: the model before the update.
        after: the model after it.
        secrets: at least one; each is read from the beginning of a text.
        seed: draws the texts to compare with.
        samples: of them at most; a space of no more is taken whole, and the rank exact.
        level: chance of a false alarm among all secrets together.
        progress: told (secrets done, all).

    Raises:
        ValueError: an argument is out of range.
        IncompatibleModels: the vocabularies differ.
        DataError: a secret has words that the vocabulary lacks, or is too long for a model.
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
    return SecretRank(
        secrets=found.secrets, adjusted=found.adjusted, level=found.level, seed=found.seed
    )
