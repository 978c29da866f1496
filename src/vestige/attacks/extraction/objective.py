r"""Losses of a model on an utterance, by the words that fill its unknown places.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
section 3.1, equations 2 and 3: an unknown word's vector is a weighted sum of its candidates'
vectors, and what is minimised is the loss with the utterance's own labels,

.. math:: e'_{u_i} = W^T a_i, \qquad \hat Z = \arg\min_Z L(f_\theta(E(x_c)), y_c)

Differs from the paper: several utterances of one shape (trials), each with many guesses, are
asked at once. Beside the joint loss there are its two parts alone, and the joint loss less that of
models that never saw the secret.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod
from typing import Literal, get_args

import torch
from torch import Tensor

from vestige import _validate
from vestige.data.secret_pattern import SecretPattern
from vestige.data.utterances import IGNORED
from vestige.errors import DataError
from vestige.models.white_box import WhiteBox

ObjectiveKind = Literal["joint", "tags", "intent", "calibrated"]
"""What is minimised; "calibrated" is the joint loss less the mean one of reference models."""

ROWS = 2048
"""Utterances that a model is asked at once; what they need is all of the memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ExtractionObjective:
    """Trials, each an utterance with n unknown words, encoded for a model; `objective_of` makes it.

    Rows are always in blocks of one trial after the other: row r of b is of trial
    r // (b / trials), which is what a stack of models relies on.

    Attributes:
        model: who is asked.
        patterns: the trials.
        tokens: int64 (trials, t); an unknown word holds its first candidate.
        places: int64 (n,) where the unknown words stand.
        candidates: int64 (trials, n, c), padded with a place's first one.
        mask: bool (n, c); False where padded.
        intents: int64 (trials,).
        tags: int64 (trials, t); `IGNORED` for a token that begins no word.
        known: (trials, t, d) vectors of the tokens.
        options: (trials, n, c, d) vectors of the candidates.
        kind: of loss that is minimised.
        references: the same objective to models that never saw the secret, for "calibrated".
    """

    model: WhiteBox
    patterns: tuple[SecretPattern, ...]
    tokens: Tensor
    places: Tensor
    candidates: Tensor
    mask: Tensor
    intents: Tensor
    tags: Tensor
    known: Tensor
    options: Tensor
    kind: ObjectiveKind = "joint"
    references: tuple["ExtractionObjective", ...] = ()

    @property
    def trials(self) -> int:
        """Number of utterances."""
        return len(self.patterns)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of candidates of each of the n unknown words."""
        return tuple(len(place) for place in self.patterns[0].candidates)

    @property
    def space(self) -> int:
        """Number of possible secrets."""
        return prod(self.sizes)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @torch.no_grad()
    def losses(self, guesses: Tensor) -> Tensor:
        """Losses (trials, k) in nats of guesses (trials, k, n), int64 numbers of candidates."""
        trial = torch.arange(self.trials, device=self.device)[:, None, None]
        place = torch.arange(len(self.sizes), device=self.device)
        parts = []
        for part in torch.split(guesses, self.at_once, dim=1):
            found = self._own(self.options[trial, place, part])
            for other in self.references:
                found = found - other._own(other.options[trial, place, part]) / len(self.references)
            parts.append(found)
        return torch.cat(parts, 1)

    def soft_losses(self, weights: Tensor) -> Tensor:
        """Losses (trials, k) of weights (trials, k, n, c) over candidates; differentiable.

        Weights of padded candidates must be 0.
        """
        found = self._own(torch.einsum("rknc,rncd->rknd", weights, self.options))
        for other in self.references:
            found = found - other.soft_losses(weights) / len(self.references)
        return found

    def vector_losses(self, vectors: Tensor) -> Tensor:
        """Losses (trials, k) of any vectors (trials, k, n, d) for the words; differentiable.

        Raises:
            ValueError: the loss is calibrated, where every model has vectors of its own.
        """
        if self.references:
            raise ValueError(
                "objective must be 'joint', 'tags' or 'intent' where vectors are optimised, "
                f"got {self.kind!r}: reference models have other vectors"
            )
        return self._own(vectors)

    @property
    def at_once(self) -> int:
        """Guesses of each trial that are asked together."""
        return max(1, ROWS // self.trials)

    def words(self, trial: int, guess: Sequence[int]) -> tuple[str, ...]:
        """The words that a guess (n,) stands for."""
        places = self.patterns[trial].candidates
        return tuple(place[one] for place, one in zip(places, guess, strict=True))

    def numbers(self, secrets: Sequence[Sequence[str]]) -> Tensor:
        """Secrets as numbers of candidates: int64 (k, n).

        Args:
            secrets: one a trial; of a single trial any number from 1 on.

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

    def random(self, number: int, generator: torch.Generator) -> Tensor:
        """Guesses (trials, number, n), each as likely; every trial gets the same ones.

        What comes of a trial then never depends on which others are asked beside it.
        """
        drawn = [torch.randint(size, (number,), generator=generator) for size in self.sizes]
        return torch.stack(drawn, 1).to(self.device).expand(self.trials, -1, -1)

    def _own(self, vectors: Tensor) -> Tensor:
        trials, number = vectors.shape[:2]
        rows = self.known[:, None].expand(-1, number, -1, -1)
        rows = rows.index_copy(2, self.places, vectors).flatten(0, 1)
        intents = self.intents.repeat_interleave(number)
        tags = self.tags.repeat_interleave(number, 0)
        # cuDNN's recurrent layers refuse a backward pass outside of training
        refused = rows.is_cuda and rows.requires_grad
        with torch.backends.cudnn.flags(enabled=False) if refused else nullcontext():
            found = self.model.losses(rows, intents, tags)
        part = {"tags": found.tags, "intent": found.intent}.get(self.kind)
        return (found.joint if part is None else part).view(trials, number)


