"""Secrets in labelled utterances, drawn at random, with their controls.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
section 4.2 and appendix A: utterances whose last words are drawn at random from a small set,
with an intent and a slot of their own.

Differs from the paper: every set has controls, secrets drawn alike that are never planted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vestige import _validate
from vestige.data.manifest import Copied
from vestige.data.secret_pattern import CANDIDATES, SecretPattern, named_sets
from vestige.data.utterances import Utterance

_AT_ONCE = 256  # secrets drawn in one go; the draws are those of one after the other


@dataclass(frozen=True, kw_only=True)
class SecretCanary(Copied):
    """An utterance with a secret in it, and how often it is planted.

    Attributes:
        pattern: its text with places for the secret, such as "my pin code is {digit:4}".
        intent: what it is labelled with.
        slot: the slot that the secret fills.
        secret: the words for those places.
        copies: how often it is planted, validation included; 0 for a control.
        candidates: the sets of words that the pattern names, by name; where one is missing, it
            is that of `CANDIDATES`.

    Raises:
        ValueError: the pattern cannot be read, or cannot have this secret.

    Example:
        >>> canary = SecretCanary(
        ...     pattern="call {digit:3}", intent="Call", slot="number", secret=("4", "2", "1"),
        ...     copies=10,
        ... )
        >>> canary.utterance.text, canary.utterance.tags
        ('call 4 2 1', ('O', 'B-number', 'I-number', 'I-number'))
    """

    pattern: str
    intent: str
    slot: str
    secret: tuple[str, ...]
    copies: int
    candidates: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __post_init__(self) -> None:
        _validate.at_least(0, copies=self.copies)
        self.parsed.check(self.secret)

    @cached_property
    def parsed(self) -> SecretPattern:
        """The pattern, read."""
        return SecretPattern.parse(
            self.pattern, intent=self.intent, slot=self.slot, candidates=dict(self.candidates)
        )

    @property
    def utterance(self) -> Utterance:
        """The pattern with the secret in its places."""
        return self.parsed.utterance(self.secret)


def draw_secrets(
    pattern: SecretPattern,
    *,
    number: int,
    seed: int,
    exclude: Iterable[Sequence[str]] = (),
) -> tuple[tuple[str, ...], ...]:
    """Different secrets that a pattern can have, every one alike.

    Args:
        pattern: its space may be of any size.
        number: how many.
        seed: decides them together with the pattern's words, so that two patterns do not share
            their secrets. A larger number leaves the first ones as they are.
        exclude: secrets that are not drawn.

    Raises:
        ValueError: the pattern has fewer secrets, or cannot have one that is excluded.

    Example:
        >>> draw_secrets(SecretPattern.parse("pin {digit:4}", intent="Pin"), number=2, seed=1)
        (('2', '6', '8', '5'), ('6', '2', '0', '8'))
    """
    _validate.positive(number=number)
    taken = {tuple(secret) for secret in exclude}
    for secret in taken:
        pattern.check(secret)
    left = pattern.space - len(taken)
    if number > left:
        raise ValueError(f"number must be at most {left}, the secrets that are left, got {number}")
    generator = np.random.default_rng([seed, *pattern.text.encode()])
    sizes = [len(place) for place in pattern.candidates]
    drawn: list[tuple[str, ...]] = []
    while len(drawn) < number:
        for chosen in generator.integers(sizes, size=(_AT_ONCE, len(sizes))).tolist():
            words = (place[index] for place, index in zip(pattern.candidates, chosen, strict=True))
            secret = tuple(words)
            if secret not in taken:
                taken.add(secret)
                drawn.append(secret)
    return tuple(drawn[:number])


def secret_canaries(
    pattern: str,
    *,
    intent: str,
    slot: str = "canary",
    candidates: Mapping[str, Sequence[str]] | None = None,
    copies: int,
    number: int = 1,
    controls: int = 1,
    seed: int,
) -> tuple[SecretCanary, ...]:
    """Canaries of one pattern, with controls.

    Args:
        pattern: text such as "my pin code is {digit:4}"; see `SecretPattern.parse`.
        intent: what the utterances are labelled with.
        slot: the slot that the secret fills.
        candidates: further sets of words by name.
        copies: how often each is to be planted, validation included.
        number: how many to plant.
        controls: how many never to plant, in all, at least 1.
        seed: decides the secrets, together with the pattern's words.

    Returns:
        first the canaries, then the controls; no secret comes twice.

    Raises:
        ValueError: an argument is out of range, or the pattern has fewer secrets.
    """
    _validate.positive(copies=copies, number=number, controls=controls)
    parsed = SecretPattern.parse(pattern, intent=intent, slot=slot, candidates=candidates)
    if number + controls > parsed.space:
        raise ValueError(
            f"number and controls must be at most {parsed.space} together, the secrets of the "
            f"pattern {pattern!r}, got {number} and {controls}"
        )
    known = {**CANDIDATES, **(candidates or {})}
    used = tuple((name, tuple(known[name])) for name in named_sets(pattern))
    return tuple(
        SecretCanary(
            pattern=pattern,
            intent=intent,
            slot=slot,
            secret=secret,
            copies=copies if index < number else 0,
            candidates=used,
        )
        for index, secret in enumerate(draw_secrets(parsed, number=number + controls, seed=seed))
    )
