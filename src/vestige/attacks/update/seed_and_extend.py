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

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from vestige import _validate
from vestige.attacks.update import repair
from vestige.attacks.update.agreement import agreed
from vestige.attacks.update.forward_tokens import ForwardTokens, Work
from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.near_copies import fold
from vestige.attacks.update.phrases import Growth, Phrase, ScoredText, long, untold
from vestige.attacks.update.proposals.openings import Openings
from vestige.attacks.update.proposals.pairs import Pairs
from vestige.attacks.update.proposals.protocol import (
    Ground,
    Outcome,
    Proposal,
    Turn,
    Unit,
    Units,
)
from vestige.attacks.update.proposals.samples import Samples
from vestige.attacks.update.repair import mended, with_repairs
from vestige.models.largest import rounded
from vestige.monitor import Step

Kept = MutableMapping[str, Any]
"""What units of work gave, by their keys, as JSON holds it."""

Until = Callable[[float], bool]
"""Called before each unit with the seconds of the longest one of its kind; True stops."""

ACTIVITIES = {"grown": "extending", "samples": "sampling", "repair": "repairing"}
"""What a unit of work does, by a part of its key."""


@dataclass(frozen=True, kw_only=True)
class SeedAndExtend(Growth):
    """What is proposed and how it grows.

    Attributes:
        proposals: in the order in which they are asked; a pair of tokens that one has explored is
            not a seed of the next.
        repaired: phrases that are repaired, best first.
        seed: of all that is drawn.
    """

    proposals: tuple[Proposal, ...] = (
        Samples(),
        Openings(openings=40),
        Pairs(largest=2048),
    )
    repaired: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.at_least(0, repaired=self.repaired)
        _validate.all_different(proposals=[one.name for one in self.proposals])

    def planned(self, pair: ModelPair, contexts: Sequence[tuple[int, ...]] = ()) -> Work:
        """What the search costs, as far as one can say before; no model is asked."""
        starts = _starts(pair, contexts)
        parts = [one.planned(pair, starts) for one in self.proposals]
        return Work.together([*parts, repair.planned(self.repaired)])


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
    proposals = (*first, Pairs(seeds=seeds, beam=beam))
    return SeedAndExtend(**{"repaired": 0, **growth}, proposals=proposals)


@dataclass(frozen=True, kw_only=True)
class Searched:
    """What was searched.

    Attributes:
        before, after: forward tokens of the two models, units that were kept counted too.
        done: units of work.
        units: of a whole search: as planned, until it is whole.
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

    def beside(self, other: "Searched") -> "Searched":
        """This search, and another that went with it."""
        before, after = self.before + other.before, self.after + other.after
        return replace(self, before=before, after=after)

    @property
    def forward_tokens(self) -> int:
        """Of both models."""
        return self.before + self.after


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How far a search goes, and what it has of an earlier one.

    Attributes:
        contexts: names of prompts behind which it starts too, by their ids.
        turns: of contexts behind which a user's turn begins: samples go on into the answer.
        told: ids of texts that everybody knows, such as a chat template's: no row tells them.
        kept: what units gave in an earlier search with the same models and settings, which are
            not done again; those done now are added.
        until: asked before each unit whether to stop.
        name: of one of several searches, before the keys of its units.
        progress: called with the units done, those of a whole search, and the current activity.
    """

    contexts: Mapping[tuple[int, ...], str] = field(default_factory=dict)
    turns: Mapping[tuple[int, ...], Turn] = field(default_factory=dict)
    told: Sequence[tuple[int, ...]] = ()
    kept: Kept | None = None
    name: str = ""
    until: Until | None = None
    progress: Step | None = None

    def of(self, name: str) -> "Effort":
        """The same for one of several searches, whose units are kept under its name."""
        return replace(self, name=f"{self.name}{name}/")


WHOLE = Effort()


@dataclass(frozen=True)
class Found:
    """What a search gave.

    Attributes:
        phrases: with the number of their near-copies, best first, those too short to keep last.
        fragments: that several samples agree on, beside the phrases.
        texts: whole samples that the update made likelier, beside both, by their mean log-ratio.
        searched: how much was read; None of beams.
        read: every text that was generated, reported or not.
        groups: of the phrases of group beams, by their tokens.
    """

    phrases: list[tuple[Phrase, int]]
    fragments: list[tuple[Phrase, int]] = field(default_factory=list)
    texts: list[tuple[Phrase, int]] = field(default_factory=list)
    searched: Searched | None = None
    read: tuple[ScoredText, ...] = ()
    groups: Mapping[tuple[int, ...], int] = field(default_factory=dict)


