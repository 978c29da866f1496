"""Plans of searches, from what the search expects and from what small slices of it take.

The search says which forward passes it expects (`SeedAndExtend.planned`), a few short samples how
soon texts end, and seconds come from some of these passes, timed on the models that are loaded.
"""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch

from vestige.attacks.update.forward_tokens import ForwardTokens
from vestige.attacks.update.model_pair import ModelPair, PairState
from vestige.attacks.update.proposals.pairs import Pairs
from vestige.attacks.update.proposals.protocol import Ground, Turn
from vestige.attacks.update.proposals.samples import MOST_BLOCKS, Samples
from vestige.attacks.update.seed_and_extend import starts_of
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
        turns: of those behind which a user's turn begins.
        monitor: told that planning takes its time.
    """

    pair: ModelPair
    contexts: Sequence[tuple[int, ...]]
    turns: Mapping[tuple[int, ...], Turn] = field(default_factory=dict)
    monitor: Monitor = SILENT

    @cached_property
    def _costs(self) -> tuple[ModelCost, ModelCost]:
        return ModelCost.of(self.pair.before), ModelCost.of(self.pair.after)

    @cached_property
    def _timed(self) -> dict[tuple[object, ...], tuple[float, float]]:
        return {}

    @cached_property
    def _ends(self) -> dict[tuple[int, ...], float]:
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

    def work(self, search: "SeedAndExtend") -> "Work":
        """Forward passes of a search: where texts end early, more passes of fewer rows."""
        planned = search.planned(self.pair, self.contexts)
        shares = iter(self._shares(search) if any(map(_drawn, planned.passes)) else ())
        passes = [
            _thinner(one, next(shares)) if _drawn(one) and one.kind == "decode" else one
            for one in planned.passes
        ]
        return replace(planned, passes=tuple(passes))

    def _shares(self, search: "SeedAndExtend") -> list[float]:
        """For each start the mean length of a turn behind it, of that at most."""
        [samples] = (one for one in search.proposals if isinstance(one, Samples))
        starts = starts_of(self.pair, self.contexts)
        for start in starts[: PILOTED - len(self._ends)]:
            if start not in self._ends:
                self._ends[start] = self._rate(search, samples, start)
        every = [self._ends.get(start, fmean(self._ends.values())) for start in starts]
        return [_mean(rate * samples.length) for rate in every]

    def _rate(self, search: "SeedAndExtend", samples: Samples, start: tuple[int, ...]) -> float:
        """How many turns end behind a start, for each token that is drawn."""
        pair = replace(self.pair, cost=ForwardTokens())
        end, turns = pair.after.vocabulary.eos_id, self.turns
        ground = Ground(pair, search, end, (start,), search.seed, turns)
        short = replace(samples, length=min(SHORT, samples.length), alternatives=0)
        texts = short.block_of(ground, start, PILOT, "plan").texts
        lengths = [len(text.tokens) - text.first for text in texts]
        return sum(length < short.length for length in lengths) / max(1, sum(lengths))

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
        if sum(cost.body for cost in self._costs) > LARGE:
            self.monitor.log("Planning: small slices of the search are timed on these models.")
        work = self.work(search)
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
            if self.seconds(self.work(sized(search, size))) <= MARGIN * seconds:
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


PILOT = 8
"""Texts that are drawn behind a start to learn how soon they end."""

SHORT = 16
"""Tokens of a turn of such texts at most."""

PILOTED = 3
"""Starts behind which they are drawn; the others are taken to be alike."""

PART = 0.05
"""Share of the tokens from which on a shape of passes is timed."""

LARGE = 50_000_000
"""Parameters from which on planning is told of."""

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


def _mean(decay: float) -> float:
    return -math.expm1(-decay) / decay if decay else 1.0


def _kind(one: "Passes") -> tuple[object, ...]:
    """What decides how long a pass takes, beside its rows."""
    return one.kind, one.tokens, one.asked > 0, _drawn(one)


def _drawn(one: "Passes") -> bool:
    """Whether a token is drawn from what is asked."""
    return one.proposal == Samples.name and not one.grown


def _thinner(one: "Passes", share: float) -> "Passes":
    """As many tokens in passes of fewer rows."""
    share = max(share, 1 / MOST_BLOCKS)
    return replace(one, rows=one.rows * share, asked=one.asked * share, count=one.count / share)


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
