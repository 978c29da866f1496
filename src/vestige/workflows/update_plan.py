"""What a search of an update will cost, told before it begins: tokens, operations, time, memory.

A token read costs two operations a parameter and 4 x layers x width for each token behind it
(Kaplan et al. 2020, "Scaling Laws for Neural Language Models", arXiv:2001.08361, table 1), a
distribution asked for two a weight of the head. `update_planner` makes plans.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vestige.attacks.update.forward_tokens import Passes, Work

LONG = 900
"""Seconds from which on a plan says what `--minutes` would do."""


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
        from vestige.models.shared_vocabulary import SharedIds

        if isinstance(model, SharedIds):
            return cls.of(model.model)
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
