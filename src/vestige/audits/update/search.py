"""The searches of `vestige diff`: of the update, and of its null models by the same rule."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

from vestige import __version__
from vestige.arguments import ModelLike
from vestige.attacks.update.diff_result import UpdateDiff
from vestige.attacks.update.known_phrases import Asked, known_phrases, told_by
from vestige.attacks.update.model_pair import ModelPair, most_tokens
from vestige.attacks.update.null_searches import NullScores
from vestige.attacks.update.proposals.samples import Samples
from vestige.attacks.update.seed_and_extend import Effort, SeedAndExtend
from vestige.attacks.update.update_diff import null_search, update_diff
from vestige.audits.update.planning import Planner, plan_lines, scaled
from vestige.models.snapshots import Snapshots
from vestige.monitor import Step
from vestige.session import Session

_NullSearch = tuple[list[float], list[float], float | None]
"""Scores of a null model's phrases and of the listed secrets, and how far it moved."""


@dataclass(frozen=True, kw_only=True)
class Searches:
    """What is searched, and how.

    Attributes:
        run: its store keeps finished units.
        snapshots: the two models as they were read; null models are read like them.
        pair: the two models in the roles that they have in the search, and the score of a token.
        settings: of every search, at the usual size.
        effort: where it begins, besides a document's beginning.
        secrets: phrases that are scored by themselves.
        nulls: null models by the SHA-256 of their weights; searched like the later model.
        minutes: time limit of all searches.
        began: when planning began; the minutes count from there.
    """

    run: Session
    snapshots: Snapshots
    pair: ModelPair
    settings: SeedAndExtend
    effort: Effort
    secrets: Sequence[Asked]
    nulls: Mapping[str, ModelLike]
    minutes: float | None
    began: float = field(default_factory=time.monotonic)

    def result(self, size: float | None, *, removed: bool, top: int) -> UpdateDiff:
        """Search the update, then every null model.

        Args:
            size: of the searches; None for that of stored work, or one that fits the minutes.
            removed: whether the two snapshots have swapped roles.
            top: phrases to report.
        """
        planner = Planner(self.pair, tuple(self.effort.contexts), self.run.monitor)
        if size is None:
            size = self.run.store.identity.get("size")
        if size is None and self.minutes is not None:
            size = planner.size_for(self.settings, 60 * self.minutes / (1 + len(self.nulls)))
        size = 1.0 if size is None else float(size)
        if self.minutes is not None:
            self.run.chosen(size=size)
        settings = scaled(self.settings, size)
        self.run.configuration |= {"search": {"name": "seed-and-extend", **_recorded(settings)}}
        self._identify(settings, size, removed=removed)
        units = self._plan(planner, settings, size)
        with self.run.progress("searching") as step:
            return self._search(settings, top, partial(_shown, step, 1 + len(self.nulls), units))

    def _identify(self, settings: SeedAndExtend, size: float, *, removed: bool) -> None:
        """Compare everything that determines the result of a unit of work with stored work."""
        roles, own = ("before", "after"), self.snapshots.recorded
        given = roles[::-1] if removed else roles
        self.run.store.identify({
            "version": __version__,
            "models": {role: _weights(own[name]) for role, name in zip(roles, given, strict=True)},
            "search": _recorded(settings),
            "score": {"name": self.pair.score.name, "least": self.pair.score.least},
            "contexts": [list(ids) for ids in self.effort.contexts],
            "told": [list(ids) for ids in self.effort.told],
            "turns": [[turn.ends, turn.then] for turn in self.effort.turns.values()],
            "size": size,
        })  # fmt: skip

    def _plan(self, planner: Planner, settings: SeedAndExtend, size: float) -> int:
        """Show and record what the searches will cost; returns the units of work of one."""
        work, searches = planner.work(settings), 1 + len(self.nulls)
        seconds = planner.seconds(work)
        for line in plan_lines(
            work.total,
            seconds,
            searches=searches,
            finished=sum(f"null/{weights}/scores" in self.run.store for weights in self.nulls),
            minutes=self.minutes,
        ):
            self.run.log(line)
        self.run.configuration |= {
            "plan": {
                "forward_tokens": work.total,
                "seconds": round(seconds, 1),
                "searches": searches,
                "size": size,
            }
        }
        return work.units

    def _search(
        self, settings: SeedAndExtend, top: int, shown: Callable[..., Callable[..., None]]
    ) -> UpdateDiff:
        """The result with the null models' scores, and the phrases that contain the secrets."""
        effort = replace(self.effort, until=None if self.minutes is None else self._is_late)
        found = update_diff(
            self.pair.before,
            self.pair.after,
            search=settings,
            score=self.pair.score,
            listed=self.secrets,
            top=top,
            effort=replace(effort, kept=self.run.store.part("update/"), progress=shown(0)),
        )
        nulls: list[_NullSearch] = []
        if found.prevented is None:
            nulls = list(self._null_searches(settings, effort, shown))
        elif self.nulls:
            shown(len(self.nulls))(1, 1, "searching")
            self.run.log(f"{found.prevented.sentence} Null models are not searched.")
        phrases = [finding.lead + finding.tokens for finding in found.findings]
        known = []
        for number, (one, secret) in enumerate(zip(found.known, self.secrets, strict=True)):
            row, part = told_by(one, secret, phrases)
            own = tuple(secrets[number] for _, secrets, _ in nulls)
            known.append(replace(one, nulls=own, row_found=None if row < 0 else row, part=part))
        return replace(
            found,
            nulls_asked=len(self.nulls),
            known=tuple(known),
            nulls=NullScores.of(scores for scores, _, _ in nulls) if nulls else None,
            changes=tuple(change for _, _, change in nulls),
        )

    def _null_searches(
        self, settings: SeedAndExtend, effort: Effort, shown: Callable[..., Callable[..., None]]
    ) -> Iterator[_NullSearch]:
        """The search of each null model, until the time is over."""
        if not self.nulls:
            return
        from vestige.audits.update.nulls import distance, opened

        before, score = self.pair.before, self.pair.score
        texts = [list(one.within) for one in self.secrets]
        moved = distance(before, self.pair.after)
        for number, (weights, model) in enumerate(self.nulls.items(), 1):
            own = self.run.store.part(f"null/{weights}/")
            secrets = own.get("known", {})
            if not {"scores", "change"} <= own.keys() or secrets.get("asked") != texts:
                if "scores" not in own and self._is_late():
                    return
                null, change = opened(model, self.snapshots, before, moved)
                own["change"] = change
                if "scores" not in own:
                    kept = replace(effort, kept=own, progress=shown(number))
                    scores = null_search(before, null, search=settings, score=score, effort=kept)
                    if scores is None:
                        return
                    own["scores"] = scores
                pair = ModelPair(before, null, score)
                known = known_phrases(pair, self.secrets, contexts=self.effort.contexts)
                secrets = {"asked": texts, "scores": [one.score for one in known]}
                own["known"] = secrets
            yield own["scores"], secrets["scores"], own["change"]

    def _is_late(self, seconds: float = 0.0) -> bool:
        """Whether work of so many seconds would end after the time limit."""
        end = inf if self.minutes is None else self.began + 60 * self.minutes
        return time.monotonic() + seconds > end


