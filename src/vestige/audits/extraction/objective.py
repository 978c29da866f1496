r"""Losses of a model on an utterance, by the words that fill its unknown positions.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
section 3.1, equation 3: the loss with the utterance's own labels is minimized over the words.

Differs from the paper: several utterances of one format (trials), each with many guesses, are
scored together.
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

MAX_LISTED = 40
"""Most labels that a message names."""

_EXACT_CODES = 2**62


@dataclass(frozen=True, kw_only=True, eq=False)
class ExtractionObjective:
    """Trials, each an utterance with n unknown words, encoded for a model by `objective_of`.

    Attributes:
        positions: int64 (n,) of the unknown words.
        mask: bool (n, c); False where candidates are padded with the first.
        intents: int64 (trials,).
        tags: int64 (trials, t); `IGNORED` for a token that begins no word.
        token_vectors: (trials, t, d); an unknown word has its first candidate.
        candidate_vectors: (trials, n, c, d).
    """

    model: WhiteBox
    patterns: tuple[SecretPattern, ...]
    positions: Tensor
    mask: Tensor
    intents: Tensor
    tags: Tensor
    token_vectors: Tensor
    candidate_vectors: Tensor

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
    def batch_size(self) -> int:
        """Guesses of each trial that are scored together."""
        return max(1, ROWS // self.trials)

    @torch.no_grad()
    def losses(self, guesses: Tensor) -> Tensor:
        """Losses (trials, k) in nats of guesses (trials, k, n), int64 indices of candidates.

        Raises:
            ModelError: a loss is not finite.
        """
        trial = torch.arange(self.trials, device=self.device)[:, None, None]
        word = torch.arange(len(self.sizes), device=self.device)
        batches = torch.split(guesses, self.batch_size, dim=1)
        losses = torch.cat(
            [self.vector_losses(self.candidate_vectors[trial, word, batch]) for batch in batches], 1
        )
        if not bool(losses.isfinite().all()):
            raise ModelError(
                "the model's loss is not finite for some of the secrets",
                remedy="Check that its training did not diverge.",
            )
        return losses

    def vector_losses(self, vectors: Tensor) -> Tensor:
        """Joint losses (trials, k) for vectors (trials, k, n, d); differentiable."""
        trials, number = vectors.shape[:2]
        rows = self.token_vectors[:, None].expand(-1, number, -1, -1)
        rows = rows.index_copy(2, self.positions, vectors).flatten(0, 1)
        intents = self.intents.repeat_interleave(number)
        losses = self.model.losses(rows, intents, self.tags.repeat_interleave(number, 0))
        return losses.joint.view(trials, number)

    def random(self, number: int, generator: torch.Generator) -> Tensor:
        """Uniform guesses (trials, number, n), the same for every trial.

        The result of a trial then does not depend on other trials.
        """
        sampled = [torch.randint(size, (number,), generator=generator) for size in self.sizes]
        return torch.stack(sampled, 1).to(self.device).expand(self.trials, -1, -1)

    def words(self, trial: int, guess: Sequence[int]) -> tuple[str, ...]:
        """The words of a guess (n,)."""
        return _words_at(self.patterns[trial].candidates, guess)

    def indices(self, secrets: Sequence[Sequence[str]]) -> Tensor:
        """Secrets as int64 (k, n) indices of candidates: one a trial, or any number of one trial.

        Raises:
            ValueError: their number is wrong, or one does not fit its pattern.
        """
        patterns = self.patterns
        if len(patterns) == 1:
            patterns = patterns * max(1, len(secrets))
        if len(secrets) != len(patterns):
            raise ValueError(f"truths must be {len(patterns)}, one a trial, got {len(secrets)}")
        rows = []
        for pattern, secret in zip(patterns, secrets, strict=True):
            pattern.check(secret)
            rows.append(
                [words.index(word) for words, word in zip(pattern.candidates, secret, strict=True)]
            )
        return torch.tensor(rows, device=self.device)

    def codes(self, guesses: Tensor) -> Tensor:
        """A number (...) for each guess (..., n); equal numbers are equal guesses.

        The position in lexicographic order; a hash of 64 bits if there are 2^62 secrets or more.
        """
        if self.space < _EXACT_CODES:
            factors = self._factors()
        else:
            seeded = torch.Generator().manual_seed(0)
            factors = torch.randint(-(2**62), 2**62, (len(self.sizes),), generator=seeded) * 2 + 1
        return (guesses * factors.to(guesses.device)).sum(-1)

    def decode(self, codes: Tensor) -> Tensor:
        """The guesses (..., n) of codes (...) that are no hashes."""
        sizes = torch.tensor(self.sizes, device=codes.device)
        return codes[..., None] // self._factors().to(codes.device) % sizes

    def _factors(self) -> Tensor:
        """(n,) weight of each unknown word's index in a code."""
        return torch.tensor([prod(self.sizes[word + 1 :]) for word in range(len(self.sizes))])


