"""The searches of `vestige diff`: of the update, and of its null models by the same rule."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from vestige import __version__
from vestige.attacks.update.diff_result import UpdateDiff
from vestige.attacks.update.known_phrases import Asked, KnownPhrase, known_phrases, told_by
from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.null_searches import NullScores
from vestige.attacks.update.proposals.samples import Samples
from vestige.attacks.update.seed_and_extend import Effort, SeedAndExtend
from vestige.attacks.update.token_scores import TokenScore
from vestige.attacks.update.update_diff import null_search, update_diff
from vestige.audits.update.contexts import Contexts
from vestige.audits.update.nulls import NullModels
from vestige.audits.update.planning import Planner, scaled
from vestige.models.protocols import LanguageModel
from vestige.monitor import Step
from vestige.session import Session

ACTIVITIES = {"samples": "sampling", "grown": "extending", "repair": "repairing"}
"""What a unit of work does, by a part of its key."""


@dataclass
class _Bar:
    """One progress bar for all searches, so that it never moves back.

    Attributes:
        step: of the monitor.
        searches: of the update and of null models.
        units: of work in each search.
        number: of the current search; 0 is the update's.
        share: of it that is done.
        activity: of its current unit.
    """

    step: Step
    searches: int
    units: int
    number: int = 0
    share: float = 0.0
    activity: str = "searching"

    def of(self, number: int, effort: Effort) -> Effort:
        """An effort that shows the progress of one search."""
        self.number, self.share = number, 0.0
        return replace(effort, progress=self.progress, begins=self.begins)

    def begins(self, key: str) -> None:
        """Called before each unit."""
        found = (activity for part, activity in ACTIVITIES.items() if part in key)
        self.activity = next(found, "searching")
        self._show()

    def progress(self, done: int, units: int) -> None:
        """Called after each unit."""
        self.share = min(1.0, done / units)
        self._show()

    def ends(self) -> None:
        """Called if no null model is searched."""
        self.number, self.share = self.searches - 1, 1.0
        self._show()

    def _show(self) -> None:
        which = f"null {self.number} of {self.searches - 1}, " if self.number else ""
        done = round((self.number + self.share) * self.units)
        self.step(done, self.searches * self.units, which + self.activity)


@dataclass(frozen=True)
class _NullSearch:
    """The search of a null model.

    Attributes:
        scores: of its phrases.
        secrets: scores of the listed secrets.
        change: how far it moved the weights, as a multiple of the update's change.
    """

    scores: list[float]
    secrets: list[float]
    change: float | None


@dataclass(frozen=True, kw_only=True)
class UpdateSearch:
    """What is searched, and how.

    Attributes:
        run: its store keeps finished units.
        before, after: the models, in the roles that they have in the search.
        settings, score: of every search.
        contexts: where it begins, besides a document's beginning.
        nulls: models that are searched like the later one.
        secrets: phrases that are scored by themselves.
        minutes: time limit of all searches.
        began: when planning began; the minutes count from there.
    """

    run: Session
    before: LanguageModel
    after: LanguageModel
    settings: SeedAndExtend
    score: TokenScore
    contexts: Contexts
    nulls: NullModels
    secrets: Sequence[Asked]
    minutes: float | None
    began: float = field(default_factory=time.monotonic)

    @cached_property
    def planner(self) -> Planner:
        """Plans searches of these models."""
        pair = ModelPair(self.before, self.after, self.score)
        return Planner(pair, tuple(self.contexts.names), self.run.monitor)

    def sized(self, size: float | None) -> "tuple[UpdateSearch, float]":
        """The search at the given size, that of the stored work, or one that fits the minutes."""
        if size is None:
            size = self.run.store.identity.get("size")
        if size is None and self.minutes is not None:
            seconds = 60 * self.minutes / (1 + len(self.nulls))
            size = self.planner.size_for(self.settings, seconds)
        size = 1.0 if size is None else float(size)
        return replace(self, settings=scaled(self.settings, size)), size

    def result(self, models: Mapping[str, object], *, size: float, top: int) -> UpdateDiff:
        """Search the update, then every null model.

        Args:
            models: identifies the pair of models.
            size: of the searches.
            top: phrases to report.
        """
        store = self.run.store
        store.identify(self._identity(models, size))
        self._log_plan(size)
        with self.run.progress("searching") as step:
            bar = _Bar(step, 1 + len(self.nulls), units=self._units)
            effort = Effort(
                contexts=self.contexts.names,
                turns=self.contexts.turns,
                told=self.contexts.told,
                until=None if self.minutes is None else self._is_late,
            )
            found = update_diff(
                self.before,
                self.after,
                search=self.settings,
                score=self.score,
                listed=self.secrets,
                top=top,
                effort=bar.of(0, replace(effort, kept=store.part("update/"))),
            )
            nulls = list(self._null_searches(effort, bar)) if found.prevented is None else []
            if found.prevented is not None:
                bar.ends()
        if found.prevented is not None and len(self.nulls):
            self.run.log(f"{found.prevented.sentence} Null models are not searched.")
        found = self._compared(found, nulls)
        if found.complete is False:
            self.run.log(_time_limit(found))
        return found

    @property
    def _units(self) -> int:
        """Units of work in each search."""
        return self.settings.planned(self.planner.pair, tuple(self.contexts.names)).units

    def _is_late(self) -> bool:
        return self.minutes is not None and time.monotonic() > self.began + 60 * self.minutes

    def _identity(self, models: Mapping[str, object], size: float) -> dict[str, object]:
        """Everything that determines the result of a unit of work."""
        return {
            "version": __version__,
            "models": models,
            "search": recorded(self.settings),
            "score": {"name": self.score.name, "least": self.score.least},
            "contexts": [list(ids) for ids in self.contexts.names],
            "told": [list(ids) for ids in self.contexts.told],
            "turns": [[turn.ends, turn.then] for turn in self.contexts.turns.values()],
            "size": size,
        }

    def _log_plan(self, size: float) -> None:
        finished = sum(f"null/{weights}/scores" in self.run.store for weights in self.nulls.hashes)
        searches = 1 + len(self.nulls)
        plan = self.planner.plan(
            self.settings, searches=searches, left=searches - finished, size=size
        )
        for line in plan.lines(self.minutes):
            self.run.log(line)
        names = ("the beginning of a document", *self.contexts.names.values())
        self.run.log(f"The search begins at: {', '.join(names)}.")
        self.run.configuration |= {"plan": plan.record()}

    def _null_searches(self, effort: Effort, bar: _Bar) -> Iterator[_NullSearch]:
        """The search of each null model, until the time is over."""
        texts = [list(one.within) for one in self.secrets]
        moved = self.nulls.moved(self.before, self.after)
        given = zip(self.nulls.given, self.nulls.hashes, strict=True)
        for number, (model, weights) in enumerate(given, 1):
            own = self.run.store.part(f"null/{weights}/")
            secrets = own.get("known", {})
            if not {"scores", "change"} <= own.keys() or secrets.get("asked") != texts:
                if "scores" not in own and self._is_late():
                    return
                null, change = self.nulls.opened(model, self.before, moved)
                own["change"] = change
                if "scores" not in own:
                    kept = bar.of(number, replace(effort, kept=own))
                    scores = null_search(
                        self.before, null, search=self.settings, score=self.score, effort=kept
                    )
                    if scores is None:
                        return
                    own["scores"] = scores
                secrets = {"asked": texts, "scores": self._secret_scores(null)}
                own["known"] = secrets
            yield _NullSearch(own["scores"], secrets["scores"], own["change"])

    def _secret_scores(self, after: LanguageModel) -> list[float]:
        if not self.secrets:
            return []
        pair = ModelPair(self.before, after, self.score)
        found = known_phrases(pair, self.secrets, contexts=self.contexts.names)
        return [one.score for one in found]

    def _compared(self, found: UpdateDiff, nulls: Sequence[_NullSearch]) -> UpdateDiff:
        """The result with the null models' scores, and the phrases that contain the secrets."""
        phrases = [finding.lead + finding.tokens for finding in found.findings]
        secrets = tuple(
            _secret(known, asked, [null.secrets[number] for null in nulls], phrases)
            for number, (known, asked) in enumerate(zip(found.known, self.secrets, strict=True))
        )
        found = replace(found, nulls_asked=len(self.nulls), known=secrets)
        if not nulls:
            return found
        return replace(
            found,
            nulls=NullScores.of(null.scores for null in nulls),
            changes=tuple(null.change for null in nulls),
        )


