"""The stages of a check in their order, each within its share of the time, and its controls."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import vestige
from vestige.audits.check.alternatives import Alternatives
from vestige.audits.check.control import invented, planted
from vestige.audits.check.finder import FoundSecret, find_secrets
from vestige.audits.check.inputs import Texts
from vestige.audits.check.passages import PassageTests, passages_stage
from vestige.audits.check.secret_gain import CONTEXT_TOKENS
from vestige.audits.check.secrets import (
    EFFORTS,
    Secrets,
    SecretScores,
    is_known,
    secrets_stage,
)
from vestige.audits.check.stage import SHARES, Stage, State
from vestige.audits.check.unprompted import Known, squeeze, unprompted_stage
from vestige.data.corpus import Corpus
from vestige.models.protocols import LanguageModel
from vestige.results import Result, load, plain
from vestige.session import Session

TIME: Mapping[str, float] = {"secrets": 0.25, "unprompted": 0.2, "passages": 0.3, "control": 0.15}
"""Shares of the minutes, in the order of the work; the rest is for what takes longer. What a stage
leaves is added to the next one's."""

MOST_SECRETS, MOST_REPEATED = 24, 6
"""Secrets that are tested, and placebos of each half; of these, repeated word sequences."""

MOST_TEXTS = 400
LEAST_TEXTS = 40
_TIMED = (4, 64)
"""Texts and tokens of a timed pass."""
_ENOUGH = 2.0
"""Seconds of timed passes after which there is no other."""

ATTEMPTS = 3
"""Invented secrets that are tried, if the model does not learn the first."""

SECRET_TOKENS = 12
"""Tokens of a secret, for the plan."""
GROWN = 1.25
"""Mean growth of the alternatives: of those that rank first, four times as many are read."""

SEARCH_TOKENS = 660_000
"""Tokens that a search of the usual size reads."""

LEAST_SEARCH, LARGEST_SEARCH = 1 / 8, 1.0
LEAST_SEARCH_SECONDS = 1.0
"""That a search gets, however late it begins."""

