"""The searches behind `vestige diff`: the update's and those of its null models, by one rule."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from vestige import __version__
from vestige.attacks.update.diff_result import UpdateDiff
from vestige.attacks.update.known_phrases import Asked, KnownPhrase, known_phrases, told_by
from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.null_searches import NullScores
from vestige.attacks.update.proposals.samples import Samples
from vestige.attacks.update.seed_and_extend import Effort, Kept, KeptUnder, SeedAndExtend
from vestige.attacks.update.token_scores import TokenScore
from vestige.attacks.update.update_diff import Beams, null_search, update_diff
from vestige.models.protocols import LanguageModel
from vestige.models.snapshots import ComparedNulls
from vestige.monitor import Monitor, Step
from vestige.workflows.kept_search import Nowhere
from vestige.workflows.update_contexts import Contexts
from vestige.workflows.update_planner import Planner, sized

DOING = {"samples": "sampling", "grown": "extending", "repair": "repairing"}
"""What a unit of work does, by a part of its key."""


@dataclass
class _Bar:
    """One bar for all searches, so that it never goes back.

    Attributes:
        step: of the monitor.
        searches: the update's and those of null models.
        units: of work in each.
        number: of the search that is under way; 0 is the update's.
        share: of that which is done.
        doing: what its unit does.
    """

    step: Step
    searches: int
    units: int
    number: int = 0
    share: float = 0.0
    doing: str = "searching"

    def of(self, number: int, effort: Effort) -> Effort:
        """An effort that tells how far one of the searches is."""
        self.number, self.share = number, 0.0
        return replace(effort, progress=self.progress, begins=self.begins)

    def begins(self, key: str) -> None:
        """Told what a unit of work does before it is done."""
        self.doing = next((word for part, word in DOING.items() if part in key), "searching")
        self._tell()

    def progress(self, done: int, units: int) -> None:
        """Told the units done of one search, and how many it has."""
        self.share = min(1.0, done / units)
        self._tell()

    def ends(self) -> None:
        """Told that no null model is searched."""
        self.number, self.share = self.searches - 1, 1.0
        self._tell()

    def _tell(self) -> None:
        which = f"null {self.number} of {self.searches - 1}, " if self.number else ""
        done = round((self.number + self.share) * self.units)
        self.step(done, self.searches * self.units, which + self.doing)


@dataclass(frozen=True)
class _NullSearch:
    """What the search of a null model gave.

    Attributes:
        scores: of its phrases.
        known: of the listed secrets.
        change: how far it moved the weights, as a multiple of the update's change, where known.
    """

    scores: list[float]
    known: list[float]
    change: float | None


@dataclass(frozen=True, kw_only=True)
class Searches:
    """What is searched, and how.

    Attributes:
        before, after: the models by the roles that they have in the search.
        search, score: the settings of each search.
        contexts: behind what it begins, beside a document's beginning.
        nulls: models that are searched like the later one.
        known: phrases that are scored by themselves.
        planner: of searches of these models.
        minutes: for all searches together.
        monitor: told the plan, and how far it is.
        begun: when planning begins: the minutes are counted from there.
    """

    before: LanguageModel
    after: LanguageModel
    search: SeedAndExtend | Beams
    score: TokenScore
    contexts: Contexts
    nulls: ComparedNulls
    planner: Planner
    known: Sequence[Asked] = ()
    minutes: float | None = None
    monitor: Monitor
    begun: float = field(default_factory=time.monotonic)

    def planned(self, size: float | None, place: Nowhere) -> "tuple[Searches, float]":
        """The same with the size that is asked for, was begun with, or fits into the minutes."""
        if isinstance(self.search, Beams):
            return self, 1.0
        if size is None:
            size = place.chosen().get("size")
        if size is None and self.minutes is not None:
            share = 60 * self.minutes / (1 + len(self.nulls.given))
            size = self.planner.size_for(self.search, share)
        size = 1.0 if size is None else float(size)
        return replace(self, search=sized(self.search, size)), size

    def run(
        self, place: Nowhere, models: Mapping[str, object], *, size: float, top: int
    ) -> tuple[UpdateDiff, dict[str, object]]:
        """Search the update, then every null model; what is done is kept.

        Args:
            place: where.
            models: what tells one pair from another.
            size: of the search, for the plan.
            top: phrases to keep.

        Returns:
            The result, and the plan that it had.
        """
        kept = place.opened(self._identity(models, size), self.monitor)
        plan = self._tell_plan(kept, size)
        deadline = None if self.minutes is None else self.begun + 60 * self.minutes
        with self.monitor.progress("searching") as step:
            bar = _Bar(step, 1 + len(self.nulls.given), units=self._units)
            effort = Effort(
                contexts=self.contexts.names,
                turns=self.contexts.turns,
                told=self.contexts.told,
                until=None if deadline is None else lambda: time.monotonic() > deadline,
            )
            own = bar.of(0, replace(effort, kept=KeptUnder(kept, "update")))
            found = update_diff(
                self.before, self.after, search=self.search, score=self.score, listed=self.known,
                top=top, effort=own,
            )  # fmt: skip
            if found.prevented is None:
                nulls = list(self._null_searches(effort, kept, bar))
            else:  # no null model would change the verdict
                nulls = []
                bar.ends()
        found = replace(found, nulls_asked=len(self.nulls.given))
        if found.prevented is not None and found.nulls_asked:
            self.monitor.log(f"{found.prevented.sentence} Null models are not searched.")
        if nulls:
            found = replace(
                found,
                nulls=NullScores.of(one.scores for one in nulls),
                changes=tuple(one.change for one in nulls),
            )
        compared = [[one.known[n] for one in nulls] for n in range(len(found.known))]
        told = [finding.lead + finding.tokens for finding in found.findings]
        found = replace(
            found,
            known=tuple(
                _compared(one, asked, scores, told)
                for one, asked, scores in zip(found.known, self.known, compared, strict=True)
            ),
        )
        if found.complete is False:
            self.monitor.log(_stopped(found))
        return found, plan

    @property
    def _units(self) -> int:
        """Of work in each search."""
        if isinstance(self.search, Beams):
            return 1
        return self.search.planned(self.planner.pair, tuple(self.contexts.names)).units

    def _identity(self, models: Mapping[str, object], size: float) -> dict[str, object]:
        """All that decides what a unit of work gives."""
        return {
            "version": __version__,
            "models": models,
            "search": settings(self.search),
            "score": {"name": self.score.name, "least": self.score.least},
            "contexts": [list(ids) for ids in self.contexts.names],
            "told": [list(ids) for ids in self.contexts.told],
            "turns": [[turn.ends, turn.then] for turn in self.contexts.turns.values()],
            "size": size,
        }

    def _tell_plan(self, kept: Kept, size: float) -> dict[str, object]:
        if isinstance(self.search, Beams):
            return {}
        done = sum(f"null/{each}/scores" in kept for each in self.nulls.hashes)
        searches = 1 + len(self.nulls.given)
        plan = self.planner.plan(
            self.search, searches=searches, left=searches - done,
            names=list(self.contexts.names.values()), size=size,
        )  # fmt: skip
        for line in plan.lines(self.minutes):
            self.monitor.log(line)
        return plan.record()

    def _null_searches(self, effort: Effort, kept: Kept, bar: _Bar) -> Iterator["_NullSearch"]:
        """What a search of each null model gave, until the time is over."""
        asked = [list(one.within) for one in self.known]
        moved = self.nulls.moved(self.before, self.after)
        for number, (given, weights) in enumerate(
            zip(self.nulls.given, self.nulls.hashes, strict=True), 1
        ):
            own = KeptUnder(kept, f"null/{weights}")
            phrases = own.get("known", {})
            if not {"scores", "change"} <= own.keys() or phrases.get("asked") != asked:
                if "scores" not in own and effort.until is not None and effort.until():
                    return
                null, own["change"] = self.nulls.moved_as_far(given, self.before, moved)
                if "scores" not in own:
                    scores = null_search(
                        self.before, null, search=self.search, score=self.score,
                        effort=bar.of(number, replace(effort, kept=own)),
                    )  # fmt: skip
                    if scores is None:
                        return
                    own["scores"] = scores
                scored = [one.score for one in self._known(null)]
                own["known"] = phrases = {"asked": asked, "scores": scored}
            yield _NullSearch(own["scores"], phrases["scores"], own["change"])

    def _known(self, after: LanguageModel) -> list[KnownPhrase]:
        pair = ModelPair(self.before, after, self.score)
        return known_phrases(pair, self.known, contexts=self.contexts.names) if self.known else []


def settings(search: SeedAndExtend | Beams) -> dict[str, Any]:
    """The settings of a search, those of a proposal by its name."""
    plain = asdict(search)
    if isinstance(search, SeedAndExtend):
        plain["proposals"] = {one.name: asdict(one) for one in search.proposals}  # type: ignore[call-overload]
    return plain


def room(search: SeedAndExtend | Beams) -> int:
    """Tokens that a model reads behind a context, at most."""
    if isinstance(search, Beams):
        return search.length + 1
    lengths = [getattr(proposal, "length", 0) for proposal in search.proposals]
    return max(search.max_tokens, *lengths) + 1


def fitted(
    search: SeedAndExtend | Beams, models: Sequence[object], *, behind: int
) -> SeedAndExtend | Beams:
    """The search with texts that models of few positions can read.

    Args:
        search: as it was asked for.
        models: `longest` of each, where it has one, bounds what it reads.
        behind: tokens of the longest context, a document's beginning counted.
    """
    limits = [most for model in models if (most := getattr(model, "longest", None)) is not None]
    if not limits or isinstance(search, Beams):
        return search
    most = min(limits) - behind
    read = max((one.context for one in search.proposals if isinstance(one, Samples)), default=1)
    proposals = tuple(
        replace(one, length=max(1, min(one.length, most))) if isinstance(one, Samples) else one
        for one in search.proposals
    )
    longest = max(search.min_tokens, min(search.max_tokens, most - read))
    return replace(search, max_tokens=longest, proposals=proposals)


def _compared(
    one: KnownPhrase, asked: Asked, nulls: Sequence[float], told: Sequence[Sequence[int]]
) -> KnownPhrase:
    row, part = told_by(one, asked, told)
    return replace(one, nulls=tuple(nulls), row_found=None if row < 0 else row, part=part)


def _stopped(found: UpdateDiff) -> str:
    searched, nulls = found.searched, 0 if found.nulls is None else len(found.nulls)
    told = ""
    if searched is not None and not searched.complete:
        told = f"{searched.done} of {searched.units} units of the search were done"
    if nulls < found.nulls_asked and found.prevented is None:
        told += f"{', and ' if told else ''}{nulls} of {found.nulls_asked} null searches"
        told += "" if " were " in told else " were done"
    return f"The time is over: {told}. The result is partial."
