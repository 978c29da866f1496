"""Forward tokens of a search: what it costs, counted and expected.

A token that a model reads costs about two floating-point operations a parameter, whatever the
search: rows x tokens is the unit by which methods are compared.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal


@dataclass
class ForwardTokens:
    """Counter of the tokens that the two models of a pair have read.

    Attributes:
        before: by the earlier model.
        after: by the later one.
    """

    before: int = 0
    after: int = 0

    @property
    def total(self) -> int:
        """By both."""
        return self.before + self.after

    def add(self, tokens: int) -> None:
        """Count tokens that both have read."""
        self.before += tokens
        self.after += tokens


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Forward passes of one shape, one after the other.

    Attributes:
        proposal: name of what asks for them.
        kind: "prefill" reads several tokens a row at once, "decode" one.
        rows: read side by side, on average.
        tokens: of each row in a pass.
        count: how many passes.
        behind: tokens that each row has read before, on average.
        before: share of the rows that the earlier model reads too.
        asked: rows of a pass whose next token is asked for.
        grown: whether they extend seeds; else they read starts and draw samples.
    """

    proposal: str
    kind: Literal["prefill", "decode"]
    rows: float
    tokens: int = 1
    count: float = 1
    behind: float = 0
    before: float = 1.0
    asked: float = 0
    grown: bool = False

    @property
    def forward_tokens(self) -> float:
        """Of the later model."""
        return self.rows * self.tokens * self.count


@dataclass(frozen=True)
class Work:
    """What a search is expected to cost.

    Attributes:
        units: of work, between which it can be stopped.
        passes: of the forward passes.
    """

    units: int = 0
    passes: tuple[Passes, ...] = field(default=())

    @classmethod
    def together(cls, parts: Iterable["Work"]) -> "Work":
        """The work of several."""
        every = list(parts)
        passes = tuple(one for part in every for one in part.passes)
        return cls(sum(part.units for part in every), passes)

    @property
    def after(self) -> int:
        """Forward tokens of the later model."""
        return round(sum(one.forward_tokens for one in self.passes))

    @property
    def before(self) -> int:
        """Forward tokens of the earlier model."""
        return round(sum(one.forward_tokens * one.before for one in self.passes))

    @property
    def total(self) -> int:
        """Of both."""
        return self.before + self.after