def _shown(step: Step, searches: int, units: int, number: int) -> Callable[[int, int, str], None]:
    """Progress of search `number` on one bar for all, so that it never moves back.

    Search 0 is the update's; each has so many units.
    """
    which = f"null {number} of {searches - 1}, " if number else ""

    def progress(done: int, of: int, activity: str) -> None:
        step(round((number + min(1.0, done / of)) * units), searches * units, which + activity)

    return progress


def room(search: SeedAndExtend) -> int:
    """Tokens that a model reads after a context at most."""
    lengths = [getattr(proposal, "length", 0) for proposal in search.proposals]
    return max(search.max_tokens, *lengths) + 1


def fitted(search: SeedAndExtend, models: Sequence[object], *, context: int) -> SeedAndExtend:
    """The search with texts that models with few positions can read.

    Args:
        search: the settings.
        models: `longest` of each, if it has one, limits the tokens that it reads.
        context: tokens of the longest context, 1 for a document's beginning.
    """
    most = most_tokens(*models)
    if most is None:
        return search
    most -= context
    before = max((one.context for one in search.proposals if isinstance(one, Samples)), default=1)
    proposals = tuple(
        replace(one, length=max(1, min(one.length, most))) if isinstance(one, Samples) else one
        for one in search.proposals
    )
    longest = max(search.min_tokens, min(search.max_tokens, most - before))
    return replace(search, max_tokens=longest, proposals=proposals)


def _recorded(search: SeedAndExtend) -> dict[str, Any]:
    """The settings of a search, those of its proposals by their names."""
    proposals = {one.name: asdict(one) for one in search.proposals}  # type: ignore[call-overload]
    return {**asdict(search), "proposals": proposals}


def _weights(recorded: Any) -> dict[str, object]:
    """What identifies a model: hashes of its weights, vocabulary and base."""
    return {
        **{name: recorded.get(name) for name in ("sha256", "vocabulary")},
        "base": (recorded.get("base") or {}).get("sha256"),
    }