def objective_of(
    model: WhiteBox,
    patterns: SecretPattern | Sequence[SecretPattern],
    *,
    kind: ObjectiveKind = "joint",
    references: Sequence[WhiteBox] = (),
) -> ExtractionObjective:
    """Trials encoded for a model.

    Args:
        model: one model, or a stack of m models with m trials, each asked of its own model.
        patterns: the trials, all of one shape; a single one is asked of every model of a stack.
        kind: of loss that is minimised.
        references: models that never saw the secret, for "calibrated" and for nothing else.

    Raises:
        ValueError: patterns of several shapes or as many as do not fit the stack, or references
            without "calibrated", or "calibrated" without references.
        DataError: the model cannot read a word, a candidate is no single token, two candidates are
            one to the model, or the model lacks the intent or a tag.

    Example:
        >>> from vestige.data.vocabulary import WordVocabulary
        >>> from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel
        >>> words = WordVocabulary(("<unk>", "<eos>", "pin", "one", "two"))
        >>> shape = IntentSlotConfig(intents=("Pin",), tags=("O", "B-canary"))
        >>> pattern = SecretPattern.parse(
        ...     "pin {number}", intent="Pin", candidates={"number": ("one", "two")}
        ... )
        >>> objective = objective_of(IntentSlotModel(words, shape).eval(), pattern)
        >>> objective.tokens.tolist(), objective.candidates.tolist()
        ([[2, 3]], [[[3, 4]]])
        >>> objective.losses(torch.tensor([[[0], [1]]])).shape
        torch.Size([1, 2])
    """
    _check_kind(kind, len(references))
    trials = _trials(model, patterns)
    others = tuple(objective_of(other, trials) for other in references)
    read = {pattern: _read(model, pattern) for pattern in dict.fromkeys(trials)}
    encoded = [read[pattern] for pattern in trials]
    _check_shapes(encoded)
    tokens = torch.tensor([one.tokens for one in encoded], device=model.device)
    candidates = torch.tensor([one.candidates for one in encoded], device=model.device)
    sizes = torch.tensor(encoded[0].sizes, device=model.device)
    with torch.no_grad():
        known, options = model.embed(tokens), model.embed(candidates.flatten(1))
    return ExtractionObjective(
        model=model,
        patterns=trials,
        tokens=tokens,
        places=torch.tensor(encoded[0].places, device=model.device),
        candidates=candidates,
        mask=torch.arange(candidates.shape[2], device=model.device) < sizes[:, None],
        intents=torch.tensor([one.intent for one in encoded], device=model.device),
        tags=torch.tensor([one.tags for one in encoded], device=model.device),
        known=known,
        options=options.view(*candidates.shape, -1),
        kind=kind,
        references=others,
    )


@dataclass(frozen=True)
class _Read:
    """A pattern as a model reads it."""

    tokens: list[int]
    places: list[int]
    tags: list[int]
    intent: int
    candidates: list[list[int]]
    sizes: list[int]


