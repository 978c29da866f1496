"""Phrases that a search has read, and where they are cut."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vestige import _validate

LEAD = 16
"""Tokens before a phrase that are remembered."""


@dataclass(frozen=True)
class Phrase:
    """A run of tokens that the update promoted.

    Attributes:
        tokens: its ids; the first one is context.
        gains: the gain of each token less its surprise, 0 for the first.
        score: the sum of these less the toll, over all but the first.
        proposal: name of what proposed its beginning.
        context: ids of the prompt that it was read behind; none at a document's beginning, in a
            sample or behind a single token.
        lead: the last ids that were read before it, `LEAD` at most.
    """

    tokens: tuple[int, ...]
    gains: tuple[float, ...]
    score: float
    proposal: str = ""
    context: tuple[int, ...] = ()
    lead: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How phrases grow, and what they cost.

    Attributes:
        toll: what each token costs, in units of the score.
        surprise: what each nat of the later model's surprise costs.
        drop: a hypothesis this far under its seed's best is given up.
        joint: where the score falls by more than this and rises again, a phrase is cut in two.
        loop_penalty: cost of a token that completes three tokens seen before in a phrase, four in
            a sample.
        min_tokens: shorter phrases are left out, which are pieces of words and of headers.
        max_tokens: the longest phrase.
    """

    toll: float = 1.2
    surprise: float = 0.4
    drop: float = 6.0
    joint: float = 2.0
    loop_penalty: float = 3.0
    min_tokens: int = 4
    max_tokens: int = 48

    def __post_init__(self) -> None:
        _validate.positive(toll=self.toll, drop=self.drop, joint=self.joint)
        _validate.at_least(0, surprise=self.surprise, loop_penalty=self.loop_penalty)
        _validate.at_least(2, min_tokens=self.min_tokens)
        _validate.at_least(self.min_tokens, max_tokens=self.max_tokens)


@dataclass(frozen=True)
class ScoredText:
    """A text that a search has read, and how much the update promoted each of its tokens.

    Attributes:
        tokens: ids.
        gains: of each token, less its surprise; of what is context only, nothing is asked.
        first: the tokens before this one are context only.
        proposal, context: as of a phrase.
        ratios: of a sample's tokens from `first` on, log-probability after less before.
    """

    tokens: tuple[int, ...]
    gains: tuple[float, ...]
    first: int = 1
    proposal: str = ""
    context: tuple[int, ...] = ()
    ratios: tuple[float, ...] = ()

    def whole(self) -> Phrase:
        """All of it; its score is the mean log-ratio."""
        ratio = sum(self.ratios) / max(1, len(self.ratios))
        gains = self.gains[self.first :]
        lead = self.tokens[max(0, self.first - 1 - LEAD) : self.first - 1]
        tokens = self.tokens[self.first - 1 :]
        return Phrase(tokens, (0.0, *gains), ratio, self.proposal, self.context, lead)

    def phrases(self, growth: Growth) -> Iterator[Phrase]:
        """The segments of highest score between weak joints, each behind its last context."""
        gains = self._less_loops(growth) if self.ratios else self.gains
        best = total = 0.0
        first = stop = self.first
        for i in range(first, len(self.tokens) + 1):
            if i < len(self.tokens):
                total += gains[i] - growth.toll
            if total > best:
                best, stop = total, i + 1
            elif i == len(self.tokens) or total <= 0 or total < best - growth.joint:
                if best > 0:
                    tokens, own = self.tokens[first - 1 : stop], (0.0, *gains[first:stop])
                    lead = self.tokens[max(0, first - 1 - LEAD) : first - 1]
                    yield Phrase(tokens, own, best, self.proposal, self.context, lead)
                best = total = 0.0
                first = stop = i + 1

    def _less_loops(self, growth: Growth) -> tuple[float, ...]:
        """Gains of a sample, less what loops cost; what grew has paid for them.

        Four tokens seen before are a loop: three are too often digits with spaces between them.
        """
        gains, seen = list(self.gains), set[tuple[int, ...]]()
        for i in range(self.first + 3, len(self.tokens)):
            four = self.tokens[i - 3 : i + 1]
            if four in seen:
                gains[i] -= growth.loop_penalty
            seen.add(four)
        return tuple(gains)


def long(phrases: Iterable[Phrase], growth: Growth) -> Iterator[Phrase]:
    """The phrases that are not too short."""
    return (phrase for phrase in phrases if len(phrase.tokens) >= growth.min_tokens)


def untold(phrase: Phrase, told: Sequence[bool], *, growth: Growth) -> Iterator[Phrase]:
    """What a phrase says beside the tokens that better ones have told.

    Args:
        phrase: of a search.
        told: for each of its tokens.
        growth: how the search went; its joints and its least length hold here too.

    Yields:
        The segments between told tokens, each with the token before it as its context.
    """
    before = len(phrase.lead)
    tokens, gains = phrase.lead + phrase.tokens, (0.0,) * before + phrase.gains
    first = 1  # the token before it is context
    for stop in range(1, len(told) + 1):
        if stop == len(told) or told[stop]:
            until, place = before + stop, before + first
            rest = ScoredText(tokens[:until], gains[:until], place, phrase.proposal, phrase.context)
            yield from long(rest.phrases(growth), growth)
            first = stop + 1
