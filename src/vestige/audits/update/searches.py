"""The searches of `vestige diff`: of the update, and of its null models by the same rule."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from math import inf
from typing import Any

from vestige import __version__
from vestige.arguments import ModelLike
from vestige.audits.update.evidence import Nulls, Secrets, prevented
from vestige.audits.update.known_secrets import Listed, score_secrets
from vestige.audits.update.nulls import NullScores
from vestige.audits.update.pair import Pair
from vestige.audits.update.plan import Planner, plan_lines, tokens_of, units_of
from vestige.audits.update.prompts import TEMPLATE, Prompt
from vestige.audits.update.result import update_result
from vestige.audits.update.search import search, search_update
from vestige.audits.update.units import Settings
from vestige.audits.update.verbatim import Generated, verbatim
from vestige.claims.model_checks import pair_checks
from vestige.models.snapshots import Snapshots
from vestige.monitor import Step
from vestige.results import Result
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
        prompts: where it begins.
        listed: secrets.
        nulls: null models by the SHA-256 of their weights; searched like the later model.
        minutes: time limit of all searches.
        began: when planning began; the minutes count from there.
    """

    run: Session
    snapshots: Snapshots
    pair: Pair
    settings: Settings
    prompts: Sequence[Prompt]
    listed: Sequence[Listed]
    nulls: Mapping[str, ModelLike]
    minutes: float | None
    began: float = field(default_factory=time.monotonic)

    def result(self, size: float | None, *, removed: bool, top: int) -> Result:
        """Search the update, then every null model.

        Args:
            size: of the searches; None for that of stored work, or one that fits the minutes.
            removed: whether the two snapshots have swapped roles.
            top: phrases to report.
        """
        planner = Planner(self.pair, self.prompts, self.run.monitor)
        if size is None:
            size = self.run.store.identity.get("size")
        if size is None and self.minutes is not None:
            size = planner.size_for(self.settings, 60 * self.minutes / (1 + len(self.nulls)))
        size = 1.0 if size is None else float(size)
        if self.minutes is not None:
            self.run.chosen(size=size)
        settings = self.settings.scaled(size)
        recorded = {"name": "seed-and-extend", **asdict(settings)}
        self.run.configuration |= {"search": recorded}
        self._identify(settings, size, removed=removed)
        self._plan(planner.seconds(settings), settings, size)
        units = units_of(settings, self.pair, len(self.prompts))
        with self.run.progress("searching") as step:
            return self._search(settings, top, partial(_shown, step, 1 + len(self.nulls), units))

    def _identify(self, settings: Settings, size: float, *, removed: bool) -> None:
        """Compare everything that determines the result of a unit of work with stored work."""
        roles, own = ("before", "after"), self.snapshots.recorded
        given = roles[::-1] if removed else roles
        score = self.pair.score
        self.run.store.identify({
            "version": __version__,
            "models": {role: _weights(own[name]) for role, name in zip(roles, given, strict=True)},
            "search": asdict(settings),
            "score": {"name": score.name, **asdict(score)},
            "contexts": [list(prompt.tokens) for prompt in self.prompts],
            "template": [prompt.name == TEMPLATE for prompt in self.prompts],
            "turns": [prompt.reply and asdict(prompt.reply) for prompt in self.prompts],
            "size": size,
        })  # fmt: skip

    def _plan(self, seconds: float, settings: Settings, size: float) -> None:
        """Show and record what the searches will cost."""
        tokens, searches = tokens_of(settings, self.pair, self.prompts), 1 + len(self.nulls)
        for line in plan_lines(
            tokens,
            seconds,
            searches=searches,
            finished=sum(f"null/{weights}/scores" in self.run.store for weights in self.nulls),
            minutes=self.minutes,
        ):
            self.run.log(line)
        self.run.configuration |= {
            "plan": {
                "forward_tokens": tokens,
                "seconds": round(seconds, 1),
                "searches": searches,
                "size": size,
            }
        }

    def _search(
        self, settings: Settings, top: int, shown: Callable[[int], Callable[..., None]]
    ) -> Result:
        """The result, with the null models' scores and what is known of the listed secrets."""
        pair, prompts, listed = self.pair, self.prompts, self.listed
        models = pair.before.model, pair.after.model
        checks, store = pair_checks(*models, seed=0), self.run.store
        found = search_update(
            pair,
            settings,
            prompts,
            store=store.part("update/"),
            lax_store=store.part("update/lax/"),
            until=self._is_late,
            progress=shown(0),
        )
        given = [pair.vocabulary.decode(one.tokens) for one in prompts[1:]]
        texts = Generated.of(found.read, pair.vocabulary) if listed else Generated()
        secrets = Secrets(
            listed=listed,
            promoted=score_secrets(pair, listed, prompts),
            proofs=verbatim(models[0], listed, texts, given=given, seed=0),
        )
        failed, searches = prevented(checks), list[_NullSearch]()
        if failed is None:
            searches = list(self._null_searches(settings, shown))
        elif self.nulls:
            shown(len(self.nulls))(1, 1, "searching")
            self.run.log(f"{failed.sentence} Null models are not searched.")
        return update_result(
            found,
            settings=settings,
            score=pair.score,
            prompts=prompts,
            vocabulary=pair.vocabulary,
            checks=checks,
            nulls=Nulls(
                given=len(self.nulls),
                scores=NullScores.of(scores for scores, _, _ in searches) if searches else None,
                secrets=[scores for _, scores, _ in searches],
                changes=[change for _, _, change in searches],
            ),
            secrets=secrets,
            top=top,
        )

    def _null_searches(
        self, settings: Settings, shown: Callable[[int], Callable[..., None]]
    ) -> Iterator[_NullSearch]:
        """The search of each null model, until the time is over."""
        if not self.nulls:
            return
        from vestige.audits.update.null_models import distance, opened

        before, texts = self.pair.before.model, [list(one.within) for one in self.listed]
        moved = distance(before, self.pair.after.model)
        for number, (weights, model) in enumerate(self.nulls.items(), 1):
            own = self.run.store.part(f"null/{weights}/")
            secrets = own.get("known", {})
            if not {"scores", "change"} <= own.keys() or secrets.get("asked") != texts:
                if "scores" not in own and self._is_late():
                    return
                null, own["change"] = opened(model, self.snapshots, before, moved)
                pair = Pair.of(before, null, self.pair.score)
                if "scores" not in own:
                    found = search(
                        pair,
                        settings,
                        self.prompts,
                        store=own,
                        until=self._is_late,
                        progress=shown(number),
                    )
                    if not found.complete:
                        return
                    own["scores"] = found.null_scores
                scored = score_secrets(pair, self.listed, self.prompts)
                secrets = {"asked": texts, "scores": [one.score for _, one in scored]}
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


def _weights(recorded: Any) -> dict[str, object]:
    """What identifies a model: hashes of its weights, vocabulary and base."""
    return {
        **{name: recorded.get(name) for name in ("sha256", "vocabulary")},
        "base": (recorded.get("base") or {}).get("sha256"),
    }
