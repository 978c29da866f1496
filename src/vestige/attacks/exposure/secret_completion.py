"""Completion of secrets that were never planted, from the words before what varies in them.

The model reads all that precedes a part that varies and continues by greedy decoding, and by a beam
search. Greedy decoding gives one text, whatever the secret is: of a part drawn uniformly from n
texts of its format, a model that never read it gives the right one with probability 1 / n at most.
How many are completed is compared with that (see `metrics.tests.at_least`).

Parts are not independent where the same text is completed, or the same beginning is continued: the
model gives one answer to all. They count as one event, as probable as all of them together.

Differs from `completion`: nothing was planted, so that this probability stands in for controls, and
each part is completed by itself, with the parts before it as in the secret.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil

import numpy as np
import torch

from vestige import _validate
from vestige.attacks.exposure.continuations import best_continuations, read_through
from vestige.attacks.exposure.secret_checks import checks_of, list_checks, open_secrets
from vestige.attacks.exposure.secret_forms import Readable, readable
from vestige.claims import Check, Claim, Estimate, Test, Verdict, joined, powerful
from vestige.claims.effects import COMPLETED_SHARE
from vestige.data.secret_lines import SecretList, as_list
from vestige.data.secret_shapes import Secret
from vestige.metrics.rates import clopper_pearson
from vestige.metrics.tests import at_least
from vestige.models.protocols import NextToken
from vestige.results import Measurement

Progress = Callable[[int, int], None]

LEVEL = 0.05


@dataclass(frozen=True, kw_only=True)
class CompletedSecret:
    """Completion of a part of a secret.

    Attributes:
        secret: number of its line or entry.
        kind: of the part.
        form: "as listed", or the case or Unicode form in which the model knows its words.
        phrase: the secret up to the end of the part.
        part_tokens: of the part.
        given_tokens: that precede it; the model reads them.
        greedy: greedy decoding gives the whole part.
        beam_place: its place among the beam's continuations, 1 for the best; None: not among them.
        log_prob: natural log-probability of the part.
        chance: the largest probability with which greedy decoding gives it although the model never
            read it; 1 where its alternatives are only words of a list.
        event: parts of one event have the same number.
    """

    secret: int
    kind: str
    form: str = "as listed"
    phrase: str
    part_tokens: int
    given_tokens: int
    greedy: bool
    beam_place: int | None
    log_prob: float
    chance: float
    event: int = 0


@dataclass(frozen=True, kw_only=True)
class SecretCompletion(Measurement):
    """Completion of secrets by a model.

    Attributes:
        attempts: one for each part of each secret, in their order.
        beam: continuations that the beam search kept.
        skipped: numbers of secrets that could not be used, with the reason.
        repeated: lines that repeat another secret.
        checks: of the model.
    """

    attempts: tuple[CompletedSecret, ...]
    beam: int
    skipped: tuple[tuple[int, str], ...] = ()
    repeated: int = 0
    checks: tuple[Check, ...] = field(default=(), compare=False)

    @property
    def completed(self) -> int:
        """Parts that greedy decoding gives."""
        return sum(one.greedy for one in self.attempts)

    @property
    def events(self) -> tuple[tuple[bool, float], ...]:
        """Of each event with a bound, whether it happened and the largest probability of it."""
        bounded = [one for one in self.attempts if one.chance < 1]
        found = []
        for event in dict.fromkeys(one.event for one in bounded):
            parts = [one for one in bounded if one.event == event]
            chances = {one.phrase: one.chance for one in parts}
            found.append((any(one.greedy for one in parts), min(1.0, sum(chances.values()))))
        return tuple(found)

    @property
    def p(self) -> float:
        """The largest probability of as many completions of secrets that were never read."""
        return self._p(sum(happened for happened, _ in self.events))

    def _p(self, number: int) -> float:
        return at_least(number, [chance for _, chance in self.events])

    @property
    def claim(self) -> Claim:
        """Whether the model completes more than by coincidence."""
        events = len(self.events)
        needed = next((n for n in range(1, events + 1) if self._p(n) <= LEVEL), events + 1)
        test = Test(
            p=self.p, least=self._p(events), alpha=LEVEL, against="guesses in the format"
        ) if events else None  # fmt: skip
        number = len({one.secret for one in self.attempts})
        low, high = clopper_pearson(self.completed, len(self.attempts), confidence=0.95)
        words = [one.secret for one in self.attempts if one.greedy and one.chance == 1]
        return Claim(
            "extract secrets",
            test,
            (
                *self.checks,
                *list_checks(
                    listed=number + len(self.skipped) + self.repeated,
                    repeated=self.repeated,
                    usable=number,
                ),
                *open_secrets(in_part=(), words=words, known="completed"),
                powerful(
                    test,
                    detectable=needed / max(events, 1),
                    wanted=ceil(COMPLETED_SHARE * max(events, 1)) / max(events, 1),
                    effect="a completed share of {} of the parts",
                ),
            ),
            Estimate("share of completed parts", self.completed / len(self.attempts), low, high),
        )

    @property
    def verdict(self) -> Verdict:
        """As the claim has it."""
        return self.claim.verdict

    @property
    def sentence(self) -> str:
        """How many parts are completed."""
        parts = "1 part" if len(self.attempts) == 1 else f"{len(self.attempts)} parts"
        return f"Greedy decoding completes {self.completed} of {parts} of secrets verbatim."

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        return {
            **self.claim.summary(),
            "sentence": self.sentence,
            "parts": len(self.attempts),
            "greedy_completed": self.completed,
            "beam_kept": sum(one.beam_place is not None for one in self.attempts),
            "beam": self.beam,
            "skipped": len(self.skipped),
            "repeated": self.repeated,
            "p": self.p,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a part."""
        for one in self.attempts:
            own = asdict(one)
            yield {"secret_number": own.pop("secret"), **own}


