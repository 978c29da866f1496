r"""Sequential Monte Carlo estimate of a differential rank.

Where the bounds of `differential_rank` are far apart, a population of prefixes grows token by token
as in sequential Monte Carlo (Doucet and Johansen 2009, "A Tutorial on Particle Filtering and
Smoothing"), drawn towards those that the update promoted: a prefix x is kept, and gets its next
token t, in proportion to

.. math:: w(x) \, e^{\beta DS(x)} \sum_t e^{\beta g(t | x)}, \qquad e^{\beta g(t | x)}

with g a token's gain, over the tokens after which the phrase can still pass (a token gains at most
1). A share of the draws goes to the phrase's own beginning and to its own next token: what scores
higher is often like it, and its first tokens need not be promoted themselves. Each prefix stands
for w(x) others, so that w times the number of its last tokens that pass, summed over the
population, is the number of phrases without bias, whatever the proposal favours. All one-token
prefixes are in the first population; a phrase's last token is counted and not drawn.

A first run of each beta picks one; the estimate is the mean of `RUNS` others, independent of each
other, and the interval log-normal with Student's t over these. Where few of them carry the whole
mean (Kong 1992, (sum x)^2 / sum x^2), there is no estimate.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import floor, inf, log, log1p, sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp
from torch import Tensor

from vestige import _validate
from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.prefixes import Prefixes

RUNS = 16
"""Independent estimates whose mean is taken."""

LEAST_EFFECTIVE = 6.0
"""Runs that must carry the mean, or nothing is estimated."""

TILTS = (0.2, 0.6, 1.0, 1.6, 2.4)
"""Of beta, in units of log v: at 1 a token that gains 1 is drawn as often as all that gain none."""

OWN_PARENTS, OWN_TOKENS = 0.25, 0.5
"""Shares of the draws for the phrase's own beginning, and there for its own next token."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a rank is estimated.

    Attributes:
        seed: decides the samples.
        samples: prefixes of each length, in all runs together.
    """

    seed: int
    samples: int = 16384

    def __post_init__(self) -> None:
        _validate.at_least(RUNS, samples=self.samples)


@dataclass(frozen=True, kw_only=True)
class RankEstimate:
    """How many phrases score higher, from samples.

    Attributes:
        value: the estimate, or None where too few runs carry it.
        low: of its interval of 95 %, or None.
        high: likewise.
        samples: prefixes of each length that were drawn.
        hits: those whose phrases score higher, at the last length.
        effective: runs of equal weight that would say as much, at most `RUNS`.
        seen: phrases that score higher, among those that the samples begin: so many there are.
    """

    value: int | None
    low: int | None
    high: int | None
    samples: int
    hits: int
    effective: float
    seen: int


@torch.no_grad()
def sampled_rank(
    pair: ModelPair,
    tokens: tuple[int, ...],
    *,
    above: float,
    sampling: Sampling,
    known: Tensor | None = None,
) -> RankEstimate:
    """Estimate how many phrases as long as `tokens` score higher.

    Args:
        pair: the two snapshots, with the differential score.
        tokens: the phrase, of two tokens or more; it is not counted itself.
        above: what a phrase must score more than.
        sampling: how many prefixes are drawn, and by which seed.
        known: (k, n - 1) prefixes that `seen` leaves out, since they have been counted.

    Raises:
        ValueError: the phrase has fewer than two tokens.
    """
    _validate.at_least(2, tokens=len(tokens))
    search = _Search(
        pair=pair,
        own=torch.tensor(tokens, device=pair.device),
        above=above,
        size=sampling.samples // RUNS,
        counted={},
    )
    generator = torch.Generator().manual_seed(sampling.seed)
    betas = [tilt * log(pair.vocab_size) for tilt in TILTS]
    first = search.first()
    sums = search.log_sums(first, betas)
    pilots = [search.run(first, sums[:, i], beta, generator) for i, beta in enumerate(betas)]
    best = _best(pilots)
    runs = [search.run(first, sums[:, best], betas[best], generator) for _ in range(RUNS)]
    left_out = set() if known is None else {tuple(row) for row in known.tolist()}
    seen = sum(n for prefix, n in search.counted.items() if prefix not in left_out)
    return _estimate(runs, seen)


@dataclass(frozen=True)
class _Population:
    """Prefixes of one length, each of which stands for others.

    Attributes:
        tokens: (k, t).
        score: (k,) theirs.
        log_weight: (k,) logarithm of how many prefixes each stands for.
        prefixes: the same, for both models to read.
    """

    tokens: Tensor
    score: Tensor
    log_weight: Tensor
    prefixes: Prefixes


@dataclass(frozen=True)
class _Drawn:
    """(k,) next tokens, what each gains, and the logarithm of its chance to be drawn."""

    token: Tensor
    gain: Tensor
    log_chance: Tensor


@dataclass(frozen=True, kw_only=True)
class _Search:
    """The phrase, and the steps of a run.

    Attributes:
        own: (n,) the phrase.
        above: what others must score more than.
        size: of a population.
        counted: of each prefix that was reached, how many of its phrases pass.
    """

    pair: ModelPair
    own: Tensor
    above: float
    size: int
    counted: dict[tuple[int, ...], int]

    def first(self) -> _Population:
        """Every token, each standing for itself."""
        every = torch.arange(self.pair.vocab_size, device=self.pair.device)
        root = Prefixes.start(self.pair)
        score = self.pair.gains(root.read(slice(1)))[0].double()
        prefixes = root.extended(torch.zeros_like(every), every)
        return _Population(every[:, None], score, torch.zeros_like(score), prefixes)

    def run(
        self, first: _Population, sums: Tensor, beta: float, generator: torch.Generator
    ) -> Floats:
        """Logarithms of what each of the last population counts for; their sum is the estimate."""
        population = first
        while population.tokens.shape[1] < len(self.own) - 1:
            if population is not first:
                sums = self.log_sums(population, [beta])[:, 0]
            grown = self._grow(population, sums, beta, generator)
            if grown is None:
                return np.full(1, -inf)
            population = grown
        passing = self._passing(population)
        prefixes = map(tuple, population.tokens.tolist())
        self.counted.update(zip(prefixes, passing.tolist(), strict=True))
        return (population.log_weight + passing.double().log()).cpu().numpy()

    def log_sums(self, population: _Population, betas: list[float]) -> Tensor:
        """(k, betas) logarithms of the sum of e^(beta gain) over the tokens that can still pass."""
        found = []
        for _, gains in self._gains(population):
            found.append(torch.stack([(beta * gains).logsumexp(1) for beta in betas], 1))
        return torch.cat(found)

    def _grow(
        self, old: _Population, sums: Tensor, beta: float, generator: torch.Generator
    ) -> _Population | None:
        """One token longer; None where nothing can pass any more."""
        mass = old.log_weight + beta * old.score + sums
        total = mass.logsumexp(0)
        if total == -inf:
            return None
        shares = (mass - total).exp()
        itself = self._itself(old)
        if itself.any():
            shares = (1 - OWN_PARENTS) * shares + OWN_PARENTS * itself / itself.sum()
        # systematic: as many of each as its share says, but for rounding by one lot
        lot = torch.rand(1, dtype=torch.float64, generator=generator).to(mass.device)
        ticks = (torch.arange(self.size, device=mass.device) + lot) / self.size
        reached = shares.cumsum(0)
        parent = torch.searchsorted(reached / reached[-1], ticks).clamp(max=len(mass) - 1)
        drawn = self._draw(old, parent, beta, generator)
        times = log(self.size) + shares[parent].log()  # how often a parent is expected
        return _Population(
            torch.cat([old.tokens[parent], drawn.token[:, None]], 1),
            old.score[parent] + drawn.gain,
            old.log_weight[parent] - times - drawn.log_chance,
            old.prefixes.extended(parent, drawn.token),
        )

    def _draw(
        self, old: _Population, parent: Tensor, beta: float, generator: torch.Generator
    ) -> "_Drawn":
        """A next token for each of the sorted parents (k,)."""
        chosen, number = torch.unique_consecutive(parent, return_counts=True)
        uniform = torch.rand(len(parent), dtype=torch.float64, generator=generator).to(
            parent.device
        )
        parts = []
        few = _some(old, chosen)
        itself, following = self._itself(few), self.own[few.tokens.shape[1]]
        for rows, gains in self._gains(few):
            begin, count = int(number[: rows.start].sum()), number[rows]
            chances = (beta * gains).softmax(1)
            ours = (itself[rows] & (gains[:, following] > -inf)).nonzero()[:, 0]
            chances[ours] *= 1 - OWN_TOKENS
            chances[ours, following] += OWN_TOKENS
            row = torch.arange(len(count), device=parent.device).repeat_interleave(count)
            place = torch.arange(len(row), device=parent.device)
            place -= (count.cumsum(0) - count)[row]
            asked = uniform.new_zeros(len(count), int(count.max()))
            asked[row, place] = uniform[begin : begin + len(row)]
            reached = chances.cumsum(1)
            token = torch.searchsorted(reached, asked * reached[:, -1:], right=True)[row, place]
            token = token.clamp(max=gains.shape[1] - 1)
            parts.append((token, gains[row, token], chances[row, token].log()))
        return _Drawn(*(torch.cat(part) for part in zip(*parts, strict=True)))

    def _itself(self, population: _Population) -> Tensor:
        """(k,) whether a prefix is the phrase's own."""
        return (population.tokens == self.own[: population.tokens.shape[1]]).all(1)

    def _gains(self, population: _Population) -> Iterator[tuple[slice, Tensor]]:
        """(r, v) float64 gains, slice by slice; -inf where the phrase can no longer pass."""
        left = len(self.own) - population.tokens.shape[1] - 1
        for rows in self.pair.slices(len(population.score)):
            gains = self.pair.gains(population.prefixes.read(rows)).double()
            most = population.score[rows, None] + gains + left
            yield rows, gains.masked_fill(most <= self.above, -inf)

    def _passing(self, population: _Population) -> Tensor:
        """(k,) how many last tokens make each prefix pass."""
        itself = self._itself(population)
        found = []
        for rows, gains in self._gains(population):
            passing = gains > -inf
            passing[itself[rows], self.own[-1]] = False
            found.append(passing.sum(1))
        return torch.cat(found)


