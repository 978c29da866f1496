"""Plans of searches, from what the search expects and from what small slices of it take.

The search says which forward passes it expects (`SeedAndExtend.planned`); seconds come from some of
these passes, timed on the models that are loaded.
"""

import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from vestige.attacks.update.forward_tokens import ForwardTokens
from vestige.attacks.update.model_pair import ModelPair, PairState
from vestige.attacks.update.proposals.pairs import Pairs
from vestige.attacks.update.proposals.samples import Samples
from vestige.memory import free_memory
from vestige.models.largest import ROUNDED, largest
from vestige.monitor import SILENT, Monitor
from vestige.training.peak_memory import resident_mib
from vestige.workflows.update_plan import ModelCost, Plan

if TYPE_CHECKING:
    from vestige.attacks.update.forward_tokens import Passes, Work
    from vestige.attacks.update.seed_and_extend import SeedAndExtend

FEW, MANY = 16, 64
"""Rows of a timed pass where many would take too long, and else."""
CELL = 48
"""Bytes that a score takes while it is asked for: two models' logits, their logarithms, a draw."""
MARGIN = 0.7
"""Share of the minutes that a plan may fill: predictions are right within a factor."""
SIZES = [2 ** (step / 2) for step in range(12, -7, -1)]
"""How much larger than usual a search may be: 64 times down to an eighth."""


@dataclass(frozen=True)
class Planner:
    """Costs of searches of one pair, each shape of pass timed once.

    Attributes:
        pair: the loaded snapshots.
        contexts: ids that are begun behind.
        monitor: told that planning takes its time.
    """

    pair: ModelPair
    contexts: Sequence[tuple[int, ...]]
    monitor: Monitor = SILENT

    @cached_property
    def _costs(self) -> tuple[ModelCost, ModelCost]:
        return ModelCost.of(self.pair.before), ModelCost.of(self.pair.after)

    @cached_property
    def _timed(self) -> dict[tuple[object, ...], tuple[float, float]]:
        return {}

    @cached_property
    def _read(self) -> int:
        """A few tokens: of models with few positions half of what they can read."""
        models = (self.pair.before, self.pair.after)
        longest = [most for model in models if (most := getattr(model, "longest", None))]
        return max(1, min(16, *(most // 2 for most in longest)) if longest else 16)

    @cached_property
    def _begun(self) -> PairState:
        """One row that has read a few tokens."""
        token = torch.zeros(1, self._read, dtype=torch.int64, device=self.pair.device)
        return replace(self.pair, cost=ForwardTokens()).read(token)

    def operations(self, work: "Work") -> float:
        """Floating-point operations of both models."""
        before, after = self._costs
        return sum(
            after.operations(one) + before.operations(one, share=one.before) for one in work.passes
        )

    def seconds(self, work: "Work") -> float:
        """How long the passes take; what is a small part of them takes as long as the others."""
        kinds = Counter[tuple[object, ...]]()
        for one in work.passes:
            kinds[_kind(one)] += math.ceil(one.forward_tokens)
        timed = [one for one in work.passes if kinds[_kind(one)] >= PART * work.after]
        total = tokens = 0.0
        with self.monitor.progress("planning: timing") as step:
            for number, one in enumerate(timed):
                step(number, len(timed))
                total += one.count * self._pass(one)
                tokens += one.forward_tokens
        return total * work.after / tokens if tokens else 0.0

    def memory(self, search: "SeedAndExtend") -> tuple[int, int]:
        """Bytes of the process or device at most, and those that are free for it."""
        planned = search.planned(self.pair, self.contexts).passes
        held = max((one.rows * (one.behind + one.tokens) for one in planned), default=0)
        rows = max((one.rows for one in planned), default=0)
        each = self._begun.nbytes / self._read
        asked = min(rows, max(part.stop - part.start for part in self.pair.slices(10**6)))
        # states are there twice while rows are chosen, and half of them are longer than on average
        more = math.ceil(2.5 * held * each + asked * self.pair.vocab_size * CELL)
        taken, free = _taken(self.pair.device)
        return taken + more, taken + free

    def plan(
        self,
        search: "SeedAndExtend",
        *,
        searches: int,
        left: int,
        names: Sequence[str],
        size: float,
    ) -> Plan:
        """Of searches of one kind."""
        work = search.planned(self.pair, self.contexts)
        return Plan(
            work=work,
            operations=self.operations(work),
            seconds=self.seconds(work),
            memory=self.memory(search),
            searches=searches,
            left=left,
            contexts=tuple(names),
            size=size,
        )

    def size_for(self, search: "SeedAndExtend", seconds: float) -> float:
        """The largest size whose search takes no longer; the smallest where none does."""
        for size in SIZES:
            if (
                self.seconds(sized(search, size).planned(self.pair, self.contexts))
                <= MARGIN * seconds
            ):
                return size
        return SIZES[-1]

    def _pass(self, one: "Passes") -> float:
        """Seconds of one pass of a shape: a line through those of one row and of many."""
        if (key := _kind(one)) not in self._timed:
            least, rows = self._time(1, one), max(2, FEW // one.tokens)
            most = self._time(rows, one)
            if most < TIMED:
                rows = MANY
                most = self._time(rows, one)
            self._timed[key] = (least, max(0.0, most - least) / (rows - 1))
        least, each = self._timed[key]
        return least + each * (max(1.0, one.rows) - 1)

    def _time(self, rows: int, one: "Passes") -> float:
        pair = replace(self.pair, cost=ForwardTokens())
        which = torch.zeros(rows, dtype=torch.int64, device=pair.device)
        taken: list[float] = []
        while not taken or (len(taken) < 4 and sum(taken) < TIMED):
            state = self._begun[which]
            started = _now(pair.device)
            if one.kind == "prefill":
                state = pair.read(which[:, None].expand(-1, one.tokens))
            else:
                state = pair.advance(state, which)
            if one.asked:
                for part in pair.slices(math.ceil(min(1.0, one.asked / one.rows) * rows)):
                    _asked(pair, state[part], drawn=_drawn(one))
            taken.append(_now(pair.device) - started)
        return min(taken)


PART = 0.05
"""Share of the tokens from which on a shape of passes is timed."""

TIMED = 0.1
"""Seconds spent on each shape of pass at least, where a few passes take less."""


def sized(search: "SeedAndExtend", size: float) -> "SeedAndExtend":
    """A search with so many times as many samples and ways to follow."""

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


def _kind(one: "Passes") -> tuple[object, ...]:
    """What decides how long a pass takes, beside its rows."""
    return one.kind, one.tokens, one.asked > 0, _drawn(one)


def _drawn(one: "Passes") -> bool:
    """Whether a token is drawn from what is asked."""
    return one.proposal == Samples.name and not one.grown


def _asked(pair: ModelPair, state: PairState, *, drawn: bool) -> None:
    """What a search does with the next token of some rows."""
    gains = pair.gains(state)
    if drawn:
        later = pair.after.logits(state.after).log_softmax(1)
        earlier = pair.before.logits(state.before).log_softmax(1)
        (later + (later - earlier)).double().softmax(1).cumsum(1)
    largest(gains, min(4, gains.shape[1]), alike=ROUNDED)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _taken(device: torch.device) -> tuple[int, int]:
    """Bytes that this process has taken, and those free for it."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device), torch.cuda.mem_get_info(device)[0]
    with suppress(OSError, ValueError):
        return round(resident_mib("VmHWM") * 2**20), free_memory()
    return 0, free_memory()