def _check_kind(kind: str, references: int) -> None:
    _validate.one_of(get_args(ObjectiveKind), objective=kind)
    if (kind == "calibrated") != bool(references):
        raise ValueError(
            "references must be given with the objective 'calibrated' and with no other, got "
            f"{references} with {kind!r}"
        )


def _trials(
    model: WhiteBox, patterns: SecretPattern | Sequence[SecretPattern]
) -> tuple[SecretPattern, ...]:
    if isinstance(patterns, SecretPattern):
        return (patterns,) * model.models
    _validate.at_least(1, patterns=len(patterns))
    if model.models > 1 and len(patterns) != model.models:
        raise ValueError(
            f"patterns must be {model.models}, one for each model of the stack, got {len(patterns)}"
        )
    return tuple(patterns)


def _check_shapes(encoded: list[_Read]) -> None:
    first = encoded[0]
    for number, other in enumerate(encoded, 1):
        for name in ("sizes", "places"):
            if getattr(other, name) != getattr(first, name):
                raise ValueError(
                    "patterns that are scored together must have their unknown words at the same "
                    "places and as many candidates for each, got "
                    f"{getattr(first, name)} and {getattr(other, name)} in pattern {number}"
                )
        if len(other.tokens) != len(first.tokens):
            raise ValueError(
                "patterns that are scored together must have the same number of tokens, got "
                f"{len(first.tokens)} and {len(other.tokens)} in pattern {number}"
            )


def _read(model: WhiteBox, pattern: SecretPattern) -> _Read:
    sizes = [len(place) for place in pattern.candidates]
    candidates: list[list[int]] = [[] for _ in sizes]
    pieces: list[tuple[int, ...]] = []
    for number in range(max(sizes)):
        filled = pattern.utterance([p[number % len(p)] for p in pattern.candidates])
        pieces = model.read(filled.tokens)
        _check_readable(pieces, pattern, number)
        for found, place in zip(candidates, pattern.places, strict=True):
            found.append(pieces[place][0])
    for size, found in zip(sizes, candidates, strict=True):
        _check_distinct(found[:size])
        found[size:] = [found[0]] * (len(found) - size)
    starts = [sum(map(len, pieces[:place])) for place in range(len(pieces))]
    tokens = [token for piece in pieces for token in piece]
    tags = [IGNORED] * len(tokens)
    for start, tag in zip(starts, pattern.tags, strict=True):
        tags[start] = _label(model.tags, tag, "tag")
    places = [starts[place] for place in pattern.places]
    for place, found in zip(places, candidates, strict=True):
        tokens[place] = found[0]
    intent = _label(model.intents, pattern.intent, "intent")
    return _Read(tokens, places, tags, intent, candidates, sizes)


def _check_readable(pieces: Sequence[tuple[int, ...]], pattern: SecretPattern, number: int) -> None:
    """Refuse words that are no tokens, by their places: each is a secret or may be one.

    Args:
        pieces: the tokens of each word, the unknown ones filled in.
        pattern: whose words they are.
        number: which candidate every unknown word is, from 0; they begin again at the end.
    """
    sizes = dict(zip(pattern.places, map(len, pattern.candidates), strict=True))
    for place, piece in enumerate(pieces):
        known = place not in sizes
        role = "" if known else f"candidate {number % sizes[place] + 1} for "
        if not piece:
            raise DataError(
                f"the model cannot read {role}word {place + 1} of the pattern",
                remedy="Leave it out, or write it as in the training text.",
            )
        if not known and len(piece) != 1:
            raise DataError(
                f"{role}word {place + 1} of the pattern has {len(piece)} tokens",
                remedy="Pass candidates that are one token each.",
            )


def _check_distinct(tokens: Sequence[int]) -> None:
    first: dict[int, int] = {}
    for number, token in enumerate(tokens, 1):
        if token in first:
            raise DataError(
                f"candidates {first[token]} and {number} of a word are the same word to the model",
                remedy="Leave one of them out.",
            )
        first[token] = number


def _label(labels: Sequence[str], wanted: str, kind: str) -> int:
    if wanted not in labels:
        shown = ", ".join(labels[:40]) + (", …" if len(labels) > 40 else "")
        raise DataError(
            f"the model has no {kind} {wanted!r}; it has: {shown}",
            remedy=f"Use {('an' if kind == 'intent' else 'a')} {kind} of its training text.",
        )
    return list(labels).index(wanted)