def _some(population: _Population, rows: Tensor) -> _Population:
    """Some rows of a population."""
    held = population.prefixes
    return _Population(
        population.tokens[rows],
        population.score[rows],
        population.log_weight[rows],
        Prefixes(held.pair, held.held, held.row[rows], held.since[rows]),
    )


def _best(pilots: list[Floats]) -> int:
    """The run whose parts are most even, among those that did not miss most of what others saw."""
    totals = np.array([logsumexp(parts) for parts in pilots])
    enough = totals >= totals.max() - log(4)
    return int(np.argmax([_effective(p) * ok for p, ok in zip(pilots, enough, strict=True)]))


def _effective(log_parts: Floats) -> float:
    """How many equal parts would say as much; 0 where all are nothing."""
    if (log_parts == -inf).all():
        return 0.0
    return float(np.exp(2 * logsumexp(log_parts) - logsumexp(2 * log_parts)))


def _estimate(runs: list[Floats], seen: int) -> RankEstimate:
    """The mean of the runs with its interval, in logarithms: ranks may be of any size."""
    totals = np.array([logsumexp(parts) for parts in runs])
    found = RankEstimate(
        value=None,
        low=None,
        high=None,
        samples=sum(parts.size for parts in runs),
        hits=sum(int((parts > -inf).sum()) for parts in runs),
        effective=_effective(totals),
        seen=seen,
    )
    if found.effective < LEAST_EFFECTIVE:
        return found
    # the squared coefficient of variation of the mean
    spread = max(len(runs) / found.effective - 1, 0.0) / (len(runs) - 1)
    reach = float(stats.t.isf(0.025, len(runs) - 1)) * sqrt(log1p(spread))
    middle = float(logsumexp(totals)) - log(len(runs))
    value, low, high = (_whole(middle + way * reach) for way in (0, -1, 1))
    return replace(found, value=value, low=low, high=high)


def _whole(logarithm: float) -> int:
    """e to a natural logarithm as a whole number, of any size; large ones have 15 digits."""
    exponent = logarithm / log(10)
    digits = max(0, floor(exponent) - 15)
    leading: float = 10.0 ** (exponent - digits)
    return round(leading) * int(10**digits)
