r"""Losses of a model on an utterance, by the words that fill its unknown positions.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
section 3.1, equation 3: the loss with the utterance's own labels is minimized over the words.

Differs from the paper: several utterances of one shape (trials), each with many guesses, are scored
together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from vestige import _validate
from vestige.data.canaries.patterns import SecretPattern
from vestige.data.utterances import IGNORED
from vestige.errors import DataError, ModelError
from vestige.models.white_box import WhiteBox

ROWS = 2048
"""Utterances that a model reads at once; they need nearly all of the memory."""

LISTED = 40
"""Labels that a message names."""

_EXACT_CODES = 2**62


@dataclass(frozen=True, kw_only=True, eq=False)
class ExtractionObjective:
    """Trials, each an utterance with n unknown words, encoded for a model by `objective_of`.

    Rows are in blocks, one trial after the other: row r of b is of trial r // (b / trials).

    Attributes:
        places: int64 (n,) positions of the unknown words.
        mask: bool (n, c); False where candidates are padded with the first.
        intents: int64 (trials,).
        tags: int64 (trials, t); `IGNORED` for a token that begins no word.
        known: (trials, t, d) vectors of the tokens; an unknown word has its first candidate.
        options: (trials, n, c, d) vectors of the candidates.
    """

    model: WhiteBox
    patterns: tuple[SecretPattern, ...]
    places: Tensor
    mask: Tensor
    intents: Tensor
    tags: Tensor
    known: Tensor
    options: Tensor

    @property
    def trials(self) -> int:
        """Number of utterances."""
        return len(self.patterns)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of candidates of each of the n unknown words."""
        return tuple(map(len, self.patterns[0].candidates))

    @property
    def space(self) -> int:
        """Number of possible secrets."""
        return prod(self.sizes)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def at_once(self) -> int:
        """Guesses of each trial that are scored together."""
        return max(1, ROWS // self.trials)

    @torch.no_grad()
    def losses(self, guesses: Tensor) -> Tensor:
        """Losses (trials, k) in nats of guesses (trials, k, n), int64 numbers of candidates.

        Raises:
            ModelError: a loss is not finite.
        """
        trial = torch.arange(self.trials, device=self.device)[:, None, None]
        place = torch.arange(len(self.sizes), device=self.device)
        parts = []
        for part in torch.split(guesses, self.at_once, dim=1):
            parts.append(self.vector_losses(self.options[trial, place, part]))
        losses = torch.cat(parts, 1)
        if not bool(losses.isfinite().all()):
            raise ModelError(
                "the model's loss is not finite for some of the secrets",
                remedy="Check that its training did not diverge.",
            )
        return losses

    def vector_losses(self, vectors: Tensor) -> Tensor:
        """Joint losses (trials, k) for vectors (trials, k, n, d); differentiable."""
        trials, number = vectors.shape[:2]
        rows = self.known[:, None].expand(-1, number, -1, -1)
        rows = rows.index_copy(2, self.places, vectors).flatten(0, 1)
        intents = self.intents.repeat_interleave(number)
        found = self.model.losses(rows, intents, self.tags.repeat_interleave(number, 0))
        return found.joint.view(trials, number)

    def random(self, number: int, generator: torch.Generator) -> Tensor:
        """Uniform guesses (trials, number, n), the same for every trial.

        The result of a trial then never depends on the others in its batch.
        """
        sampled = [torch.randint(size, (number,), generator=generator) for size in self.sizes]
        return torch.stack(sampled, 1).to(self.device).expand(self.trials, -1, -1)

    def words(self, trial: int, guess: Sequence[int]) -> tuple[str, ...]:
        """The words of a guess (n,)."""
        return _at(self.patterns[trial].candidates, guess)

    def numbers(self, secrets: Sequence[Sequence[str]]) -> Tensor:
        """Secrets, one a trial or any number of a single trial, as int64 (k, n) of candidates.

        Raises:
            ValueError: not as many, or one that its pattern cannot have.
        """
        patterns = self.patterns
        if len(patterns) == 1:
            patterns = patterns * max(1, len(secrets))
        if len(secrets) != len(patterns):
            raise ValueError(f"truths must be {len(patterns)}, one a trial, got {len(secrets)}")
        rows = []
        for pattern, secret in zip(patterns, secrets, strict=True):
            pattern.check(secret)
            rows.append([p.index(word) for p, word in zip(pattern.candidates, secret, strict=True)])
        return torch.tensor(rows, device=self.device)

    def codes(self, guesses: Tensor) -> Tensor:
        """A number (...) for each guess (..., n); equal numbers are equal guesses.

        Counts up from the last word. A hash of 64 bits if there are more than 2^62 secrets.
        """
        if self.space < _EXACT_CODES:
            factors = self._steps()
        else:
            seeded = torch.Generator().manual_seed(0)
            factors = torch.randint(-(2**62), 2**62, (len(self.sizes),), generator=seeded) * 2 + 1
        return (guesses * factors.to(guesses.device)).sum(-1)

    def decoded(self, codes: Tensor) -> Tensor:
        """The guesses (..., n) of their codes (...), where these are exact."""
        sizes = torch.tensor(self.sizes, device=codes.device)
        return codes[..., None] // self._steps().to(codes.device) % sizes

    def _steps(self) -> Tensor:
        """(n,) what one step at each position adds to an exact code."""
        return torch.tensor([prod(self.sizes[place + 1 :]) for place in range(len(self.sizes))])


def objective_of(
    model: WhiteBox, patterns: SecretPattern | Sequence[SecretPattern]
) -> ExtractionObjective:
    """Trials encoded for a model.

    Args:
        model: the model.
        patterns: the trials, all of one shape.

    Raises:
        ValueError: there is no pattern, or they have several shapes.
        DataError: the model cannot read a word, a candidate is no single token, two candidates are
            one to the model, or the model lacks the intent or a tag.
    """
    trials = (patterns,) if isinstance(patterns, SecretPattern) else tuple(patterns)
    _validate.at_least(1, patterns=len(trials))
    read = {pattern: _read(model, pattern) for pattern in dict.fromkeys(trials)}
    encoded = [read[pattern] for pattern in trials]
    shapes = [(len(one["tokens"]), one["places"], one["sizes"]) for one in encoded]
    for number, shape in enumerate(shapes, 1):
        if shape != shapes[0]:
            raise ValueError(
                "patterns that are scored together must have the same number of tokens, and their "
                "unknown words at the same places and as many candidates for each, got pattern "
                f"{number} of another shape"
            )
    stacked = {
        name: torch.tensor([one[name] for one in encoded], device=model.device)
        for name in encoded[0]
    }
    candidates, sizes = stacked["candidates"], stacked["sizes"][0]
    with torch.no_grad():
        known, options = model.embed(stacked["tokens"]), model.embed(candidates.flatten(1))
    return ExtractionObjective(
        model=model,
        patterns=trials,
        places=stacked["places"][0],
        mask=torch.arange(candidates.shape[2], device=model.device) < sizes[:, None],
        intents=stacked["intents"],
        tags=stacked["tags"],
        known=known,
        options=options.view(*candidates.shape, -1),
    )


def _read(model: WhiteBox, pattern: SecretPattern) -> dict[str, Any]:
    """A pattern in a model's ids; candidates of each unknown word are padded with the first."""
    sizes = [len(place) for place in pattern.candidates]
    candidates: list[list[int]] = [[] for _ in sizes]
    pieces: list[tuple[int, ...]] = []
    for number in range(max(sizes)):
        tried = [number % size for size in sizes]
        pieces = model.read(pattern.utterance(_at(pattern.candidates, tried)).tokens)
        _check_readable(pieces, dict(zip(pattern.positions, tried, strict=True)))
        for found, place in zip(candidates, pattern.positions, strict=True):
            found.append(pieces[place][0])
    for size, found in zip(sizes, candidates, strict=True):
        found[size:] = [found[0]] * (len(found) - size)
        for number, token in enumerate(found[:size]):
            if (first := found.index(token)) < number:
                raise DataError(
                    f"candidates {first + 1} and {number + 1} of a word are the same word to the "
                    "model",
                    remedy="Leave one of them out.",
                )
    starts = [sum(map(len, pieces[:place])) for place in range(len(pieces))]
    places = [starts[place] for place in pattern.positions]
    tokens = [token for piece in pieces for token in piece]
    for place, found in zip(places, candidates, strict=True):
        tokens[place] = found[0]
    tags = [IGNORED] * len(tokens)
    for start, tag in zip(starts, pattern.tags, strict=True):
        tags[start] = _label(model.tags, tag, "a tag")
    intent = _label(model.intents, pattern.intent, "an intent")
    return {"tokens": tokens, "places": places, "tags": tags, "intents": intent,
            "candidates": candidates, "sizes": sizes}  # fmt: skip


def _at(candidates: Sequence[Sequence[str]], guess: Sequence[int]) -> tuple[str, ...]:
    return tuple(place[one] for place, one in zip(candidates, guess, strict=True))


def _check_readable(pieces: Sequence[tuple[int, ...]], tried: dict[int, int]) -> None:
    """Refuse words that are no tokens, by their positions: each is a secret or may be one.

    `tried` has the candidate, from 0, at the position of each unknown word.
    """
    for place, piece in enumerate(pieces):
        role = f"candidate {tried[place] + 1} for " if place in tried else ""
        if not piece:
            raise DataError(
                f"the model cannot read {role}word {place + 1} of the pattern",
                remedy="Leave it out, or write it as in the training text.",
            )
        if role and len(piece) != 1:
            raise DataError(
                f"{role}word {place + 1} of the pattern has {len(piece)} tokens",
                remedy="Pass candidates that are one token each.",
            )


def listed(labels: Sequence[str]) -> str:
    """The first labels of a model, for a message."""
    return ", ".join(labels[:LISTED]) + (", …" if len(labels) > LISTED else "")


def _label(labels: Sequence[str], wanted: str, kind: str) -> int:
    if wanted in labels:
        return list(labels).index(wanted)
    raise DataError(
        f"the model has no {kind.split()[1]} {wanted!r}; it has: {listed(labels)}",
        remedy=f"Use {kind} of its training text.",
    )
