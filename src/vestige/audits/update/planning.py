"""What the searches of an update will cost: tokens and time, known before they begin.

The search says which forward passes it expects (`SeedAndExtend.planned`). Their time comes from a
few such passes on the loaded models.
"""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from vestige.attacks.update.forward_tokens import ForwardTokens, Passes, Work
from vestige.attacks.update.model_pair import ModelPair, PairState, most_tokens
from vestige.attacks.update.proposals.pairs import Pairs
from vestige.attacks.update.proposals.samples import Samples
from vestige.attacks.update.seed_and_extend import SeedAndExtend
from vestige.models.largest import ROUNDED, largest
from vestige.monitor import SILENT, Monitor

Kind = tuple[object, ...]

LONG = 900
"""From so many seconds on, the plan mentions `--minutes`."""

FEW_ROWS, MANY_ROWS = 16, 64
"""Rows of a timed pass; the larger number for fast models."""

TIMED_SECONDS = 0.1
"""Least time spent on each kind of pass, unless a few passes take longer."""

TIMED_SHARE = 0.05
"""Kinds of passes with a smaller share of the tokens are not timed."""

MARGIN = 0.7
"""Share of the minutes that a plan may fill; predictions are right within a factor of two."""

SIZES = [2 ** (step / 2) for step in range(12, -7, -1)]
"""Sizes that `--minutes` chooses from: 64 times the usual size down to an eighth."""


@dataclass(frozen=True)
class Planner:
    """Predicts the time of searches of one pair of models; each kind of pass is timed once.

    Attributes:
        pair: the loaded snapshots.
        contexts: token ids of the contexts besides a document's beginning.
        monitor: gets progress while passes are timed.
        times: by kind of pass, seconds of one row and of each further row.
    """

    pair: ModelPair
    contexts: Sequence[tuple[int, ...]]
    monitor: Monitor = SILENT
    times: dict[Kind, tuple[float, float]] = field(default_factory=dict)

    def work(self, search: SeedAndExtend) -> Work:
        """The forward passes of a search."""
        return search.planned(self.pair, self.contexts)

    def size_for(self, search: SeedAndExtend, seconds: float) -> float:
        """The largest size whose search fits into the time; the smallest if none does."""
        for size in SIZES:
            if self.seconds(self.work(scaled(search, size))) <= MARGIN * seconds:
                return size
        return SIZES[-1]

    def seconds(self, work: Work) -> float:
        """Time of the passes; those that are rare are assumed to take as long as the others."""
        tokens_of = Counter[Kind]()
        for one in work.passes:
            tokens_of[_kind(one)] += math.ceil(one.forward_tokens)
        timed = [one for one in work.passes if tokens_of[_kind(one)] >= TIMED_SHARE * work.after]
        total = tokens = 0.0
        with self.monitor.progress("planning: timing") as step:
            for number, one in enumerate(timed):
                step(number, len(timed))
                total += one.count * self._pass_seconds(one)
                tokens += one.forward_tokens
        return total * work.after / tokens if tokens else 0.0

    @cached_property
    def _state(self) -> PairState:
        """What the models have read before a timed pass: at most half of what they can read."""
        most = most_tokens(self.pair.before, self.pair.after)
        length = 16 if most is None else max(1, min(16, most // 2))
        tokens = torch.zeros(1, length, dtype=torch.int64, device=self.pair.device)
        return replace(self.pair, cost=ForwardTokens()).read(tokens)

    def _pass_seconds(self, one: Passes) -> float:
        """Time of a pass: linear in its rows."""
        if (kind := _kind(one)) not in self.times:
            first, rows = self._time(1, one), max(2, FEW_ROWS // one.tokens)
            many = self._time(rows, one)
            if many < TIMED_SECONDS:
                rows = MANY_ROWS
                many = self._time(rows, one)
            self.times[kind] = (first, max(0.0, many - first) / (rows - 1))
        first, each = self.times[kind]
        return first + each * (max(1.0, one.rows) - 1)

    def _time(self, rows: int, one: Passes) -> float:
        """The shortest of a few passes."""
        pair = replace(self.pair, cost=ForwardTokens())
        tokens = torch.zeros(rows, dtype=torch.int64, device=pair.device)
        taken: list[float] = []
        while not taken or (len(taken) < 4 and sum(taken) < TIMED_SECONDS):
            state = self._state[tokens]
            started = _now(pair.device)
            if one.kind == "prefill":
                state = pair.read(tokens[:, None].expand(-1, one.tokens))
            else:
                state = pair.advance(state, tokens)
            if one.asked:
                for part in pair.slices(math.ceil(min(1.0, one.asked / one.rows) * rows)):
                    _score(pair, state[part], sampled=_is_sampled(one))
            taken.append(_now(pair.device) - started)
        return min(taken)


def plan_lines(
    tokens: int, seconds: float, *, searches: int, finished: int, minutes: float | None
) -> list[str]:
    """The plan for the user, before work begins.

    Args:
        tokens: of one search.
        seconds: of one search.
        searches: of the update and of null models.
        finished: searches that were finished earlier.
        minutes: time limit of all searches.
    """
    total = (searches - finished) * seconds
    planned = f"{searches} searches (the update and {searches - 1} null)"
    earlier = f", {finished} finished earlier" if finished else ""
    each = f" ({duration(seconds)} each)" if searches - finished > 1 else ""
    plan = (
        f"Plan: {planned if searches > 1 else '1 search'}{earlier}, {tokens:,} tokens each; "
        f"about {duration(total)}{each}."
    )
    if minutes is None and total > LONG:
        return [plan, "To limit the time, pass --minutes 10. An interrupted run resumes."]
    if minutes is not None and total > 60 * minutes:
        late = f"Even the smallest search takes longer than {minutes:g} min."
        return [plan, f"{late} It stops then; rerun to resume."]
    return [plan]


def scaled(search: SeedAndExtend, size: float) -> SeedAndExtend:
    """A search with `size` times as many samples and seeds."""

    def of(proposal: Any) -> Any:
        if isinstance(proposal, Samples):
            return replace(
                proposal,
                samples=max(1, round(size * proposal.samples)),
                alternatives=round(size * proposal.alternatives),
            )
        if isinstance(proposal, Pairs):
            return replace(proposal, seeds=max(1, round(size * proposal.seeds)))
        return proposal

    return replace(search, proposals=tuple(map(of, search.proposals)))


def duration(seconds: float) -> str:
    """A length of time: "40 s", "3 min", "2 h 05 min"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def _kind(one: Passes) -> Kind:
    """What decides the time of a pass, besides its rows."""
    return one.kind, one.tokens, one.asked > 0, _is_sampled(one)


def _is_sampled(one: Passes) -> bool:
    return one.proposal == Samples.name and not one.grown


def _score(pair: ModelPair, state: PairState, *, sampled: bool) -> None:
    """What a search computes for the next token of some rows."""
    gains = pair.gains(state)
    if sampled:
        later = pair.after.logits(state.after).log_softmax(1)
        earlier = pair.before.logits(state.before).log_softmax(1)
        (later + (later - earlier)).double().softmax(1).cumsum(1)
    largest(gains, min(4, gains.shape[1]), alike=ROUNDED)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