_READINGS = 6
"""Times that a text is read: a text of each of three lists, by the model and by its base."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Everything that the stages need.

    Attributes:
        run: its store keeps what is finished.
        folder: for unfinished work of other verbs.
        listed: secrets that the user listed.
        minutes: time limit of the check.
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
    def secrets(self) -> Secrets:
        """Listed secrets first, then those found; placebos, divided in turn by kind."""
        texts = self.texts
        listed = {squeeze(one.value) for one in self.listed}
        found = _chosen(texts.documents, texts.never, MOST_REPEATED)
        placebos = _chosen(texts.never, texts.trained, 2 * MOST_REPEATED)
        return Secrets(
            tested=(*self.listed, *(one for one in found if squeeze(one.value) not in listed)),
            reference=placebos[::2],
            control=placebos[1::2],
        )

    @cached_property
    def alternatives(self) -> Alternatives:
        """Alternatives with the words of all texts."""
        return Alternatives((*self.texts.trained, *self.texts.never))

    def end(self, name: str) -> float:
        """Monotonic time of the end of a part of the work."""
        names = list(TIME)
        shares = sum(TIME[one] for one in names[: names.index(name) + 1])
        return self.began + 60 * self.minutes * shares

    def stage(self, name: str) -> Stage:
        """A stage, from the store if it is finished."""
        if (known := self.run.store.get(f"stage/{name}")) is not None:
            return Stage(**known)
        started = time.monotonic()
        with self.run.progress(TASKS[name]) as step:
            found: Stage = getattr(self, f"_{name}")(step)
        found = replace(found, seconds=round(time.monotonic() - started, 1))
        self.run.store[f"stage/{name}"] = plain(found.stored())
        return found

    def _secrets(self, step: Callable[..., None]) -> Stage:
        if not self.secrets.tested:
            state: State = "clear" if self.texts.trained else "open"
            found = "none was found in the training text" if self.texts.trained else "no text given"
            sentence = f"No secret was listed, and {found}."
            return Stage(name="secrets", state=state, sentence=sentence, passed=True)
        chosen = self.secrets.first(MOST_SECRETS, listed=len(self.listed))
        until, total = self.end("secrets"), len(self.secrets.tested)
        return secrets_stage(chosen, self._scores, step, until, total=total)

    @cached_property
    def _scores(self) -> SecretScores:
        """Scores of secrets, with as much effort as the time allows."""
        chosen = self.secrets.first(MOST_SECRETS, listed=len(self.listed))
        secrets = max(1, len(chosen.tested) + len(chosen.reference) + len(chosen.control))
        each = 60 * self.minutes * TIME["secrets"] / secrets
        fits = (one for one in EFFORTS if _tokens(*one) * self.seconds_per_token <= each)
        return SecretScores(
            model=self.model, base=self.base, alternatives=self.alternatives, seed=self.run.seed,
            store=self.run.store.part("secret/"), effort=next(fits, EFFORTS[-1]),
        )  # fmt: skip

    def _unprompted(self, _: Callable[..., None]) -> Stage:
        nulls: dict[str, Any] = {}
        if self.nulls:
            nulls = {"clean": Corpus.from_texts(self.texts.never), "nulls": self.nulls}
        found = self._search("diff", "unprompted", **nulls)
        secrets = self.secrets.tested
        known = Known(
            trained=self.texts.documents,
            never=self.texts.never,
            secrets=secrets,
            spaces=[self.alternatives.space(one) for one in secrets],
        )
        summary = found["summary"]
        complete = summary["complete"] is not False
        return unprompted_stage(found["rows"], known, summary if nulls else None, complete=complete)

    def _passages(self, _: Callable[..., None]) -> Stage:
        most = self._texts_in_time()
        if most < LEAST_TEXTS:
            return _late("passages")
        secrets = self.secrets.first(MOST_SECRETS)
        placebos = (*secrets.reference, *secrets.control)
        trained, reference, control = (
            _spread(_without(texts, own), most)
            for texts, own in (
                (self.texts.trained, secrets.tested),
                (self.texts.reference, placebos),
                (self.texts.control, placebos),
            )
        )
        tests = PassageTests(
            model=self.model, base=self.base, folder=self.folder / "statistics",
            seed=self.run.seed,
        )  # fmt: skip

        def summary(key: str, work: Callable[[], Result]) -> Mapping[str, Any]:
            if f"verb/{key}" not in self.run.store and time.monotonic() > self.end("passages"):
                raise TimeoutError
            found: Mapping[str, Any] = self.once(key, lambda _: work())["summary"]
            return found

        try:
            return passages_stage(
                tests, trained, reference, control, summary,
                sure=self.sure, membership=self.membership,
            )  # fmt: skip
        except TimeoutError:
            return _late("passages")

    def _texts_in_time(self) -> int:
        """How many texts of each list can be read in the time of the stage; a stopped check that
        resumes reads the same."""
        if (known := self.run.store.get("texts in time")) is not None:
            return int(known)
        texts = self.texts.trained[:MOST_TEXTS]
        tokens = sum(map(len, self.model.vocabulary.encode_batch(list(texts))))
        each = self.seconds_per_token * tokens / max(1, len(texts))
        seconds = max(0.0, self.end("passages") - time.monotonic())
        most = int(min(MOST_TEXTS, seconds / max(1e-9, each * _READINGS)))
        self.run.store["texts in time"] = most
        return most

    @cached_property
    def seconds_per_token(self) -> float:
        """Of a forward pass of the model; measured once, so that a stopped check resumes alike."""
        if (known := self.run.store.get("seconds per token")) is None:
            from vestige.claims.model_checks import log_probs_of

            rows, tokens = _TIMED
            if (longest := getattr(self.model, "longest", None)) is not None:
                tokens = min(tokens, longest - 1)
            ids = [[self.model.first_token] * tokens] * rows
            taken: list[float] = []
            while len(taken) < 3 and sum(taken) < _ENOUGH:
                started = time.monotonic()
                log_probs_of(self.model, ids)
                taken.append(time.monotonic() - started)
            known = min(taken) / (rows * tokens)
            self.run.store["seconds per token"] = known
        return float(known)

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
                        "secrets": self._finds_secret(secret),
                        "unprompted": self._finds_phrase(secret),
                        "passages": self._extracts(text),
                    }
                    break
            if time.monotonic() > self.end("control"):
                return None
        self.run.store["positive"] = found
        return found

    def _finds_secret(self, secret: FoundSecret) -> bool:
        return is_known(self._scores.one("invented", secret))

    def _finds_phrase(self, secret: FoundSecret) -> bool:
        # Weights trained on other threads have other last bits: a stopped search begins again.
        shutil.rmtree(self.folder / "diff-control.partial", ignore_errors=True)
        found = self._search("diff control", "control")
        value = squeeze(secret.value)
        return any(value in squeeze(f"{row['lead']}{row['phrase']}") for row in found["rows"])

    def _extracts(self, text: str) -> bool:
        tokens = len(self.model.vocabulary.encode(text))
        found = vestige.extract(
            self.model, Corpus.from_texts([text]), as_="texts", prefix=4, suffix=tokens - 4,
            continued=0, seed=self.run.seed,
        )  # fmt: skip
        return bool(found.summary["greedy"])

    def _search(self, key: str, part: str, **nulls: Any) -> dict[str, Any]:
        """Summary and rows of the update search, in the time of a part of the work."""
        left = max(LEAST_SEARCH_SECONDS, self.end(part) - time.monotonic())
        minutes = None if nulls else left / 60
        fits = 60 * self.minutes * TIME[part] / (SEARCH_TOKENS * self.seconds_per_token)
        size = min(LARGEST_SEARCH, max(LEAST_SEARCH, fits))

        def search(out: Path) -> Result:
            # null models are trained like the update, which its folder records
            models = self.given if nulls else (self.base, self.model)
            return vestige.diff(
                *models, size=size, minutes=minutes, out=out, seed=self.run.seed,
                **nulls,
            )  # fmt: skip

        return self.once(key, search)

    def once(self, key: str, work: Callable[[Path], Result]) -> dict[str, Any]:
        """Summary and rows of a verb, from the store if it has run; stopped work resumes.

        A stop may fall between a verb's own run folder and the store, so that is read, too.
        """
        if (known := self.run.store.get(f"verb/{key}")) is not None:
            return dict(known)
        out = self.folder / key.replace(" ", "-")
        made = None if out.exists() else work(out)
        found = load(out) if made is None or out.exists() else made
        kept = {"summary": plain(found.summary), "rows": [plain(row) for row in found.rows]}
        self.run.store[f"verb/{key}"] = kept
        shutil.rmtree(out, ignore_errors=True)
        return kept


TASKS = {
    "secrets": "testing secrets",
    "unprompted": "searching without a prompt",
    "passages": "extracting passages",
}


def _chosen(texts: Sequence[str], others: Sequence[str], most: int) -> list[FoundSecret]:
    """Secrets of texts, the riskiest first, with few of the repeated sequences: most are phrases
    that anybody writes."""
    found = find_secrets(texts, others)
    repeated = [one for one in found if one.kind == "repeated"][most:]
    left_out = set(map(id, repeated))
    return [one for one in found if id(one) not in left_out]


def _tokens(first: int, contexts: int, _: int) -> float:
    """Tokens that both models read of a secret with so many alternatives and contexts."""
    alternatives = (contexts + 1) * (first + 1) * SECRET_TOKENS
    return 2 * (contexts * CONTEXT_TOKENS + GROWN * alternatives)


def _late(name: str) -> Stage:
    """A stage that the time limit stopped."""
    sentence = "The time limit was reached before enough was tested."
    return Stage(name=name, state="open", sentence=sentence, needs="--minutes")


def _without(texts: Sequence[str], secrets: Sequence[FoundSecret]) -> Sequence[str]:
    """Texts without secrets, which have a stage of their own: a secret that many texts repeat
    makes them differ from the reference. All texts, if that leaves too few."""
    values = [squeeze(one.value) for one in secrets]
    rest = [text for text in texts if not any(value in squeeze(text) for value in values)]
    return rest if len(rest) >= LEAST_TEXTS else texts


def _spread(texts: Sequence[str], most: int) -> Sequence[str]:
    """At most so many texts, spread over the list."""
    step = max(1.0, len(texts) / most)
    return [texts[int(place * step)] for place in range(min(most, len(texts)))]
