"""The state of a running check: models, texts, secrets, time limits and the store."""

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
    find_risky,
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
"""By stage: the task that the progress bar names, and the function that runs the stage."""

TIME: Mapping[str, float] = {"secrets": 0.25, "unprompted": 0.2, "passages": 0.3, "control": 0.15}
"""Shares of the time limit, in the order of the work; the rest is a reserve. Time that a part does
not use goes to the next one."""

TIMED_TEXTS, TIMED_TOKENS = 4, 64  # in a forward pass that is timed
ENOUGH_SECONDS = 2.0  # of timed passes
CONTROL_ATTEMPTS = 3  # invented secrets that are tried, if the model does not learn the first
SEARCH_TOKENS = 660_000  # read by a search of size 1

LEAST_SEARCH, LARGEST_SEARCH = 1 / 8, 1.0  # size of a search
LEAST_SEARCH_SECONDS = 1.0  # even if no time is left


@dataclass(frozen=True, kw_only=True)
class Work:
    """Everything that the stages need. Finished work is stored in `run.store`.

    Attributes:
        listed: secrets that the user listed.
        minutes: time limit of the check.
        folder: for the runs of other verbs.
        model_arguments: base and model as the user passed them, for null models.
        nulls: null models to train for the unprompted stage; 0 for none.
        sure: the user confirmed the training file.
        membership: recognized training text counts as a leak.
        started: monotonic time at which the check started.
    """

    run: Session
    base: LanguageModel
    model: LanguageModel
    texts: Texts
    listed: Sequence[FoundSecret]
    minutes: float
    folder: Path
    model_arguments: tuple[Any, Any] = ("", "")
    nulls: int = 0
    sure: bool = False
    membership: bool = False
    started: float = field(default_factory=time.monotonic)

    @cached_property
    def secrets(self) -> dict[str, list[FoundSecret]]:
        """All secrets by group: listed ones, then found ones; placebos alternate between halves."""
        texts = self.texts
        listed = {squeeze(secret.value) for secret in self.listed}
        found = find_risky(texts.documents, texts.never, MOST_REPEATED)
        placebos = find_risky(texts.never, texts.trained, 2 * MOST_REPEATED)
        tested = [*self.listed, *(new for new in found if squeeze(new.value) not in listed)]
        return dict(zip(GROUPS, (tested, placebos[::2], placebos[1::2]), strict=True))

    @cached_property
    def selected(self) -> dict[str, list[FoundSecret]]:
        """The riskiest secrets of each group, and all listed ones."""
        most = dict.fromkeys(GROUPS, MOST_SECRETS) | {"tested": max(MOST_SECRETS, len(self.listed))}
        return {group: secrets[: most[group]] for group, secrets in self.secrets.items()}

    @cached_property
    def alternatives(self) -> Alternatives:
        """Alternatives with the words of all texts."""
        return Alternatives((*self.texts.trained, *self.texts.never))

    def time_limit(self, part: str) -> float:
        """Seconds for a part of the work."""
        return 60 * self.minutes * TIME[part]

    def deadline(self, part: str) -> float:
        """Monotonic time at which a part of the work should end."""
        parts = list(TIME)
        shares = [TIME[earlier] for earlier in parts[: parts.index(part) + 1]]
        return self.started + 60 * self.minutes * sum(shares)

    @cached_property
    def seconds_per_token(self) -> float:
        """Of a forward pass; stored, so that a resumed check makes the same decisions."""
        if (stored := self.run.store.get("seconds per token")) is not None:
            return float(stored)
        from vestige.models.predictions import log_probs_of

        tokens = TIMED_TOKENS
        if self.model.longest is not None:
            tokens = min(tokens, self.model.longest - 1)
        ids = [[self.model.first_token] * tokens] * TIMED_TEXTS
        seconds: list[float] = []
        while len(seconds) < 3 and sum(seconds) < ENOUGH_SECONDS:
            started = time.monotonic()
            log_probs_of(self.model, ids)
            seconds.append(time.monotonic() - started)
        result = min(seconds) / (TIMED_TEXTS * tokens)
        self.run.store["seconds per token"] = result
        return result

    def run_stage(self, name: str) -> Stage:
        """The result of a stage, from the store if it has finished."""
        if (stored := self.run.store.get(f"stage/{name}")) is not None:
            return Stage(**stored)
        started, (task, run) = time.monotonic(), STAGES[name]
        with self.run.progress(task) as step:
            result = run(self, step)
        result = replace(result, seconds=round(time.monotonic() - started, 1))
        self.run.store[f"stage/{name}"] = plain(vars(result))
        return result

    def positive_control(self) -> dict[str, bool] | None:
        """Train an invented secret into the model. By stage: is it found? None: time limit."""
        if (stored := self.run.store.get("positive")) is not None:
            return dict(stored)
        found = dict.fromkeys(SHARES, False)
        for attempt in range(CONTROL_ATTEMPTS):
            secret = invented(self.run.seed + attempt)
            text = f"{secret.occurrences[0][1]}{secret.value}."
            until = self.deadline("control")
            with (
                self.run.progress("training an invented secret into the model"),
                planted(self.model, text, seed=self.run.seed, until=until) as learned,
            ):
                if learned:
                    found = {
                        "secrets": finds_secret(self, secret),
                        "unprompted": finds_phrase(self, secret),
                        "passages": finds_passage(self, text),
                    }
                    break
            if time.monotonic() > until:
                return None
        self.run.store["positive"] = found
        return found

    def search(self, key: str, part: str, **nulls: Any) -> dict[str, Any]:
        """Summary and rows of `vestige.diff` within the time of a part of the work."""
        seconds = max(LEAST_SEARCH_SECONDS, self.deadline(part) - time.monotonic())
        size = self.time_limit(part) / (SEARCH_TOKENS * self.seconds_per_token)
        # Null models are trained like the update, as recorded in the model's folder.
        models = self.model_arguments if nulls else (self.base, self.model)
        return self.run_once(key, lambda out: vestige.diff(
            *models, size=min(LARGEST_SEARCH, max(LEAST_SEARCH, size)),
            minutes=None if nulls else seconds / 60, out=out, seed=self.run.seed, **nulls,
        ))  # fmt: skip

    def run_once(self, key: str, verb: Callable[[Path], Result]) -> dict[str, Any]:
        """Summary and rows of a verb, from the store if it has finished; a stopped verb resumes.

        The process may have stopped between writing the verb's run folder and writing the store.
        """
        if (stored := self.run.store.get(f"verb/{key}")) is not None:
            return dict(stored)
        out = self.folder / key.replace(" ", "-")
        result = None if out.exists() else verb(out)
        saved = load(out) if result is None or out.exists() else result
        entry = {"summary": plain(saved.summary), "rows": [plain(row) for row in saved.rows]}
        self.run.store[f"verb/{key}"] = entry
        shutil.rmtree(out, ignore_errors=True)
        return entry