def recorded(search: SeedAndExtend) -> dict[str, Any]:
    """The settings of a search, those of its proposals by their names."""
    proposals = {one.name: asdict(one) for one in search.proposals}  # type: ignore[call-overload]
    return {**asdict(search), "proposals": proposals}


def room(search: SeedAndExtend) -> int:
    """Tokens that a model reads after a context at most."""
    lengths = [getattr(proposal, "length", 0) for proposal in search.proposals]
    return max(search.max_tokens, *lengths) + 1


def fitted(search: SeedAndExtend, models: Sequence[object], *, behind: int) -> SeedAndExtend:
    """The search with texts that models with few positions can read.

    Args:
        search: the settings.
        models: `longest` of each, if it has one, limits the tokens that it reads.
        behind: tokens of the longest context, 1 for a document's beginning.
    """
    limits = [most for model in models if (most := getattr(model, "longest", None)) is not None]
    if not limits:
        return search
    most = min(limits) - behind
    before = max((one.context for one in search.proposals if isinstance(one, Samples)), default=1)
    proposals = tuple(
        replace(one, length=max(1, min(one.length, most))) if isinstance(one, Samples) else one
        for one in search.proposals
    )
    longest = max(search.min_tokens, min(search.max_tokens, most - before))
    return replace(search, max_tokens=longest, proposals=proposals)


def _secret(
    known: KnownPhrase, asked: Asked, nulls: Sequence[float], phrases: Sequence[Sequence[int]]
) -> KnownPhrase:
    """A listed secret with its null scores, and the phrase that contains most of it."""
    row, part = told_by(known, asked, phrases)
    return replace(known, nulls=tuple(nulls), row_found=None if row < 0 else row, part=part)


def _time_limit(found: UpdateDiff) -> str:
    """What was finished when the time was over."""
    searched, nulls = found.searched, 0 if found.nulls is None else len(found.nulls)
    parts = []
    if searched is not None and not searched.complete:
        parts.append(f"{searched.done} of {searched.units} steps of the search")
    if nulls < found.nulls_asked and found.prevented is None:
        parts.append(f"{nulls} of {found.nulls_asked} null searches")
    return f"Time limit: {' and '.join(parts)} done. Rerun to resume."
