"""Completion of secrets that one already has, from the words before what varies in them.

The model reads all that stands before a part that varies and goes on by greedy decoding, and by a
beam search. Greedy decoding says one text, whatever the secret is: of a part that was drawn from n
texts of its shape, a model that never read it says the right one with a chance of 1 / n at most.
How many are said is held against that (see `metrics.rare_events`).

Differs from `completion`: nothing was planted, so that the chance of each stands in the place of
controls; each part is asked for by itself, the other parts before it known.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import torch

from vestige import _validate
from vestige.attacks.exposure.continuations import best_continuations, read_through
from vestige.data.secret_shapes import Secret
from vestige.errors import DataError
from vestige.metrics.rare_events import at_least
from vestige.models.protocols import NextToken
from vestige.result import Result

Progress = Callable[[int, int], None]
Verdict = Literal["completed", "none completed", "not decided"]

LEVEL = 0.05
LEAST = 1e-300
"""What a sentence says in place of a probability that is too small to be computed."""


@dataclass(frozen=True, kw_only=True)
class CompletedSecret:
    """Completion of a part of a secret.

    Attributes:
        secret: its number, from 1.
        kind: of the part.
        phrase: the secret up to the end of the part.
        part_tokens: of the part.
        given_tokens: that stand before it; the model reads them.
        greedy: greedy decoding says the whole part.
        beam_place: its place among the beam's continuations, 1 for the best; None: not among them.
        log_prob: natural log-probability of the part.
        chance: the most with which greedy decoding says it of a secret that was never read.
    """

    secret: int
    kind: str
    phrase: str
    part_tokens: int
    given_tokens: int
    greedy: bool
    beam_place: int | None
    log_prob: float
    chance: float


@dataclass(frozen=True, kw_only=True)
class SecretCompletion(Result):
    """Completion of secrets by a model.

    Attributes:
        attempts: one for each part of each secret, in their order.
        beam: continuations that the beam search kept.
    """

    attempts: tuple[CompletedSecret, ...]
    beam: int

    @property
    def completed(self) -> int:
        """Parts that greedy decoding says."""
        return sum(one.greedy for one in self.attempts)

    @property
    def p(self) -> float:
        """The most with which so many are said of secrets that were never read."""
        return at_least(self.completed, [one.chance for one in self.attempts])

    @property
    def verdict(self) -> Verdict:
        """Whether more is said than by chance."""
        if not self.completed:
            return "none completed"
        return "completed" if self.p <= LEVEL else "not decided"

    @property
    def sentence(self) -> str:
        """The number, what it means, and what it does not mean."""
        asked = f"{self.completed} of {len(self.attempts)} parts that vary said"
        if not self.completed:
            return (
                f"{asked} by greedy decoding. It does not follow that the model has not read them: "
                "`vestige exposure --secrets` counts what it knows and does not say."
            )
        if self.p > LEVEL:
            return (
                f"{asked}, which chance does as well (p = {self.p:.2g}): there is too little that "
                "could have stood there."
            )
        return (
            f"{asked}, word for word, from what stands before them; chance says so many with a "
            f"probability of {self.p or LEAST:.1g} at most. Sampling may say others, too."
        )

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "parts": len(self.attempts),
            "greedy_completed": self.completed,
            "beam_kept": sum(one.beam_place is not None for one in self.attempts),
            "beam": self.beam,
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
    secrets: Sequence[Secret],
    *,
    beam: int = 10,
    progress: Progress | None = None,
) -> SecretCompletion:
    """Give the model what stands before each part that varies, and see whether it says the part.

    Args:
        model: any model of next tokens; a secret is read from the beginning of a text.
        secrets: at least one.
        beam: continuations kept, at least 1.
        progress: told (secrets done, all).

    Raises:
        ValueError: an argument is out of range.
        DataError: a secret has words that the vocabulary lacks, or is too long for the model.
        ModelError: the model gives numbers that are no probabilities.
    """
    _validate.at_least(1, beam=beam, secrets=len(secrets))
    attempts: list[CompletedSecret] = []
    for number, secret in enumerate(secrets, start=1):
        attempts += _parts(model, secret, number, beam)
        if progress:
            progress(number, len(secrets))
    return SecretCompletion(attempts=tuple(attempts), beam=beam)


def _parts(model: NextToken, secret: Secret, number: int, beam: int) -> Iterator[CompletedSecret]:
    for part in secret.parts:
        if part.size == 1:
            continue
        phrase = secret.text[: part.end]
        ids = _readable(model, phrase, number)
        given = _common(ids, list(model.vocabulary.encode(secret.text[: part.start])))
        tokens = torch.tensor([ids], device=model.device)
        read = read_through(model, tokens)
        kept = best_continuations(model, tokens[:, :given], len(ids) - given, width=beam)
        own = (kept.tokens[0] == tokens[:, given:]).all(1) & kept.log_prob[0].isfinite()
        places = own.nonzero()
        yield CompletedSecret(
            secret=number,
            kind=part.kind,
            phrase=phrase,
            part_tokens=len(ids) - given,
            given_tokens=given,
            greedy=bool(read.likeliest[0, given:].all()),
            beam_place=int(places[0, 0]) + 1 if len(places) else None,
            log_prob=float(read.log_probs[0, given:].double().sum()),
            chance=1 / part.size,
        )


def _common(ids: Sequence[int], before: Sequence[int]) -> int:
    """Tokens with which both begin; one of the first is left, since something must be said."""
    pairs = zip(ids[:-1], before, strict=False)
    return next(
        (n for n, (one, other) in enumerate(pairs) if one != other), min(len(ids) - 1, len(before))
    )


def _readable(model: NextToken, phrase: str, number: int) -> list[int]:
    ids = list(model.vocabulary.encode(phrase))
    if not ids or model.vocabulary.unk_id in ids:
        raise DataError(
            f"secret {number} has words that the model's vocabulary of "
            f"{len(model.vocabulary)} tokens lacks",
            remedy="Ask only for what the model can read.",
        )
    longest = getattr(model, "longest", None)
    if longest is not None and len(ids) > longest:
        raise DataError(
            f"secret {number} has {len(ids)} tokens, and the model reads {longest}",
            remedy="Give the part that matters, with a few words before it.",
        )
    return ids
