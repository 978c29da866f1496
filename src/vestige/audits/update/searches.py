"""The searches of `vestige diff`: of the update, and of its null models by the same rule."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

from vestige import __version__
from vestige.arguments import ModelLike
from vestige.audits.update.evidence import NullSearch, Scored, prevented
from vestige.audits.update.known_secrets import Listed, score_secrets
from vestige.audits.update.pair import Pair
from vestige.audits.update.plan import plan_lines, seconds_of, size_for, timed, tokens_of, units_of
from vestige.audits.update.prompts import TEMPLATE, Prompt
from vestige.audits.update.result import update_result
from vestige.audits.update.search import search, search_update
from vestige.audits.update.settings import Settings
from vestige.audits.update.verbatim import generated, verbatim
from vestige.claims.model_checks import pair_checks
from vestige.models.snapshots import Snapshots
from vestige.monitor import Step
from vestige.results import Result
from vestige.session import Session


@dataclass(frozen=True, kw_only=True)
class Searches:
    """What is searched, and how.

    Attributes:
        run: its store keeps finished units.
        snapshots: the two models as they were read; null models are read like them.
        roles: names of the snapshots that are the earlier and the later model of the search.
        pair: these two models, and the score of a token.
        settings: of every search, at the usual size.
        prompts: where it begins.
        listed: secrets.
        nulls: null models by the SHA-256 of their weights; searched like the later model.
        minutes: time limit of all searches.
        began: when planning began; the minutes count from there.
    """

    run: Session
    snapshots: Snapshots
    roles: tuple[str, str]
    pair: Pair
    settings: Settings
    prompts: Sequence[Prompt]
    listed: Sequence[Listed]
    nulls: Mapping[str, ModelLike]
    minutes: float | None
    began: float = field(default_factory=time.monotonic)

    def result(self, size: float | None, *, top: int) -> Result:
        """Search the update, then every null model.

        Without a size, it is that of stored work, or one that fits the minutes.
        """
        run, searches, searched = self.run, 1 + len(self.nulls), (self.pair, self.prompts)
        with run.monitor.progress("planning: timing"):
            step_seconds = timed(self.pair)
        if size is None:
            size = run.store.identity.get("size")
        if size is None and self.minutes is not None:
            size = size_for(60 * self.minutes / searches, self.settings, *searched, step_seconds)
        size = 1.0 if size is None else float(size)
        if self.minutes is not None:
            run.chosen(size=size)
        settings = self.settings.scaled(size)
        self._identify(settings, size)
        tokens = tokens_of(settings, *searched)
        seconds = seconds_of(settings, *searched, step_seconds)
        finished = sum(f"null/{weights}/scores" in run.store for weights in self.nulls)
        for line in plan_lines(
            tokens, seconds, searches=searches, finished=finished, minutes=self.minutes
        ):
            run.log(line)
        plan = {"forward_tokens": tokens, "seconds": round(seconds, 1), "searches": searches}
        recorded = {"name": "seed-and-extend", **asdict(settings)}
        run.configuration |= {"search": recorded, "plan": {**plan, "size": size}}
        units = units_of(settings, *searched)

        def shown(step: Step, number: int) -> Step:
            """Progress of one search on a bar for all, which never moves back; 0: the update's."""
            which = f"null {number} of {searches - 1}, " if number else ""

            def progress(done: int, of: int, activity: str = "") -> None:
                share = number + min(1.0, done / of)
                step(round(share * units), searches * units, which + activity)

            return progress

        with run.progress("searching") as step:
            return self._search(settings, top, lambda number: shown(step, number))

    def _identify(self, settings: Settings, size: float) -> None:
        """Compare everything that determines the result of a unit of work with stored work."""
        before, after = (_weights(self.snapshots.recorded[role]) for role in self.roles)
        self.run.store.identify({
            "version": __version__,
            "models": {"before": before, "after": after},
            "search": asdict(settings),
            "score": asdict(self.pair.score),
            "contexts": [list(prompt.tokens) for prompt in self.prompts],
            "template": [prompt.name == TEMPLATE for prompt in self.prompts],
            "turns": [prompt.reply and asdict(prompt.reply) for prompt in self.prompts],
            "size": size,
        })  # fmt: skip

    def _search(self, settings: Settings, top: int, shown: Callable[[int], Step]) -> Result:
        """The result, with the null models' scores and what is known of the listed secrets."""
        pair, prompts, listed, store = self.pair, self.prompts, self.listed, self.run.store
        checks = pair_checks(pair.before.model, pair.after.model, seed=0)
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
        texts = generated(found.read, pair.vocabulary) if listed else []
        proofs = verbatim(pair.before.model, listed, texts, given=given, seed=0)
        promoted = score_secrets(pair, listed, prompts)
        secrets = [Scored(one, *p, *q) for one, p, q in zip(listed, promoted, proofs, strict=True)]
        nulls: list[NullSearch] = []
        if (failed := prevented(checks)) is None:
            nulls = list(self._null_searches(settings, shown))
        elif self.nulls:
            shown(len(self.nulls))(1, 1, "searching")
            self.run.log(f"{failed.sentence} Null models are not searched.")
        return update_result(
            found,
            settings=settings,
            pair=pair,
            prompts=prompts,
            checks=checks,
            given=len(self.nulls),
            nulls=nulls,
            secrets=secrets,
            top=top,
        )

    def _null_searches(
        self, settings: Settings, shown: Callable[[int], Step]
    ) -> Iterator[NullSearch]:
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
                    limits: dict[str, Any] = {"until": self._is_late, "progress": shown(number)}
                    found = search(pair, settings, self.prompts, store=own, **limits)
                    if not found.complete:
                        return
                    own["scores"] = found.null_scores
                scored = score_secrets(pair, self.listed, self.prompts)
                secrets = {"asked": texts, "scores": [one.score for _, one in scored]}
                own["known"] = secrets
            yield NullSearch(own["scores"], secrets["scores"], own["change"])

    def _is_late(self, seconds: float = 0.0) -> bool:
        """Whether work of so many seconds would end after the time limit."""
        end = inf if self.minutes is None else self.began + 60 * self.minutes
        return time.monotonic() + seconds > end


def _weights(recorded: Any) -> dict[str, object]:
    """What identifies a model: hashes of its weights, vocabulary and base."""
    return {
        **{name: recorded.get(name) for name in ("sha256", "vocabulary")},
        "base": (recorded.get("base") or {}).get("sha256"),
    }
