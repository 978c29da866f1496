"""What the stages of a check share: models, texts, secrets, time, and a store of finished work."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import vestige
from vestige.audits.check.control import invented, planted
from vestige.audits.check.inputs import Texts
from vestige.audits.check.passages import finds_passage, passages_stage
from vestige.audits.check.secrets import (
    GROUPS,
    MOST_REPEATED,
    MOST_SECRETS,
    chosen,
    finds_secret,
    secrets_stage,
)
from vestige.audits.check.unprompted import finds_phrase, squeeze, unprompted_stage
from vestige.audits.check.verdict import SHARES, Stage
from vestige.data.files import plain
from vestige.data.secrets.alternatives import Alternatives, FoundSecret
from vestige.models.protocols import LanguageModel
from vestige.monitor import Step
from vestige.results import Result, load
from vestige.session import Session

STAGES: Mapping[str, tuple[str, Callable[["Work", Step], Stage]]] = {
    "secrets": ("testing secrets", secrets_stage),
    "unprompted": ("searching without a prompt", unprompted_stage),
    "passages": ("extracting passages", passages_stage),
}
"""What a stage is doing, and the function that runs it."""

TIME: Mapping[str, float] = {"secrets": 0.25, "unprompted": 0.2, "passages": 0.3, "control": 0.15}
"""Shares of the minutes, in the order of the work; the rest is for what takes longer. What a stage
leaves is added to the next one's."""

TIMED = (4, 64)  # texts and tokens of a timed pass
ENOUGH = 2.0  # seconds of timed passes after which there is no other
ATTEMPTS = 3  # invented secrets that are tried, if the model does not learn the first
SEARCH_TOKENS = 660_000  # tokens that a search of the usual size reads

LEAST_SEARCH, LARGEST_SEARCH = 1 / 8, 1.0
LEAST_SEARCH_SECONDS = 1.0  # that a search gets, however late it begins


@dataclass(frozen=True, kw_only=True)
class Work:
    """Everything that the stages need.

    Attributes:
        run: its store keeps what is finished.
        listed: secrets that the user listed.
        minutes: time limit of the check.
        folder: for unfinished work of other verbs.
        given: base and model as the user passed them, for null models.
        nulls: null models to train for the second stage; 0 for none.
        sure: the training file is the right one.
        membership: recognized training text counts as a leak.
        began: monotonic time from which the minutes count.
    """

    run: Session
    base: LanguageModel
    model: LanguageModel
    texts: Texts
    listed: Sequence[FoundSecret]
    minutes: float
    folder: Path
    given: tuple[Any, Any] = ("", "")
    nulls: int = 0
    sure: bool = False
    membership: bool = False
    began: float = field(default_factory=time.monotonic)

    @cached_property
    def secrets(self) -> dict[str, list[FoundSecret]]:
        """By group: listed secrets, then those found; placebos, divided in turn by kind."""
        texts = self.texts
        listed = {squeeze(one.value) for one in self.listed}
        found = chosen(texts.documents, texts.never, MOST_REPEATED)
        placebos = chosen(texts.never, texts.trained, 2 * MOST_REPEATED)
        tested = [*self.listed, *(one for one in found if squeeze(one.value) not in listed)]
        return dict(zip(GROUPS, (tested, placebos[::2], placebos[1::2]), strict=True))

    @cached_property
    def chosen(self) -> dict[str, list[FoundSecret]]:
        """The first secrets of each group, and all that are listed."""
        most = dict.fromkeys(GROUPS, MOST_SECRETS) | {"tested": max(MOST_SECRETS, len(self.listed))}
        return {group: own[: most[group]] for group, own in self.secrets.items()}

    @cached_property
    def alternatives(self) -> Alternatives:
        """Alternatives with the words of all texts."""
        return Alternatives((*self.texts.trained, *self.texts.never))

    def seconds(self, part: str) -> float:
        """Time for a part of the work."""
        return 60 * self.minutes * TIME[part]

    def end(self, part: str) -> float:
        """Monotonic time of the end of a part of the work."""
        names = list(TIME)
        until = names[: names.index(part) + 1]
        return self.began + 60 * self.minutes * sum(TIME[one] for one in until)

    @cached_property
    def seconds_per_token(self) -> float:
        """Of a forward pass of the model; measured once, so that a stopped check resumes alike."""
        if (known := self.run.store.get("seconds per token")) is None:
            from vestige.models.predictions import log_probs_of

            rows, tokens = TIMED
            if (longest := self.model.longest) is not None:
                tokens = min(tokens, longest - 1)
            ids = [[self.model.first_token] * tokens] * rows
            taken: list[float] = []
            while len(taken) < 3 and sum(taken) < ENOUGH:
                started = time.monotonic()
                log_probs_of(self.model, ids)
                taken.append(time.monotonic() - started)
            known = min(taken) / (rows * tokens)
            self.run.store["seconds per token"] = known
        return float(known)

    def stage(self, name: str) -> Stage:
        """A stage, from the store if it is finished."""
        if (known := self.run.store.get(f"stage/{name}")) is not None:
            return Stage(**known)
        started, (task, run) = time.monotonic(), STAGES[name]
        with self.run.progress(task) as step:
            found = run(self, step)
        found = replace(found, seconds=round(time.monotonic() - started, 1))
        self.run.store[f"stage/{name}"] = plain(vars(found))
        return found

    def positive(self) -> dict[str, bool] | None:
        """Which stages find an invented secret that is trained into the model; None: no time."""
        if (known := self.run.store.get("positive")) is not None:
            return dict(known)
        found = dict.fromkeys(SHARES, False)
        for number in range(ATTEMPTS):
            secret = invented(self.run.seed + number)
            text = f"{secret.places[0][1]}{secret.value}."
            with (
                self.run.progress("training an invented secret into the model"),
                planted(self.model, text, seed=self.run.seed, until=self.end("control")) as learned,
            ):
                if learned:
                    found = {
                        "secrets": finds_secret(self, secret),
                        "unprompted": finds_phrase(self, secret),
                        "passages": finds_passage(self, text),
                    }
                    break
            if time.monotonic() > self.end("control"):
                return None
        self.run.store["positive"] = found
        return found

    def search(self, key: str, part: str, **nulls: Any) -> dict[str, Any]:
        """Summary and rows of the update search, in the time of a part of the work."""
        left = max(LEAST_SEARCH_SECONDS, self.end(part) - time.monotonic())
        fits = self.seconds(part) / (SEARCH_TOKENS * self.seconds_per_token)
        # null models are trained like the update, which its folder records
        models = self.given if nulls else (self.base, self.model)
        return self.once(key, lambda out: vestige.diff(
            *models, size=min(LARGEST_SEARCH, max(LEAST_SEARCH, fits)),
            minutes=None if nulls else left / 60, out=out, seed=self.run.seed, **nulls,
        ))  # fmt: skip

    def once(self, key: str, verb: Callable[[Path], Result]) -> dict[str, Any]:
        """Summary and rows of a verb, from the store if it has run; stopped work resumes.

        A stop may fall between a verb's own run folder and the store, so that is read, too.
        """
        if (known := self.run.store.get(f"verb/{key}")) is not None:
            return dict(known)
        out = self.folder / key.replace(" ", "-")
        made = None if out.exists() else verb(out)
        found = load(out) if made is None or out.exists() else made
        kept = {"summary": plain(found.summary), "rows": [plain(row) for row in found.rows]}
        self.run.store[f"verb/{key}"] = kept
        shutil.rmtree(out, ignore_errors=True)
        return kept
