r"""Listed secrets: how much an update promoted each, compared with null models.

A secret's score is the sum of its tokens' gains (Zanella-Béguelin et al. 2020, Definition 1), the
highest of three kinds of context: a document's beginning, a prompt, or another text, where its
first token is context. By m null models its p-value is

.. math:: p = \frac{1 + \#\{\text{null scores of the secret} \ge s\}}{1 + m}

(Phipson and Smyth 2010, "Permutation p-values should never be zero", eq. 1). A search pays a
penalty per token because it examines many phrases; here only one is examined.
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
MAX_CANARIES = 10_000

ROUNDING = 1e-5  # scores that differ by less are equal


@dataclass(frozen=True)
class ListedSecret:
    """A listed secret in the tokens of the models.

    Attributes:
        secret: its text, and which parts of it vary.
        at_start: its tokens at the beginning of a text.
        within: its tokens after a word; subwords include the space before them.
    """

    secret: Secret
    at_start: Tokens
    within: Tokens

    @classmethod
    def of(cls, secret: Secret, vocabulary: Vocabulary) -> "ListedSecret":
        """The secret in the tokens of a vocabulary."""
        text = secret.text.strip()
        return cls(secret, tuple(vocabulary.encode(text)), tuple(vocabulary.encode(f" {text}")))


def read_secrets(
    secrets: "Lines | None", model: "LanguageModel", *, room: int, monitor: Monitor
) -> tuple[ListedSecret, ...]:
    """The secrets of a list, a file with one per line, or a manifest with planted canaries.

    Args:
        secrets: None: no secrets.
        model: that reads them.
        room: tokens that the model reads before a secret.
        monitor: of messages.

    Raises:
        ValueError: a secret is too long for the model or has words that it does not know, or a
            manifest has no planted canaries.
        DataError: the file cannot be read.
    """
    if secrets is None:
        return ()
    vocabulary, limit = model.vocabulary, model.longest
    listed = tuple(ListedSecret.of(secret, vocabulary) for secret in _read(secrets, model, monitor))
    for secret in listed:
        number = secret.secret.number
        if vocabulary.unk_id is not None and vocabulary.unk_id in secret.at_start:
            raise ValueError(
                "`secrets` must hold only words of the models' vocabulary, got others in entry "
                f"{number}"
            )
        tokens = max(len(secret.at_start), len(secret.within))
        if limit is not None and tokens + room > limit:
            raise ValueError(
                f"`secrets` must hold phrases of at most {limit - room} tokens, got {tokens} in "
                f"entry {number}"
            )
    return listed


def _read(secrets: "Lines", model: "LanguageModel", monitor: Monitor) -> Sequence[Secret]:
    file = manifest_file(secrets) if isinstance(secrets, str | PathLike) else None
    if file is None or file.suffix.lower() != ".json":
        return read_own_secrets(secrets, monitor=monitor).secrets
    planted = list(_planted(load_canaries(file, model.vocabulary, monitor)[1]))
    if not 1 <= len(planted) <= MAX_CANARIES:
        raise ValueError(
            f"`secrets` must hold 1 to {MAX_CANARIES:,} planted canaries, got {len(planted):,}"
        )
    return planted


def _planted(canaries: Sequence[Canary]) -> Iterator[Secret]:
    """Planted canaries; each word could have been any word of a canary."""
    words = tuple(dict.fromkeys(word for canary in canaries for word in canary.phrase.split()))
    planted = (canary for canary in canaries if not canary.control)
    for number, canary in enumerate(planted, 1):
        pieces = tuple(re.split(r"( )", canary.phrase))
        slots = tuple((piece,) if piece == " " else words for piece in pieces)
        sampled = canary.pattern != "given"
        kind = "given" if sampled else "words"
        part = Part(kind, slots, pieces, has_format=sampled)
        yield Secret(canary.phrase, (part,), number)


@torch.no_grad()
def score_secrets(
    pair: Pair, secrets: Sequence[ListedSecret], prompts: Sequence[Prompt]
) -> list[tuple[str, Text]]:
    """The name of the context in which the update promoted each secret most, and the secret there.

    The first of equal scores counts, in the order of `prompts`, then within a text.
    """
    at_start = [secret.at_start for secret in secrets]
    within = [secret.within for secret in secrets]
    contexts = [
        (prompt.name, at_start, pair.token_gains(at_start, context=prompt.tokens))
        for prompt in prompts
    ]
    contexts.append((WITHIN, within, pair.token_gains(within)))
    best: dict[int, tuple[str, Text]] = {}
    for name, texts, gains in contexts:
        for index, (tokens, token_gains) in enumerate(zip(texts, gains, strict=True)):
            text = Text(tokens, token_gains, score=math.fsum(token_gains))
            if index not in best or text.score > best[index][1].score + ROUNDING:
                best[index] = (name, text)
    return list(best.values())


def p_value(score: float, null_scores: Sequence[float]) -> float | None:
    """(1 + null scores at least as high) / (1 + null models); None without null models."""
    if not null_scores:
        return None
    return (1 + sum(other >= score for other in null_scores)) / (1 + len(null_scores))


def contained_in(secret: ListedSecret, texts: Sequence[Sequence[int]]) -> tuple[int | None, float]:
    """The index of the text with most tokens of a secret in sequence, and their share of it.

    (None, 0.0) if no text contains two of its tokens in sequence.
    """
    best, share = None, 0.0
    for index, text in enumerate(texts):
        for tokens in {secret.at_start, secret.within}:
            match = SequenceMatcher(None, tokens, text, autojunk=False).find_longest_match().size
            if match > share * len(tokens) and (match > 1 or len(tokens) == 1):
                best, share = index, match / len(tokens)
    return best, share