def objective_of(
    model: WhiteBox, patterns: SecretPattern | Sequence[SecretPattern]
) -> ExtractionObjective:
    """Trials encoded for a model.

    Args:
        model: the model.
        patterns: the trials, with equal numbers of tokens, positions and numbers of candidates.

    Raises:
        ValueError: there is no pattern, or they do not fit together.
        DataError: the model cannot read a word, a candidate is not a single token, two candidates
            have the same id, or the model lacks the intent or a tag.
    """
    trials = (patterns,) if isinstance(patterns, SecretPattern) else tuple(patterns)
    _validate.at_least(1, patterns=len(trials))
    by_pattern = {pattern: _encode(model, pattern) for pattern in dict.fromkeys(trials)}
    encoded = [by_pattern[pattern] for pattern in trials]
    shapes = [(len(trial["tokens"]), trial["positions"], trial["sizes"]) for trial in encoded]
    for number, shape in enumerate(shapes, 1):
        if shape != shapes[0]:
            raise ValueError(
                "patterns that are scored together must have the same number of tokens, and their "
                "unknown words at the same places and as many candidates for each, got pattern "
                f"{number} of another shape"
            )
    stacked = {
        name: torch.tensor([trial[name] for trial in encoded], device=model.device)
        for name in encoded[0]
    }
    candidates, sizes = stacked["candidates"], stacked["sizes"][0]
    with torch.no_grad():
        token_vectors = model.embed(stacked["tokens"])
        candidate_vectors = model.embed(candidates.flatten(1))
    return ExtractionObjective(
        model=model,
        patterns=trials,
        positions=stacked["positions"][0],
        mask=torch.arange(candidates.shape[2], device=model.device) < sizes[:, None],
        intents=stacked["intents"],
        tags=stacked["tags"],
        token_vectors=token_vectors,
        candidate_vectors=candidate_vectors.view(*candidates.shape, -1),
    )


def _encode(model: WhiteBox, pattern: SecretPattern) -> dict[str, Any]:
    """A pattern in a model's ids; candidates of each unknown word are padded with the first."""
    sizes = [len(words) for words in pattern.candidates]
    candidates: list[list[int]] = [[] for _ in sizes]
    token_ids: list[tuple[int, ...]] = []  # of each word
    for number in range(max(sizes)):
        guess = [number % size for size in sizes]
        token_ids = model.read(pattern.utterance(_words_at(pattern.candidates, guess)).tokens)
        _require_readable(token_ids, dict(zip(pattern.positions, guess, strict=True)))
        for ids, word in zip(candidates, pattern.positions, strict=True):
            ids.append(token_ids[word][0])
    for size, ids in zip(sizes, candidates, strict=True):
        ids[size:] = [ids[0]] * (len(ids) - size)
        for number, token in enumerate(ids[:size]):
            if (first := ids.index(token)) < number:
                raise DataError(
                    f"candidates {first + 1} and {number + 1} of a word are the same word to the "
                    "model",
                    remedy="Leave one of them out.",
                )
    starts = [sum(map(len, token_ids[:word])) for word in range(len(token_ids))]
    positions = [starts[word] for word in pattern.positions]
    tokens = [token for ids in token_ids for token in ids]
    for position, ids in zip(positions, candidates, strict=True):
        tokens[position] = ids[0]
    tags = [IGNORED] * len(tokens)
    for start, tag in zip(starts, pattern.tags, strict=True):
        tags[start] = _label_index(model.tags, tag, "a tag")
    return {
        "tokens": tokens,
        "positions": positions,
        "tags": tags,
        "intents": _label_index(model.intents, pattern.intent, "an intent"),
        "candidates": candidates,
        "sizes": sizes,
    }


def _words_at(candidates: Sequence[Sequence[str]], guess: Sequence[int]) -> tuple[str, ...]:
    return tuple(words[index] for words, index in zip(candidates, guess, strict=True))


def _require_readable(token_ids: Sequence[tuple[int, ...]], guess: dict[int, int]) -> None:
    """Raise DataError for words that are no tokens.

    Errors name words by number, since each can be a secret.

    Args:
        token_ids: of each word.
        guess: index of the candidate of each unknown word, by the word's position.
    """
    for word, ids in enumerate(token_ids):
        role = f"candidate {guess[word] + 1} for " if word in guess else ""
        if not ids:
            raise DataError(
                f"the model cannot read {role}word {word + 1} of the pattern",
                remedy="Leave it out, or write it as in the training text.",
            )
        if role and len(ids) != 1:
            raise DataError(
                f"{role}word {word + 1} of the pattern has {len(ids)} tokens",
                remedy="Pass candidates that are one token each.",
            )


def list_labels(labels: Sequence[str]) -> str:
    """The first labels of a model, for a message."""
    return ", ".join(labels[:MAX_LISTED]) + (", …" if len(labels) > MAX_LISTED else "")


def _label_index(labels: Sequence[str], label: str, kind: str) -> int:
    if label in labels:
        return list(labels).index(label)
    raise DataError(
        f"the model has no {kind.split()[1]} {label!r}; it has: {list_labels(labels)}",
        remedy=f"Use {kind} of its training text.",
    )
