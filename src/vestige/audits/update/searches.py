"""The searches of `vestige diff`: of the update, and of its null models by the same rule."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

from vestige import __version__
from vestige.arguments import ModelLike
from vestige.audits.update.evidence import NullSearch, SecretEvidence, blocking_check
from vestige.audits.update.listed_secrets import ListedSecret, score_secrets
from vestige.audits.update.pair import Pair
from vestige.audits.update.phrases import Text
from vestige.audits.update.plan import plan_lines, seconds_of, size_for, timed, tokens_of, units_of
from vestige.audits.update.prompts import TEMPLATE, Prompt
from vestige.audits.update.result import update_result
from vestige.audits.update.search import search, search_update
from vestige.audits.update.settings import Settings
from vestige.audits.update.verbatim import generated_texts, verbatim_proofs
from vestige.claims.model_checks import pair_checks
from vestige.models.snapshots import Snapshots
from vestige.monitor import Step
from vestige.results import Result
from vestige.session import Session


@dataclass(frozen=True, kw_only=True)
class Searches:
    """The search of an update and those of its null models.

    Attributes:
        run: its store holds finished units of work.
        snapshots: the two loaded models; null models are loaded in the same way.
        roles: names of the snapshots that are the earlier and the later model of the search.
        pair: these two models, and the score of a token.
        settings: of every search, at the usual size.
        prompts: contexts in which the search begins.
        secrets: listed secrets.
        nulls: null models by the SHA-256 of their weights.
        minutes: time limit of all searches together.
        started: when planning began; the time limit counts from here.
    """

    run: Session
    snapshots: Snapshots
    roles: tuple[str, str]
    pair: Pair
    settings: Settings
    prompts: Sequence[Prompt]
    secrets: Sequence[ListedSecret]
    nulls: Mapping[str, ModelLike]
    minutes: float | None
    started: float = field(default_factory=time.monotonic)

    def result(self, size: float | None, *, top: int) -> Result:
        """Plan the searches, log the plan, and run them.

        Without `size`, it is that of the stored work, or the largest that fits `minutes`, or 1.
        """
        run, searches = self.run, 1 + len(self.nulls)
        with run.monitor.progress("planning: timing"):
            step_seconds = timed(self.pair)
        if size is None:
            size = run.store.identity.get("size")
        if size is None and self.minutes is not None:
            seconds = 60 * self.minutes / searches
            size = size_for(seconds, self.settings, self.pair, self.prompts, step_seconds)
        size = 1.0 if size is None else float(size)
        if self.minutes is not None:
            run.record_choice(size=size)
        settings = self.settings.scaled(size)
        self._identify_store(settings, size)
        tokens = tokens_of(settings, self.pair, self.prompts)
        seconds = seconds_of(settings, self.pair, self.prompts, step_seconds)
        finished = sum(f"null/{sha256}/scores" in run.store for sha256 in self.nulls)
        for line in plan_lines(
            tokens, seconds, searches=searches, finished=finished, minutes=self.minutes
        ):
            run.log(line)
        plan = {"forward_tokens": tokens, "seconds": round(seconds, 1), "searches": searches}
        recorded = {"name": "seed-and-extend", **asdict(settings)}
        run.configuration |= {"search": recorded, "plan": {**plan, "size": size}}
        units = units_of(settings, self.pair, self.prompts)
        with run.progress("searching") as step:

            def progress_of(number: int) -> Step:
                """Progress of the update's search (0) or a null search, on one bar for all."""
                name = f"null {number} of {searches - 1}, " if number else ""

                def progress(done: int, total: int, activity: str = "") -> None:
                    searched = number + min(1.0, done / total)
                    step(round(searched * units), searches * units, name + activity)

                return progress

            return self._search(settings, top, progress_of)

    def _identify_store(self, settings: Settings, size: float) -> None:
        """Refuse stored work that was not made from exactly these inputs."""
        before, after = (_model_identity(self.snapshots.recorded[role]) for role in self.roles)
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

    def _search(self, settings: Settings, top: int, progress_of: Callable[[int], Step]) -> Result:
        pair, store = self.pair, self.run.store
        checks = pair_checks(pair.before.model, pair.after.model, seed=0)
        searched = search_update(
            pair,
            settings,
            self.prompts,
            store=store.part("update/"),
            lax_store=store.part("update/lax/"),
            until=self._is_late,
            progress=progress_of(0),
        )
        nulls: list[NullSearch] = []
        secrets = self._secret_evidence(searched.generated)
        if (failed := blocking_check(checks)) is None:
            nulls = list(self._null_searches(settings, progress_of))
        elif self.nulls:
            progress_of(len(self.nulls))(1, 1, "searching")
            self.run.log(f"{failed.sentence} Null models are not searched.")
        return update_result(
            searched,
            settings=settings,
            pair=pair,
            prompts=self.prompts,
            checks=checks,
            nulls_requested=len(self.nulls),
            nulls=nulls,
            secrets=secrets,
            top=top,
        )

    def _secret_evidence(self, generated: Sequence[Text]) -> list[SecretEvidence]:
        """Where the update promoted each listed secret most, and where it is generated verbatim."""
        pair = self.pair
        prompt_texts = [pair.vocabulary.decode(prompt.tokens) for prompt in self.prompts[1:]]
        texts = generated_texts(generated, pair.vocabulary) if self.secrets else []
        proofs = verbatim_proofs(
            pair.before.model, self.secrets, texts, prompts=prompt_texts, seed=0
        )
        promoted = score_secrets(pair, self.secrets, self.prompts)
        return [
            SecretEvidence(secret, context, text, count, proof)
            for secret, (context, text), (count, proof) in zip(
                self.secrets, promoted, proofs, strict=True
            )
        ]

    def _null_searches(
        self, settings: Settings, progress_of: Callable[[int], Step]
    ) -> Iterator[NullSearch]:
        """The search of each null model, until the time is over."""
        if not self.nulls:
            return
        from vestige.audits.update.null_models import open_null_model, weight_distance

        before = self.pair.before.model
        update_distance = weight_distance(before, self.pair.after.model)
        secret_tokens = [list(secret.within) for secret in self.secrets]
        for number, (sha256, null) in enumerate(self.nulls.items(), 1):
            store = self.run.store.part(f"null/{sha256}/")
            secrets = store.get("known", {})
            if not {"scores", "change"} <= store.keys() or secrets.get("asked") != secret_tokens:
                if "scores" not in store and self._is_late():
                    return
                model, store["change"] = open_null_model(
                    null, self.snapshots, before, update_distance
                )
                pair = Pair.of(before, model, self.pair.score)
                if "scores" not in store:
                    searched = search(
                        pair,
                        settings,
                        self.prompts,
                        store=store,
                        until=self._is_late,
                        progress=progress_of(number),
                    )
                    if not searched.complete:
                        return
                    store["scores"] = searched.null_scores
                scored = score_secrets(pair, self.secrets, self.prompts)
                secrets = {"asked": secret_tokens, "scores": [text.score for _, text in scored]}
                store["known"] = secrets
            yield NullSearch(store["scores"], secrets["scores"], store["change"])

    def _is_late(self, seconds: float = 0.0) -> bool:
        """Whether work of this duration would end after the time limit."""
        end = inf if self.minutes is None else self.started + 60 * self.minutes
        return time.monotonic() + seconds > end


def _model_identity(recorded: Any) -> dict[str, object]:
    """Hashes of a model's weights, vocabulary and base."""
    return {
        **{name: recorded.get(name) for name in ("sha256", "vocabulary")},
        "base": (recorded.get("base") or {}).get("sha256"),
    }
