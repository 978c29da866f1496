"""What a search of an update will cost, told before it begins: tokens, operations, time, memory.

The search says which forward passes it expects (`SeedAndExtend.planned`), a small one of its kind
how long texts become. A token read costs two operations a parameter and 4 x layers x width for each
token behind it (Kaplan et al. 2020, "Scaling Laws for Neural Language Models", arXiv:2001.08361,
table 1), a distribution asked for two a weight of the head. Seconds come from some of these passes,
timed on the models that are loaded.
"""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from vestige.attacks.update.forward_tokens import ForwardTokens
from vestige.attacks.update.model_pair import ModelPair, PairState
from vestige.attacks.update.proposals.openings import Openings
from vestige.attacks.update.proposals.pairs import Pairs
from vestige.attacks.update.proposals.samples import Samples
from vestige.attacks.update.seed_and_extend import Effort, seed_and_extend
from vestige.memory import free_memory
from vestige.models.largest import ROUNDED, largest

if TYPE_CHECKING:
    from vestige.attacks.update.forward_tokens import Passes, Work
    from vestige.attacks.update.seed_and_extend import SeedAndExtend

MOST_TIMED = 64
"""Rows of a timed pass on a processor, whose time grows with the rows from there on."""
CELL = 48
"""Bytes that a score takes while it is asked for: two models' logits, their logarithms, a draw."""
MARGIN = 0.7
"""Share of the minutes that a plan may fill: predictions are right within a factor."""
SIZES = [2 ** (step / 2) for step in range(12, -7, -1)]
"""How much larger than usual a search may be: 64 times down to an eighth."""


Shares = dict[tuple[str, bool], float]
"""How much of the passes that are expected a proposal took, to draw and to extend."""