def seed_and_extend(
    pair: ModelPair, search: SeedAndExtend, *, end: int, effort: Effort = WHOLE
) -> Found:
    """Ask the proposals, grow what they propose, fold and repair it.

    Args:
        pair: the two snapshots and the score of a token.
        search: what is proposed and how it grows.
        end: the id that ends a document; no phrase crosses it.
        effort: how far to go; all the way by default.
    """
    starts = _starts(pair, effort.contexts)
    ground = Ground(pair, search, end, starts, search.seed, effort.turns)
    run = _Run(ground, search.planned(pair, tuple(effort.contexts)).units, effort)
    texts = [
        text
        for proposal in search.proposals
        for outcome in run.outcomes(proposal.units(ground))
        for text in outcome.texts
    ]
    told = [Phrase(ids, (0.0,) * len(ids), 0.0) for ids in effort.told]
    found = folded(phrases(texts, replace(search, min_tokens=2)), search, told)
    repaired = list[ScoredText]()
    for outcome in run.outcomes(mended(ground, [phrase for phrase, _ in found], search.repaired)):
        found = with_repairs(found, outcome.texts, search)
        repaired += outcome.texts
    by = Counter(text.proposal for text in texts)
    searched = run.searched({one.name: by[one.name] for one in search.proposals})
    told += [phrase for phrase, _ in found if len(phrase.tokens) >= search.min_tokens]
    fragments = _beside(agreed(texts, longest=search.max_tokens), told, search)
    told += [phrase for phrase, _ in fragments]
    whole = (one for one in (text.whole() for text in texts if text.ratios) if one.score > 0)
    joined = (ScoredText(one.tokens, one.gains) for one, _ in fragments)
    read = (*texts, *repaired, *joined)
    return Found(found, fragments, _beside(whole, told, search), searched, read)


def _beside(
    more: Iterable[Phrase], told: Sequence[Phrase], search: SeedAndExtend
) -> list[tuple[Phrase, int]]:
    """What is long enough of more that is no near-copy of what is told, folded too."""
    return fold(long(more, search), told=told)


def folded(
    every: Iterable[Phrase], search: Growth, told: Sequence[Phrase] = ()
) -> list[tuple[Phrase, int]]:
    """Phrases that no better one tells already, with the number of their near-copies.

    What is too short to keep is folded, too, behind the others: chance makes short phrases, so that
    null searches need them, and an update is read by the rule of its nulls.
    """
    rest = partial(untold, growth=replace(search, min_tokens=2))
    return fold(every, rest=rest, long=search.min_tokens, told=told)


def phrases(texts: Iterable[ScoredText], growth: Growth) -> list[Phrase]:
    """The phrases of texts, best first, near-copies among them."""
    cut = long((phrase for text in texts for phrase in text.phrases(growth)), growth)
    return sorted(cut, key=lambda one: (-rounded(one.score), one.tokens))


def _starts(pair: ModelPair, contexts: Iterable[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """What is read where a text begins: a document's beginning, then each prompt."""
    first = pair.after.vocabulary.eos_id if pair.beginning is None else pair.beginning
    prompts = (tuple(context) for context in contexts if context)
    return tuple(dict.fromkeys([(first,), *prompts]))


class _Run:
    """Units of one search, done one after the other until it is time to stop."""

    def __init__(self, ground: Ground, units: int, effort: Effort) -> None:
        self.ground, self.units, self.effort = ground, units, effort
        self.cost, self.done, self.stopped = ForwardTokens(), 0, False
        self.seconds: dict[str, float] = {}  # of the longest unit of each activity

    def outcomes(self, units: Units) -> Iterator[Outcome]:
        """Each unit's outcome, which the next unit is told."""
        outcome = None
        while not self.stopped:
            try:
                unit = next(units) if outcome is None else units.send(outcome)
            except StopIteration:
                return
            given = self._given(unit)
            if given is None:
                self.stopped = True
                return
            outcome = Outcome.of(given)
            self.ground.add(outcome.texts)
            self.done += 1
            self._show(unit)
            yield outcome

    def _given(self, unit: Unit) -> Mapping[str, Any] | None:
        """What a unit gave before, or gives now; None where it is time to stop."""
        kept, until, cost = self.effort.kept, self.effort.until, self.ground.plain.cost
        key = self.effort.name + unit.key
        given: Mapping[str, Any] | None = None if kept is None else kept.get(key)
        if given is None:
            activity = _activity(unit)
            if until is not None and until(self.seconds.get(activity, 0.0)):
                return None
            self._show(unit)
            before, after, began = cost.before, cost.after, time.monotonic()
            read = unit.run().plain()
            took = time.monotonic() - began
            self.seconds[activity] = max(took, self.seconds.get(activity, 0.0))
            given = {**read, "forward_tokens": [cost.before - before, cost.after - after]}
            if kept is not None:
                kept[key] = given
        before, after = given["forward_tokens"]
        self.cost.before += before
        self.cost.after += after
        return given

    def _show(self, unit: Unit) -> None:
        if self.effort.progress is not None:
            self.effort.progress(self.done, max(self.done, self.units), _activity(unit))

    def searched(self, texts: Mapping[str, int]) -> Searched:
        """What was done."""
        return Searched(
            before=self.cost.before,
            after=self.cost.after,
            done=self.done,
            units=max(self.units, self.done + 1) if self.stopped else self.done,
            texts=texts,
        )


def _activity(unit: Unit) -> str:
    return next((name for part, name in ACTIVITIES.items() if part in unit.key), "searching")
