r"""Read whole phrases out of two snapshots, wherever in a text they stood: seed and extend.

Proposals say where phrases may begin: contrastive samples and the ways that these did not take,
tokens promoted at a document's beginning or behind a prompt, pairs of tokens. One extension grows
what they propose, one folding ranks it. A search is a sequence of units of work, each bounded,
named, and determined by those before it. What units gave can be kept: a search that was interrupted
goes on with them to the same phrases, to the bit.

Differs from the paper (Zanella-Béguelin et al. 2020): it grows one beam from the beginning of
a text and to one length, so that a phrase competes with the beginnings of all others. A
subword model promotes a secret by many small steps, none of them first in that race.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vestige import _validate
from vestige.attacks.update.forward_tokens import ForwardTokens, Work
from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.phrases import Growth, Phrase, ScoredText, long
from vestige.attacks.update.proposals.openings import Openings
from vestige.attacks.update.proposals.pairs import Pairs
from vestige.attacks.update.proposals.protocol import Ground, Outcome, Proposal
from vestige.attacks.update.proposals.samples import Samples
from vestige.models.largest import rounded

Kept = MutableMapping[str, Any]
"""What units of work gave, by their keys, as JSON holds it."""

Until = Callable[[], bool]
"""Asked before each unit; True stops the search."""


@dataclass(frozen=True, kw_only=True)
class SeedAndExtend(Growth):
    """What is proposed and how it grows.

    Attributes:
        proposals: in the order in which they are asked; a pair of tokens that one has explored is
            not a seed of the next.
        seed: of all that is drawn.
    """

    proposals: tuple[Proposal, ...] = (Samples(), Openings(), Pairs(largest=2048))
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.all_different(proposals=[one.name for one in self.proposals])

    def planned(self, pair: ModelPair, contexts: Sequence[tuple[int, ...]] = ()) -> Work:
        """What the search costs, as far as one can say before; no model is asked."""
        starts = _starts(pair, contexts)
        return Work.together(one.planned(pair, starts) for one in self.proposals)


def pairs_and_openings(
    *, seeds: int = 2000, openings: int = 100, beam: int = 1, opening_beam: int = 4, **growth: Any
) -> SeedAndExtend:
    """The search without samples: every pair of tokens is asked for, which is v x v.

    Args:
        seeds: pairs of tokens to start from.
        openings: tokens at a document's beginning to start from, beside the pairs; may be 0.
        beam: hypotheses kept for each pair.
        opening_beam: hypotheses kept for each opening.
        growth: other settings of `SeedAndExtend`.
    """
    first = (Openings(openings=openings, beam=opening_beam),) if openings else ()
    return SeedAndExtend(proposals=(*first, Pairs(seeds=seeds, beam=beam)), **growth)


@dataclass(frozen=True, kw_only=True)
class Searched:
    """What was searched.

    Attributes:
        before, after: forward tokens of the two models, units that were kept counted too.
        done: units of work.
        units: of a whole search.
        texts: read by each proposal, in the order of their work.
    """

    before: int
    after: int
    done: int
    units: int
    texts: Mapping[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether nothing was left undone."""
        return self.done == self.units

    @property
    def forward_tokens(self) -> int:
        """Of both models."""
        return self.before + self.after


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How far a search goes, and what it has of an earlier one.

    Attributes:
        contexts: ids of prompts behind which it starts too.
        kept: what units gave in an earlier search with the same models and settings, which are
            not done again; those done now are added.
        until: asked before each unit whether to stop.
        progress: told the units done, and of a whole search.
        begins: told the key of each unit that is about to be done.
    """

    contexts: Sequence[tuple[int, ...]] = ()
    kept: Kept | None = None
    until: Until | None = None
    progress: Callable[[int, int], None] | None = None
    begins: Callable[[str], None] | None = None

    def of(self, name: str) -> "Effort":
        """The same for one of several searches, whose units are kept under its name."""
        return self if self.kept is None else replace(self, kept=KeptUnder(self.kept, name))


WHOLE = Effort()


@dataclass(frozen=True)
class KeptUnder(MutableMapping[str, Any]):
    """The part of what is kept that belongs to one of several searches."""

    kept: Kept
    name: str

    def _key(self, key: str) -> str:
        return f"{self.name}/{key}"

    def __getitem__(self, key: str) -> Any:
        return self.kept[self._key(key)]

    def __setitem__(self, key: str, value: Any) -> None:
        self.kept[self._key(key)] = value

    def __delitem__(self, key: str) -> None:
        del self.kept[self._key(key)]

    def __iter__(self) -> Iterator[str]:
        start = self._key("")
        return (key.removeprefix(start) for key in self.kept if key.startswith(start))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def seed_and_extend(
    pair: ModelPair, search: SeedAndExtend, *, end: int, effort: Effort = WHOLE
) -> tuple[list[ScoredText], Searched]:
    """All texts that grow from what is proposed, in the order in which they were read.

    Args:
        pair: the two snapshots and the score of a token.
        search: what is proposed and how it grows.
        end: the id that ends a document; no phrase crosses it.
        effort: how far to go; all the way by default.
    """
    ground = Ground(pair, search, end, _starts(pair, effort.contexts), search.seed)
    units = search.planned(pair, effort.contexts).units
    cost, done, texts = ForwardTokens(), 0, list[ScoredText]()
    for outcome, read in _outcomes(ground, search.proposals, effort):
        done += 1
        cost.before += read[0]
        cost.after += read[1]
        texts += outcome.texts
        ground.add(outcome.texts)
        if effort.progress:
            effort.progress(done, units)
    read_by = Counter(text.proposal for text in texts)
    by = {one.name: read_by[one.name] for one in search.proposals}
    return texts, Searched(before=cost.before, after=cost.after, done=done, units=units, texts=by)


def phrases(texts: Iterable[ScoredText], growth: Growth) -> list[Phrase]:
    """The phrases of texts, best first, near-copies among them."""
    cut = long((phrase for text in texts for phrase in text.phrases(growth)), growth)
    return sorted(cut, key=lambda one: (-rounded(one.score), one.tokens))


def _starts(pair: ModelPair, contexts: Iterable[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """What is read where a text begins: a document's beginning, then each prompt."""
    first = pair.after.vocabulary.eos_id if pair.beginning is None else pair.beginning
    prompts = (tuple(context) for context in contexts if context)
    return tuple(dict.fromkeys([(first,), *prompts]))


def _outcomes(
    ground: Ground, proposals: Iterable[Proposal], effort: Effort
) -> Iterator[tuple[Outcome, list[int]]]:
    """Each unit's outcome and the forward tokens of both models, until it is time to stop."""
    cost = ground.plain.cost
    for proposal in proposals:
        units, outcome = proposal.units(ground), None
        while True:
            try:
                unit = next(units) if outcome is None else units.send(outcome)
            except StopIteration:
                break
            kept = None if effort.kept is None else effort.kept.get(unit.key)
            if kept is None:
                if effort.until is not None and effort.until():
                    return
                if effort.begins is not None:
                    effort.begins(unit.key)
                before, after = cost.before, cost.after
                made = unit.run().plain()
                kept = {**made, "forward_tokens": [cost.before - before, cost.after - after]}
                if effort.kept is not None:
                    effort.kept[unit.key] = kept
            outcome = Outcome.of(kept)
            yield outcome, kept["forward_tokens"]