@dataclass(frozen=True)
class ModelCost:
    """What a token costs in one model.

    Attributes:
        body: parameters that every token passes.
        head: weights of the head, asked for a distribution.
        attention: operations for each token that stands before.
    """

    body: int
    head: int
    attention: int

    @classmethod
    def of(cls, model: Any) -> "ModelCost":
        """Of a network; a model without parameters costs nothing."""
        parameters = list(model.parameters()) if hasattr(model, "parameters") else []
        wide = {model.vocab_size, len(model.vocabulary)}
        tables = [p for p in parameters if p.dim() == 2 and wide & set(p.shape)]
        shape = getattr(model, "settings", None) or getattr(model, "config", None)
        layers = getattr(shape, "num_hidden_layers", getattr(shape, "layers", 0))
        width = getattr(shape, "hidden_size", 0)
        recurrent = not hasattr(model, "longest") and not hasattr(shape, "heads")
        return cls(
            body=sum(p.numel() for p in parameters) - sum(t.numel() for t in tables),
            head=min((t.numel() for t in tables), default=0),
            attention=0 if recurrent else 4 * layers * width,
        )

    def operations(self, passes: "Passes", *, share: float = 1.0) -> float:
        """Of passes of which the model reads a share of the rows."""
        each = 2 * self.body + self.attention * (passes.behind + passes.tokens / 2)
        asked = passes.count * passes.asked * 2 * self.head
        return share * (passes.forward_tokens * each + asked)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one search costs, and how many there are.

    Attributes:
        work: of one search.
        operations: floating-point operations of one.
        seconds: of one.
        memory: bytes at most while it runs, and those that are free.
        searches: the update's and those of null models.
        left: how many of these are still to be done.
        contexts: what they begin behind, beside a document's beginning.
        size: how much larger than usual they are.
    """

    work: "Work"
    operations: float
    seconds: float
    memory: tuple[int, int]
    searches: int
    left: int
    contexts: tuple[str, ...]
    size: float

    def lines(self, minutes: float | None) -> list[str]:
        """For a reader, before work begins."""
        nulls = self.searches - 1
        what = "1 search" if not nulls else f"{1 + nulls} searches (the update and {nulls} null)"
        every = self.left * self.seconds
        each = f" ({spoken(self.seconds)} each)" if self.left > 1 else ""
        done = "" if self.left == self.searches else f", {self.searches - self.left} done before"
        memory, free = self.memory
        tokens = (
            f"{self.work.total:,} forward tokens ({self.work.before:,} before, "
            f"{self.work.after:,} after)"
        )
        lines = [
            f"Plan: {what}{done}, of {tokens} and {_scaled(self.operations)}FLOP each; about "
            f"{spoken(every)}{each} and {_bytes(memory)} of memory.",
            f"It begins behind: {', '.join(('the beginning of a document', *self.contexts))}.",
        ]
        if memory > free:
            lines.append(
                f"That is more than the {_bytes(free)} that are free: fewer samples at a time "
                "or a smaller model would fit."
            )
        if minutes is None and every > LONG:
            lines.append(
                "--minutes 10 would make it as small as ten minutes allow and stop there; what "
                "is done is kept, and the same command goes on."
            )
        elif minutes is not None and every > 60 * minutes:
            lines.append(
                f"That is more than {minutes:g} min even at the smallest size: it stops then with "
                "what it has, and the same command goes on."
            )
        return lines

    def record(self) -> dict[str, object]:
        """For `run.json`."""
        return {
            "forward_tokens": self.work.total,
            "operations": self.operations,
            "seconds": round(self.seconds, 1),
            "memory_mib": self.memory[0] >> 20,
            "searches": self.searches,
            "size": self.size,
        }


LONG = 900
"""Seconds from which on a plan says what `--minutes` would do."""


@dataclass(frozen=True)
class Planner:
    """Costs of searches of one pair, each shape of pass timed once.

    Attributes:
        pair: the loaded snapshots.
        contexts: ids that are begun behind.
    """

    pair: ModelPair
    contexts: Sequence[tuple[int, ...]]

    @cached_property
    def _costs(self) -> tuple[ModelCost, ModelCost]:
        return ModelCost.of(self.pair.before), ModelCost.of(self.pair.after)

    @cached_property
    def _timed(self) -> dict[tuple[object, ...], float]:
        return {}

    @cached_property
    def _tried(self) -> dict[str, Shares]:
        return {}

    @cached_property
    def _begun(self) -> PairState:
        """One row that has read a few tokens."""
        token = torch.zeros(1, 16, dtype=torch.int64, device=self.pair.device)
        return self.pair.read(token)

    def work(self, search: "SeedAndExtend") -> "Work":
        """Forward passes of a search, as long as texts were in a small one."""
        planned = search.planned(self.pair, self.contexts)
        lengths = self._lengths(search)
        passes = [
            _shorter(one, lengths.get((one.proposal, one.grown), 1.0)) for one in planned.passes
        ]
        return replace(planned, passes=tuple(passes))

    def _lengths(self, search: "SeedAndExtend") -> Shares:
        """How much of the passes that a proposal expects a small search of its kind took."""
        small = piloted(search, 1 + len(self.contexts))
        if (key := repr(small)) not in self._tried:
            self._tried[key] = self._shares(small)
        return self._tried[key]

    def _shares(self, small: "SeedAndExtend") -> Shares:
        pair = replace(self.pair, cost=ForwardTokens())
        taken: Counter[tuple[str, bool]] = Counter()
        where, before = ("", False), 0

        def begins(unit: str) -> None:
            nonlocal where, before
            taken[where] += pair.cost.after - before
            where, before = (unit.partition("/")[0], "/grown/" in unit), pair.cost.after

        effort = Effort(contexts=self.contexts, begins=begins)
        seed_and_extend(pair, small, end=pair.after.vocabulary.eos_id, effort=effort)
        begins("")
        shares = {}
        planned = small.planned(pair, self.contexts).passes
        for kind, tokens in taken.items():
            mine = [one for one in planned if (one.proposal, one.grown) == kind]
            read = sum(one.forward_tokens for one in mine if one.kind == "prefill")
            decoded = sum(one.forward_tokens for one in mine if one.kind == "decode")
            if decoded:
                shares[kind] = max(LEAST, (tokens - read) / decoded)
        return shares

    def operations(self, work: "Work") -> float:
        """Floating-point operations of both models."""
        before, after = self._costs
        return sum(
            after.operations(one) + before.operations(one, share=one.before) for one in work.passes
        )

    def seconds(self, work: "Work") -> float:
        """How long the passes take."""
        return sum(one.count * self._pass(one) for one in work.passes)

    def memory(self, search: "SeedAndExtend") -> tuple[int, int]:
        """Bytes of the process or device at most, and those that are free for it."""
        planned = search.planned(self.pair, self.contexts).passes
        held = max((one.rows * (2 * one.behind + one.tokens) for one in planned), default=0)
        rows = max((one.rows for one in planned), default=0)
        each = self._begun.nbytes / 16
        asked = min(rows, max(part.stop - part.start for part in self.pair.slices(10**6)))
        # states are there three times while rows are chosen and a token is read
        more = math.ceil(3 * held * each + asked * self.pair.vocab_size * CELL)
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
        """Seconds of one pass of a shape."""
        rows = max(1, round(one.rows))
        most = rows if self.pair.device.type == "cuda" else min(rows, MOST_TIMED)
        key = (*_kind(one), most)
        if key not in self._timed:
            self._timed[key] = self._time(most, one)
        return self._timed[key] * rows / most

    def _time(self, rows: int, one: "Passes") -> float:
        pair = replace(self.pair, cost=type(self.pair.cost)())
        which = torch.zeros(rows, dtype=torch.int64, device=pair.device)
        taken: list[float] = []
        while not taken or (len(taken) < 4 and sum(taken) < TIMED):
            state = self._begun[which]
            started = _now(pair.device)
            for _ in range(min(one.tokens, 4)):
                state = pair.advance(state, which)
            read = (_now(pair.device) - started) * one.tokens / min(one.tokens, 4)
            started = _now(pair.device)
            if one.asked:
                share = min(1.0, one.asked / one.rows)
                for part in pair.slices(max(1, round(share * rows))):
                    _asked(pair, state[part], drawn=one.proposal == Samples.name and not one.grown)
            taken.append(read + _now(pair.device) - started)
        return min(taken)


PILOT = 8
"""Texts of each kind that are read to learn how long they become."""

LEAST = 0.02
"""Share of its passes that a proposal takes at least."""

TIMED = 0.3
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


def piloted(search: "SeedAndExtend", starts: int) -> "SeedAndExtend":
    """A search of a few texts of each kind."""

    def of(proposal: Any) -> Any:
        if isinstance(proposal, Samples):
            texts = PILOT * starts
            ways = math.ceil(texts * proposal.alternatives / proposal.samples)
            return replace(proposal, samples=texts, alternatives=ways)
        if isinstance(proposal, Openings):
            return replace(proposal, openings=2 * PILOT * starts)
        if isinstance(proposal, Pairs):
            return replace(proposal, seeds=2 * PILOT)
        return proposal

    return replace(search, proposals=tuple(map(of, search.proposals)))


def _kind(one: "Passes") -> tuple[object, ...]:
    """What decides how long a pass takes, beside its rows."""
    drawn = one.proposal == Samples.name and not one.grown
    return one.kind, one.tokens, one.asked > 0, one.before, drawn


def _shorter(one: "Passes", share: float) -> "Passes":
    """Passes of less rows where texts end, more passes where they go on."""
    if one.kind == "prefill":
        return one
    fewer, more = min(1.0, share), max(1.0, share)
    rows, asked, count = one.rows * fewer, one.asked * fewer, one.count * more
    return replace(one, rows=rows, asked=asked, count=count)


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
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10, free_memory()


def spoken(seconds: float) -> str:
    """A length of time in words: "40 s", "3 min", "2 h 05 min"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def _scaled(number: float) -> str:
    """Three digits and the prefix of the SI."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if number < 999.5:
            return f"{number:.3g} {prefix}"
        number /= 1000
    return f"{number:.3g} E"


def _bytes(number: float) -> str:
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.0f} MiB"
