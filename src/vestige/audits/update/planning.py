"""What a search of an update will cost: tokens, time and memory, known before it begins.

The search says which forward passes it expects (`SeedAndExtend.planned`). Their time comes from a
few such passes on the loaded models.
"""

import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from vestige.attacks.update.forward_tokens import ForwardTokens, Passes, Work
from vestige.attacks.update.model_pair import ModelPair, PairState
from vestige.attacks.update.proposals.pairs import Pairs
from vestige.attacks.update.proposals.samples import Samples
from vestige.attacks.update.seed_and_extend import SeedAndExtend
from vestige.memory import free_memory
from vestige.models.largest import ROUNDED, largest
from vestige.monitor import SILENT, Monitor
from vestige.training.peak_memory import resident_mib

LONG = 900
"""From so many seconds on, the plan mentions `--minutes`."""

FEW_ROWS, MANY_ROWS = 16, 64
"""Rows of a timed pass; the larger number for fast models."""

TIMED_SECONDS = 0.1
"""Least time spent on each kind of pass, unless a few passes take longer."""

TIMED_SHARE = 0.05
"""Kinds of passes with a smaller share of the tokens are not timed."""

BYTES_PER_LOGIT = 48
"""Memory per logit while tokens are scored: two models' logits, their logarithms, a sample."""

MARGIN = 0.7
"""Share of the minutes that a plan may fill; predictions are right within a factor of two."""

SIZES = [2 ** (step / 2) for step in range(12, -7, -1)]
"""Sizes that `--minutes` chooses from: 64 times the usual size down to an eighth."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cost of the searches.

    Attributes:
        work: of one search.
        seconds: of one search.
        memory: bytes used at most, and bytes available.
        searches: of the update and of null models.
        left: searches that are not finished.
        size: multiple of the usual size.
    """

    work: Work
    seconds: float
    memory: tuple[int, int]
    searches: int
    left: int
    size: float

    def lines(self, minutes: float | None) -> list[str]:
        """For the user, before work begins."""
        nulls, done, total = self.searches - 1, self.searches - self.left, self.left * self.seconds
        searches = (
            f"{self.searches} searches (the update and {nulls} null)" if nulls else "1 search"
        )
        finished = f", {done} finished earlier" if done else ""
        each = f" ({duration(self.seconds)} each)" if self.left > 1 else ""
        used, available = self.memory
        lines = [
            f"Plan: {searches}{finished}, {self.work.total:,} tokens each; "
            f"about {duration(total)}{each}, {_bytes(used)} of memory."
        ]
        if used > available:
            lines.append(
                f"Only {_bytes(available)} of memory are available. Use a smaller model or --size."
            )
        if minutes is None and total > LONG:
            lines.append("To limit the time, pass --minutes 10. An interrupted run resumes.")
        elif minutes is not None and total > 60 * minutes:
            lines.append(
                f"Even the smallest search takes longer than {minutes:g} min. It stops then; rerun "
                "to resume."
            )
        return lines

    def record(self) -> dict[str, object]:
        """For `run.json`."""
        return {
            "forward_tokens": self.work.total,
            "seconds": round(self.seconds, 1),
            "memory_mib": self.memory[0] >> 20,
            "searches": self.searches,
            "size": self.size,
        }


@dataclass(frozen=True)
class Planner:
    """Plans searches of one pair of models; each kind of pass is timed once.

    Attributes:
        pair: the loaded snapshots.
        contexts: token ids of the contexts besides a document's beginning.
        monitor: gets progress while passes are timed.
    """

    pair: ModelPair
    contexts: Sequence[tuple[int, ...]]
    monitor: Monitor = SILENT

    def plan(self, search: SeedAndExtend, *, searches: int, left: int, size: float) -> Plan:
        """The cost of several searches with the same settings."""
        work = search.planned(self.pair, self.contexts)
        return Plan(
            work=work,
            seconds=self.seconds(work),
            memory=self.memory(search),
            searches=searches,
            left=left,
            size=size,
        )

    def size_for(self, search: SeedAndExtend, seconds: float) -> float:
        """The largest size whose search fits into the time; the smallest if none does."""
        for size in SIZES:
            work = scaled(search, size).planned(self.pair, self.contexts)
            if self.seconds(work) <= MARGIN * seconds:
                return size
        return SIZES[-1]

    def seconds(self, work: Work) -> float:
        """Time of the passes; those that are rare are assumed to take as long as the others."""
        tokens_of = Counter[tuple[object, ...]]()
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

    def memory(self, search: SeedAndExtend) -> tuple[int, int]:
        """Bytes that the process or device uses at most, and bytes available to it."""
        passes = search.planned(self.pair, self.contexts).passes
        states = max((one.rows * (one.behind + one.tokens) for one in passes), default=0)
        rows = max((one.rows for one in passes), default=0)
        per_token = self._state.nbytes / self._state_tokens
        scored = min(rows, max(part.stop - part.start for part in self.pair.slices(10**6)))
        # States exist twice while rows are selected, and some are longer than average.
        more = math.ceil(2.5 * states * per_token + scored * self.pair.vocab_size * BYTES_PER_LOGIT)
        used, free = _memory(self.pair.device)
        return used + more, used + free

    @cached_property
    def _times(self) -> dict[tuple[object, ...], tuple[float, float]]:
        """By kind of pass: seconds of one row, and of each further row."""
        return {}

    @cached_property
    def _state_tokens(self) -> int:
        """Tokens read before a timed pass: at most half of what the models can read."""
        models = (self.pair.before, self.pair.after)
        limits = [most for model in models if (most := getattr(model, "longest", None))]
        return max(1, min(16, *(most // 2 for most in limits)) if limits else 16)

    @cached_property
    def _state(self) -> PairState:
        token = torch.zeros(1, self._state_tokens, dtype=torch.int64, device=self.pair.device)
        return replace(self.pair, cost=ForwardTokens()).read(token)

    def _pass_seconds(self, one: Passes) -> float:
        """Time of a pass: linear in its rows."""
        if (key := _kind(one)) not in self._times:
            first, rows = self._time(1, one), max(2, FEW_ROWS // one.tokens)
            many = self._time(rows, one)
            if many < TIMED_SECONDS:
                rows = MANY_ROWS
                many = self._time(rows, one)
            self._times[key] = (first, max(0.0, many - first) / (rows - 1))
        first, each = self._times[key]
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


def _kind(one: Passes) -> tuple[object, ...]:
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


def _memory(device: torch.device) -> tuple[int, int]:
    """Bytes that this process uses, and bytes free."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device), torch.cuda.mem_get_info(device)[0]
    with suppress(OSError, ValueError):
        return round(resident_mib("VmHWM") * 2**20), free_memory()
    return 0, free_memory()


def _bytes(number: float) -> str:
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.0f} MiB"
