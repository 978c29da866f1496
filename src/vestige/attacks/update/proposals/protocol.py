"""What a proposal is: units of work that propose phrases, in front of one extension."""

import hashlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

import torch

from vestige.attacks.update.extension import Seed, grow
from vestige.attacks.update.forward_tokens import Work
from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.phrases import Growth, ScoredText
from vestige.attacks.update.token_scores import less_surprise


@dataclass(frozen=True)
class Outcome:
    """What a unit of work gave.

    Attributes:
        texts: that it read; phrases are cut out of them.
        seeds: for later units of the same proposal.
    """

    texts: tuple[ScoredText, ...] = ()
    seeds: tuple[Seed, ...] = ()

    def plain(self) -> dict[str, Any]:
        """As JSON holds it: a row for each, its fields in their order."""
        return {name: [list(vars(one).values()) for one in getattr(self, name)]
                for name in ("texts", "seeds")}  # fmt: skip

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "Outcome":
        """What `plain` wrote."""
        return cls(
            tuple(ScoredText(*map(_value, row)) for row in plain["texts"]),
            tuple(Seed(*map(_value, row)) for row in plain["seeds"]),
        )


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True)
class Unit:
    """A bounded piece of work.

    Attributes:
        key: its name, the same in every search with these settings.
        run: what it does; determined by the search so far.
    """

    key: str
    run: Callable[[], Outcome]


@dataclass(frozen=True)
class Turn:
    """How one turn of a dialogue ends and the next begins.

    Attributes:
        ends: ids that end the first.
        then: ids that are read in place of such an end; the next turn begins behind them.
    """

    ends: tuple[int, ...]
    then: tuple[int, ...]


Units = Generator[Unit, Outcome, None]
"""Units in order; each one's outcome is sent before the next is asked for."""


@dataclass(frozen=True)
class Ground:
    """What is searched, and what has been found there so far.

    Attributes:
        plain: the two snapshots and the score of a token.
        growth: how phrases grow.
        end: the id that ends a document; no phrase crosses it.
        starts: ids behind which a document's text begins: the document's beginning and the
            prompts that were given.
        seed: of all that is drawn.
        turns: of starts behind which a turn is written, and not yet the last.
        pairs: neighbouring tokens of all phrases found so far.
    """

    plain: ModelPair
    growth: Growth
    end: int
    starts: tuple[tuple[int, ...], ...]
    seed: int = 0
    turns: Mapping[tuple[int, ...], Turn] = field(default_factory=dict)
    pairs: set[tuple[int, int]] = field(default_factory=set)

    @property
    def pair(self) -> ModelPair:
        """The two snapshots with the score that phrases have: less the later one's surprise."""
        return self.plain.with_score(less_surprise(self.plain.score, self.growth.surprise))

    @property
    def never(self) -> list[int]:
        """Ids that no phrase holds but as its first context."""
        beginning = self.plain.beginning
        return [self.end] if beginning is None else sorted({self.end, beginning})

    def add(self, texts: Iterable[ScoredText]) -> None:
        """Remember what the phrases of texts hold: it is not looked for again."""
        for text in texts:
            for phrase in text.phrases(self.growth):
                self.pairs.update(pairwise(phrase.tokens))

    def generator(self, key: str) -> torch.Generator:
        """Chance of one unit, whatever was drawn in others."""
        digest = hashlib.sha256(f"{self.seed} {key}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))

    def grown(
        self, seeds: Sequence[Seed], proposal: str, *, beam: int = 1, toll: float | None = None
    ) -> Outcome:
        """What grows from the seeds whose first pair no phrase holds yet."""
        fresh = [one for one in seeds if (one.context[-1], one.token) not in self.pairs]
        pair, growth, end = self.pair, self.growth, self.end
        if toll is not None:
            growth = replace(growth, toll=min(toll, growth.toll))
        texts = [
            replace(text, proposal=proposal, context=self.prompt(seed.context))
            for seed, text in grow(pair, fresh, growth, end=end, beam=beam)
        ]
        return Outcome(tuple(texts))

    def prompt(self, context: tuple[int, ...]) -> tuple[int, ...]:
        """A context where it is a prompt, else none."""
        return context if context in self.starts[1:] else ()


class Proposal(Protocol):
    """A way to find where phrases begin: frozen settings with two methods.

    Attributes:
        name: under which findings and costs are told; a search has one proposal of a name.
    """

    @property
    def name(self) -> str: ...

    def units(self, ground: Ground) -> Units:
        """The work in pieces; what earlier units found is in `ground` by then."""
        ...

    def planned(self, pair: ModelPair, starts: Sequence[tuple[int, ...]]) -> Work:
        """What the units cost, as far as one can say before."""
        ...
