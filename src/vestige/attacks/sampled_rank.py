r"""About how many phrases did an update promote more than this one? Sampled, not proven.

Where the bounds of `differential_rank` are far apart, prefixes are drawn token by token from a
proposal q, and a phrase's last token is counted and not drawn:

.. math:: \widehat{DR}(s) = \frac{1}{m} \sum_{i=1}^m \frac{1}{q(x_i)}
    \#\{t : DS(x_i t) > DS(s)\}

which is unbiased for any q that leaves out no prefix of a phrase that counts (Hammersley and
Morton 1954, "Poor Man's Monte Carlo"; Kahn and Marshall 1953 on importance sampling). At each step
q mixes the later model's distribution, the positive gains and a uniform one, all over the tokens
after which the phrase can still pass: a token gains at most 1.

The interval is log-normal, with Student's t for the effective number of samples (Kong 1992,
(sum w)^2 / sum w^2): weights have heavy tails, and a few of them may be all that counts. With fewer
than `LEAST_EFFECTIVE` of these there is no estimate.
"""

from dataclasses import dataclass, replace
from math import floor, inf, log, log1p, sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp
from torch import Tensor

from vestige import _validate
from vestige.attacks.model_pair import ModelPair, PairState

LEAST_EFFECTIVE = 12.0
"""Effective samples without which nothing is estimated."""

SHARES = (0.4, 0.3, 0.3)
"""Of the proposal: the later model, the positive gains, every token that can still pass."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a rank is estimated.

    Attributes:
        seed: decides the samples.
        samples: prefixes drawn.
    """

    seed: int
    samples: int = 4096

    def __post_init__(self) -> None:
        _validate.positive(samples=self.samples)


@dataclass(frozen=True, kw_only=True)
class RankEstimate:
    """How many phrases score higher, from samples.

    Attributes:
        value: the estimate, or None where too few samples count.
        low: of its interval of 95 %, or None.
        high: likewise.
        samples: prefixes drawn.
        hits: those that some phrase that scores higher begins with.
        effective: samples of equal weight that would say as much, at most `hits`.
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
    own = torch.tensor(tokens, device=pair.device)
    generator = torch.Generator().manual_seed(sampling.seed)
    left_out = set() if known is None else {tuple(row) for row in known.tolist()}
    log_weights: list[NDArray[np.float64]] = []
    counted: dict[tuple[int, ...], int] = {}
    for rows in pair.slices(sampling.samples):
        drawn = _draw(pair, rows.stop - rows.start, len(tokens), above, generator)
        itself = (drawn.prefixes == own[:-1]).all(1)
        completions = _completions(pair, drawn, above, itself, own[-1])
        with np.errstate(divide="ignore"):
            log_weights.append(np.log(completions) - drawn.log_q)
        prefixes = map(tuple, drawn.prefixes.tolist())
        counted |= dict(zip(prefixes, completions.tolist(), strict=True))
    seen = sum(int(n) for prefix, n in counted.items() if prefix not in left_out)
    return _estimate(np.concatenate(log_weights), seen)


@dataclass(frozen=True)
class _Drawn:
    """Prefixes one token short.

    Attributes:
        prefixes: (r, n - 1) tokens; of one that came to an end early the rest means nothing.
        log_q: (r,) log-probability of each to be drawn; infinite for one that came to an end.
        score: (r,) what it scores.
        gains: (r, v) of a last token.
    """

    prefixes: Tensor
    log_q: NDArray[np.float64]
    score: Tensor
    gains: Tensor


def _draw(
    pair: ModelPair, rows: int, length: int, above: float, generator: torch.Generator
) -> _Drawn:
    state = pair.start(rows)
    score = torch.zeros(rows, dtype=torch.float64, device=pair.device)
    log_q = torch.zeros_like(score)
    prefixes = []
    for left in range(length - 1, 0, -1):
        later, gains = _asked(pair, state)
        # every token after this one gains 1 at most
        possible = score[:, None] + gains + left > above
        q = _proposal(later, gains, possible)
        cumulated = q.double().cumsum(1)
        lot = torch.rand(rows, 1, dtype=torch.float64, generator=generator).to(pair.device)
        token = torch.searchsorted(cumulated, lot * cumulated[:, -1:], right=True)
        token = token.clamp(max=pair.vocab_size - 1)
        chance = q.gather(1, token)[:, 0].double()
        log_q += torch.where(chance > 0, chance, 0).log()
        score += gains.gather(1, token)[:, 0].double()
        prefixes.append(token[:, 0])
        state = pair.advance(state, token[:, 0])
    log_q[log_q == -inf] = inf
    _, gains = _asked(pair, state)
    return _Drawn(torch.stack(prefixes, 1), log_q.cpu().numpy(), score, gains)


def _asked(pair: ModelPair, state: PairState) -> tuple[Tensor, Tensor]:
    """(r, v) the later model's probabilities, and gains."""
    later = torch.softmax(pair.after.logits(state.after), 1)
    return later, later - torch.softmax(pair.before.logits(state.before), 1)


def _proposal(later: Tensor, gains: Tensor, possible: Tensor) -> Tensor:
    """(r, v) chances of each token; 0 in a row where none can still pass."""
    parts = (later * possible, gains.clamp(min=0) * possible, possible.float())
    q = torch.zeros_like(later)
    weight = torch.zeros_like(later[:, :1])
    for share, part in zip(SHARES, parts, strict=True):
        total = part.sum(1, keepdim=True)
        there = total > 0
        q += torch.where(there, share * part / total.clamp(min=1e-30), 0.0)
        weight += share * there
    return q / weight.clamp(min=min(SHARES))


def _completions(
    pair: ModelPair, drawn: _Drawn, above: float, itself: Tensor, last: Tensor
) -> NDArray[np.float64]:
    """(r,) how many last tokens make each prefix pass."""
    passing = drawn.score[:, None] + drawn.gains > above
    passing[itself, last] = False
    ended = torch.from_numpy(drawn.log_q == inf).to(passing.device)
    return (passing.sum(1) * ~ended).double().cpu().numpy()


def _estimate(log_weights: NDArray[np.float64], seen: int) -> RankEstimate:
    """The mean of the weights with its interval, in logarithms: weights may be of any size."""
    samples, hits = log_weights.size, int((log_weights > -inf).sum())
    found = RankEstimate(
        value=None, low=None, high=None, samples=samples, hits=hits, effective=0.0, seen=seen
    )
    if not hits:
        return found
    total = float(logsumexp(log_weights))
    found = replace(found, effective=float(np.exp(2 * total - logsumexp(2 * log_weights))))
    if found.effective < LEAST_EFFECTIVE:
        return found
    variance = max(1 / found.effective - 1 / samples, 0.0)
    reach = float(stats.t.isf(0.025, found.effective - 1)) * sqrt(log1p(variance))
    value, low, high = (_whole(total - log(samples) + way * reach) for way in (0, -1, 1))
    return replace(found, value=value, low=low, high=high)


def _whole(logarithm: float) -> int:
    """e to a natural logarithm as a whole number, of any size; large ones have 15 digits."""
    exponent = logarithm / log(10)
    if exponent < 15:
        return round(10**exponent)
    digits = floor(exponent) - 15
    return round(10 ** (exponent - digits)) * 10**digits
