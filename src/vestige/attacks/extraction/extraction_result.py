"""Extracted secrets, their accuracy, and the ranks of the true ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log2
from statistics import fmean, median

from vestige.attacks.extraction.accuracy import (
    Known,
    TargetRank,
    baseline_accuracy,
    baseline_hamming,
    hamming_per_token,
)
from vestige.metrics.estimates import Estimate, bounded_mean, columns
from vestige.metrics.rates import rate
from vestige.metrics.tests import rank_sum
from vestige.results import Measurement


@dataclass(frozen=True, kw_only=True)
class ExtractedSecret:
    """One trial.

    Attributes:
        pattern: the utterance with an underscore for each unknown word.
        intent: its intent.
        guesses: the secrets of least loss, best first.
        losses: theirs, in nats.
        certainty: share of the best one in the summed exp(-loss) of all secrets that were tried.
        truth: the true secret, or None where it is not known.
        truth_loss: nats; None likewise.
        rank: of the truth among all secrets; None where it is not known or was not asked for.
        tried: different secrets that the search tried.
    """

    pattern: str
    intent: str
    guesses: tuple[tuple[str, ...], ...]
    losses: tuple[float, ...]
    certainty: float
    truth: tuple[str, ...] | None = None
    truth_loss: float | None = None
    rank: TargetRank | None = None
    tried: int | None = None

    @property
    def right(self) -> bool | None:
        """Correctness of the best guess, every word of it; None without a truth."""
        return None if self.truth is None else self.guesses[0] == self.truth

    @property
    def hamming(self) -> float | None:
        """The best guess's share of wrong words; None likewise."""
        return None if self.truth is None else hamming_per_token(self.guesses[0], self.truth)

    def row(self) -> dict[str, object]:
        """A plain dict; secrets are texts with blanks between the words."""
        rank = self.rank
        return {
            "pattern": self.pattern,
            "intent": self.intent,
            "guess": " ".join(self.guesses[0]),
            "loss": self.losses[0],
            "certainty": self.certainty,
            "guesses": [" ".join(guess) for guess in self.guesses],
            "losses": list(self.losses),
            "truth": self.truth and " ".join(self.truth),
            "truth_loss": self.truth_loss,
            "right": self.right,
            "hamming": self.hamming,
            "rank": rank and rank.rank,
            "rank_low": rank and rank.low,
            "rank_high": rank and rank.high,
            "rank_known": rank and rank.known,
            "compared_with": rank and rank.others,
            "tried": self.tried,
            "exposure": rank and rank.exposure,
            "exposure_low": rank and rank.exposure_low,
            "exposure_high": rank and rank.exposure_high,
        }


@dataclass(frozen=True, kw_only=True)
class Extraction(Measurement):
    """Secrets that an attack extracted, one a trial.

    Attributes:
        secrets: one a trial, in the order given.
        attack: the name of the attack that was asked for.
        search: the name of the one that was carried out, which "auto" chose.
        objective: what was minimised.
        sizes: candidates of each unknown word.
        whole: whether every secret was tried, so that certainties are shares of all of them.
        evaluated: losses of secrets computed for each trial.
        gradients: gradients of an utterance's loss computed for each trial.
        seconds: that the search took, for all trials together; ranks are not counted.
        seed: decided what was left to chance.
    """

    secrets: tuple[ExtractedSecret, ...]
    attack: str
    search: str
    objective: str
    sizes: tuple[int, ...]
    whole: bool
    evaluated: int
    gradients: int
    seconds: float
    seed: int

    @property
    def accuracy(self) -> Estimate | None:
        """The share of trials whose every word is right; None without truths."""
        return rate(secret.right for secret in self.secrets if secret.right is not None)

    @property
    def hamming(self) -> Estimate | None:
        """The mean Hamming distance per token; None without truths."""
        return bounded_mean([one.hamming for one in self.secrets if one.hamming is not None])

    @property
    def ranks(self) -> tuple[TargetRank, ...]:
        """The truths' ranks, those that are known."""
        return tuple(secret.rank for secret in self.secrets if secret.rank is not None)

    @property
    def exposure(self) -> Estimate | None:
        """The mean exposure in bits; the interval of one trial is its own."""
        if len(self.ranks) == 1:
            [rank] = self.ranks
            return Estimate("exposure", rank.exposure, rank.exposure_low, rank.exposure_high, n=1)
        ceiling = max((log2(rank.space) for rank in self.ranks), default=1.0)
        return bounded_mean([rank.exposure for rank in self.ranks], ceiling=ceiling)

    def summary(self) -> dict[str, object]:
        """One row of a results table; what needs truths is None without them."""
        right, ranks = self.accuracy, self.ranks
        chance = rank_sum([r.rank for r in ranks], [r.space for r in ranks]) if ranks else 1
        return {
            "attack": self.attack,
            "search": self.search,
            "objective": self.objective,
            "trials": len(self.secrets),
            "length": len(self.sizes),
            "space_bits": sum(log2(size) for size in self.sizes),
            "right": right and right.count,
            **columns("accuracy", right),
            "accuracy_by_chance": baseline_accuracy(self.sizes),
            **columns("hamming", self.hamming),
            "hamming_by_chance": baseline_hamming(self.sizes),
            "ranked": len(ranks),
            "ranks_exact": all(rank.exact for rank in ranks) if ranks else None,
            "ranks_bounded": sum(rank.bounded for rank in ranks),
            "median_rank": median(rank.rank for rank in ranks) if ranks else None,
            "median_rank_known": median_known(ranks),
            **columns("exposure", self.exposure),
            "chance_probability": chance if ranks else None,
            "certainty": fmean(secret.certainty for secret in self.secrets),
            "certainty_among": "all" if self.whole else "tried",
            "seconds": self.seconds,
            "seconds_per_trial": self.seconds / len(self.secrets),
            "losses_per_trial": self.evaluated,
            "gradients_per_trial": self.gradients,
            "seed": self.seed,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a trial; `pandas.DataFrame(result.rows())` is the frame."""
        for number, secret in enumerate(self.secrets, 1):
            yield {"trial": number, **secret.row()}


def median_known(ranks: Sequence[TargetRank]) -> Known | None:
    """Accuracy of a median rank: "bounded" where it may be lower; None without ranks.

    A bounded rank counts with its upper end, so that the median is an upper end as well, unless
    all bounded ones stand before it whatever they are.
    """
    if not ranks:
        return None
    ordered = sorted(ranks, key=lambda one: one.rank)
    first = ordered[(len(ordered) - 1) // 2]
    if any(one.bounded and one.rank >= first.rank for one in ordered):
        return "bounded"
    middle = {first.known, ordered[len(ordered) // 2].known}
    return "sampled" if "sampled" in middle else "exact"