@torch.no_grad()
def complete_secrets(
    model: NextToken,
    secrets: Sequence[Secret] | SecretList,
    *,
    beam: int = 10,
    seed: int = 0,
    progress: Progress | None = None,
) -> SecretCompletion:
    """Give the model what precedes each part that varies, and see whether it completes the part.

    Args:
        model: any model of next tokens; a secret is read from the beginning of a text.
        secrets: at least one; those that the model cannot read are skipped.
        beam: continuations kept, at least 1.
        seed: of the texts with which the model is checked.
        progress: told (secrets done, all).

    Raises:
        ValueError: an argument is out of range.
        DataError: the model can read no secret.
        ModelError: its scores are not finite.
    """
    listed = as_list(secrets)
    _validate.at_least(1, beam=beam, secrets=len(listed.secrets))
    checks = checks_of((model,), seed=seed)
    chosen = readable((model,), listed.secrets)
    attempts: list[CompletedSecret] = []
    begun: list[tuple[str, str]] = []
    for number, one in enumerate(chosen.secrets, start=1):
        for part in _parts(model, one, beam):
            attempts.append(part[0])
            begun.append(part[1])
        if progress:
            progress(number, len(chosen.secrets))
    return SecretCompletion(
        attempts=tuple(_with_events(attempts, begun)),
        beam=beam,
        skipped=(*listed.skipped, *chosen.skipped),
        repeated=listed.repeated,
        checks=checks,
    )


def _parts(
    model: NextToken, one: Readable, beam: int
) -> Iterator[tuple[CompletedSecret, tuple[str, str]]]:
    """Each part's completion, with what precedes the part and its own text."""
    secret = one.secret
    for part in secret.parts:
        if part.size == 1:
            continue
        phrase, before = secret.text[: part.end], secret.text[: part.start]
        ids = list(model.vocabulary.encode(phrase))
        given = _common(ids, list(model.vocabulary.encode(before)))
        tokens = torch.tensor([ids], device=model.device)
        read = read_through(model, tokens)
        kept = best_continuations(model, tokens[:, :given], len(ids) - given, width=beam)
        own = (kept.tokens[0] == tokens[:, given:]).all(1) & kept.log_prob[0].isfinite()
        places = own.nonzero()
        attempt = CompletedSecret(
            secret=secret.number,
            kind=part.kind,
            form=one.form,
            phrase=phrase,
            part_tokens=len(ids) - given,
            given_tokens=given,
            greedy=bool(read.likeliest[0, given:].all()),
            beam_place=int(places[0, 0]) + 1 if len(places) else None,
            log_prob=float(read.log_probs[0, given:].double().sum()),
            chance=1 / part.size if part.drawn else 1.0,
        )
        yield attempt, (before, phrase[part.start :])


def _with_events(
    attempts: Sequence[CompletedSecret], begun: Sequence[tuple[str, str]]
) -> Iterator[CompletedSecret]:
    if not attempts:
        return
    events = joined(*(np.array(labels) for labels in zip(*begun, strict=True)))
    for one, event in zip(attempts, events.tolist(), strict=True):
        yield replace(one, event=event)


def _common(ids: Sequence[int], before: Sequence[int]) -> int:
    """Tokens with which both begin; one of the first is left, since something must follow."""
    pairs = zip(ids[:-1], before, strict=False)
    return next(
        (n for n, (one, other) in enumerate(pairs) if one != other), min(len(ids) - 1, len(before))
    )
