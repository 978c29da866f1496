r"""Secrets that must not leak: how much an update promoted each, and how much null models do.

A secret's score is the sum of its tokens' gains (Zanella-Béguelin et al. 2020, Definition 1) where
that is highest: at a document's beginning, after a prompt, or within a text, where its first token
is context. By m null models its p-value is

.. math:: p = \frac{1 + \#\{\text{null scores of the secret} \ge s\}}{1 + m}

(Phipson and Smyth 2010, "Permutation p-values should never be zero", eq. 1). A search pays a
penalty per token since it looks at many phrases; here only one is examined.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from os import PathLike
from typing import TYPE_CHECKING

import torch

from vestige.audits.update.pair import Pair, Tokens
from vestige.audits.update.phrases import Text
from vestige.audits.update.prompts import Prompt
from vestige.data.canaries.planting import manifest_file
from vestige.data.canaries.texts import Canary, load_canaries
from vestige.data.secrets.kinds import Part
from vestige.data.secrets.lines import Secret, read_own_secrets
from vestige.data.vocabulary import Vocabulary
from vestige.monitor import Monitor

if TYPE_CHECKING:
    from vestige.arguments import Lines
    from vestige.models.protocols import LanguageModel

WITHIN = "within a text"
MOST = 10_000

ROUNDING = 1e-5  # scores that differ by less are equal


@dataclass(frozen=True)
class Listed:
    """A listed secret as models read it.

    Attributes:
        secret: its text, and what of it varies.
        at_start: its tokens at the beginning of a text.
        within: its tokens after a word; subwords carry the space before them.
    """

    secret: Secret
    at_start: Tokens
    within: Tokens

    @classmethod
    def of(cls, secret: Secret, vocabulary: Vocabulary) -> "Listed":
        """The secret in the tokens of a vocabulary."""
        text = secret.text.strip()
        return cls(secret, tuple(vocabulary.encode(text)), tuple(vocabulary.encode(f" {text}")))


def read_secrets(
    secrets: "Lines | None", model: "LanguageModel", *, room: int, monitor: Monitor
) -> tuple[Listed, ...]:
    """Listed secrets as a model reads them after at most `room` tokens; none if none are listed.

    They are texts, a file with one per line, or a manifest with planted canaries.
    """
    if secrets is None:
        return ()
    words, limit = model.vocabulary, model.longest
    listed = tuple(Listed.of(secret, words) for secret in _read(secrets, model, monitor))
    for one in listed:
        number = one.secret.number
        if words.unk_id is not None and words.unk_id in one.at_start:
            raise ValueError(
                "`secrets` must hold only words of the models' vocabulary, got others in entry "
                f"{number}"
            )
        tokens = max(len(one.at_start), len(one.within))
        if limit is not None and tokens + room > limit:
            raise ValueError(
                f"`secrets` must hold phrases of at most {limit - room} tokens, got {tokens} in "
                f"entry {number}"
            )
    return listed


def _read(secrets: "Lines", model: "LanguageModel", monitor: Monitor) -> Sequence[Secret]:
    """Secrets of a list, or a manifest's planted canaries."""
    file = manifest_file(secrets) if isinstance(secrets, str | PathLike) else None
    if file is None or file.suffix.lower() != ".json":
        return read_own_secrets(secrets, monitor=monitor).secrets
    planted = list(_planted(load_canaries(file, model.vocabulary, monitor)[1]))
    if not 1 <= len(planted) <= MOST:
        raise ValueError(
            f"`secrets` must hold 1 to {MOST:,} planted canaries, got {len(planted):,}"
        )
    return planted


def _planted(canaries: Sequence[Canary]) -> Iterator[Secret]:
    """Planted canaries; each word could have been any word of a canary."""
    words = tuple(dict.fromkeys(word for one in canaries for word in one.phrase.split()))
    planted = (canary for canary in canaries if not canary.control)
    for number, canary in enumerate(planted, 1):
        own = tuple(re.split(r"( )", canary.phrase))
        slots = tuple((word,) if word == " " else words for word in own)
        sampled = canary.pattern != "given"
        kind = "given" if sampled else "words"
        part = Part(kind, slots, own, has_format=sampled)
        yield Secret(canary.phrase, (part,), number)


@torch.no_grad()
def score_secrets(
    pair: Pair, listed: Sequence[Listed], prompts: Sequence[Prompt]
) -> list[tuple[str, Text]]:
    """The place where the update promoted each secret most, and the secret there.

    Of places with equal scores the first one counts: those of `prompts`, then within a text.
    """
    at_start, within = [one.at_start for one in listed], [one.within for one in listed]
    places = [(one.name, at_start, pair.token_gains(at_start, context=one.tokens))
              for one in prompts]  # fmt: skip
    places.append((WITHIN, within, pair.token_gains(within)))
    best: dict[int, tuple[str, Text]] = {}
    for name, texts, gains in places:
        for number, (tokens, own) in enumerate(zip(texts, gains, strict=True)):
            text = Text(tokens, own, score=math.fsum(own))
            if number not in best or text.score > best[number][1].score + ROUNDING:
                best[number] = (name, text)
    return list(best.values())


def p_value(score: float, null_scores: Sequence[float]) -> float | None:
    """(1 + null scores as high) / (1 + null models); None without null models."""
    if not null_scores:
        return None
    return (1 + sum(other >= score for other in null_scores)) / (1 + len(null_scores))


def contained_in(one: Listed, texts: Sequence[Sequence[int]]) -> tuple[int | None, float]:
    """The text with the longest run of a secret's tokens, from 0, and the share that it contains.

    (None, 0.0) if no text contains two of its tokens in sequence.
    """
    best, share = None, 0.0
    for number, tokens in enumerate(texts):
        for secret in {one.at_start, one.within}:
            run = SequenceMatcher(None, secret, tokens, autojunk=False).find_longest_match().size
            if run > share * len(secret) and (run > 1 or len(secret) == 1):
                best, share = number, run / len(secret)
    return best, share
