r"""Listed secrets that a search generates verbatim: direct evidence, without null models.

A search follows what the later model prefers and keeps the best of thousands of texts, so the
probability of one of its texts bounds nothing. What is random here is the secret. If it was chosen
uniformly from the N texts of its format, and neither model read it, it is independent of all that
the search generates, however that was sampled, extended, edited and selected. So

.. math:: P(\text{generated}) = E(k) / N

with k the distinct texts of the format among everything generated, reported or not. This holds for
beams, for contrastive samples and for the best of many.

A secret that the earlier model read is not independent of the search: the update may have promoted
its prefix alone. So the earlier model gets the same opportunity. It reads the text before and
around the secret as the later one generated it, and its probability of the secret among the texts
of its format, s, is estimated from `ALTERNATIVES` of them. If the update left these preferences as
they were, c of d samples with a text of this format contain the secret with at most the probability
of c successes in d trials at s; what was not sampled but searched for counts once, at d s. The
bound is the larger of both, times the number of listed secrets.

Assumptions: the secret was chosen uniformly from its format (a birthday among codes was not), and
the format was not chosen after the search. Names and words are not uniform: only codes, numbers,
keys, dates, listed choices and planted words count as varying. If nothing varies there is no bound:
an update that reads other texts with the same words may make a text more probable than the earlier
model did by any factor.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np
from scipy.stats import binom

from vestige.audits.update.known_secrets import Listed
from vestige.audits.update.phrases import Text
from vestige.claims import Direct
from vestige.claims.text_lists import normalized
from vestige.data.secret_shapes import UNIFORM, Secret
from vestige.data.vocabulary import Vocabulary
from vestige.models.predictions import log_probs_of
from vestige.models.protocols import NextToken

ALTERNATIVES = 128
"""Texts of a secret's format by which the earlier model's preference for it is estimated."""

UNIFORM_KINDS = UNIFORM | {"given", "date"}
"""Kinds of parts that count as chosen uniformly."""

PREFIX = 400
"""Characters before a secret that the earlier model reads."""

Words = tuple[str, ...]


@dataclass(frozen=True)
class Generated:
    """The texts that a search generated.

    Attributes:
        texts: all of them, each with what was read before it.
        sampled: whether each was sampled, independently of the others.
    """

    texts: tuple[str, ...] = ()
    sampled: tuple[bool, ...] = ()

    @classmethod
    def of(cls, read: Sequence[Text], vocabulary: Vocabulary) -> "Generated":
        """Texts of a search, each turn of a sample once, without marks of a document's ends."""
        marks = {vocabulary.bos_id, vocabulary.eos_id}
        texts = []
        for one in read:
            answer = bool(one.log_ratios) and one.first > max(1, len(one.prompt))
            tokens = one.tokens[one.first :] if answer else one.tokens
            texts.append(vocabulary.decode([token for token in tokens if token not in marks]))
        return cls(tuple(texts), tuple(bool(one.log_ratios) for one in read))


def verbatim(
    before: NextToken,
    listed: Sequence[Listed],
    search: Generated,
    *,
    given: Sequence[str] = (),
    seed: int,
) -> list[tuple[int, Direct | None]]:
    """For each listed secret the number of texts that contain it, and what that proves.

    Args:
        before: the earlier model.
        listed: the secrets.
        search: what was generated with the later model.
        given: prompts. A secret of which they contain a part proves nothing.
        seed: of the alternatives.
    """
    words = [tuple(normalized(text)) for text in search.texts]
    joined = "\n".join(f" {' '.join(text)} " for text in words)
    prompts = tuple(word for text in given for word in normalized(text))
    found = list[tuple[int, Direct | None]]()
    for one in listed:
        wanted = tuple(normalized(one.text))
        if not wanted or f" {' '.join(wanted)} " not in joined:
            found.append((0, None))
            continue
        contain = [wanted in set(_runs(text, len(wanted))) for text in words]
        secret = None if one.secret is None else _uniform(one.secret)
        known = None if secret is None else _format(secret, wanted, seed)
        if secret is None or known is None or known.is_given(wanted, prompts):
            found.append((sum(contain), None))
            continue
        alike = [set(filter(known.fits, _runs(text, len(wanted)))) for text in words]
        share = _share_before(before, secret, search.texts[contain.index(True)], seed)
        probability = _as_often(contain, list(map(bool, alike)), search.sampled, share)
        number, of = len(set().union(*alike)), secret.size * known.as_long
        bound = min(1.0, len(listed) * max(number / of, probability))
        sentence = (
            f"AFTER generates secret {one.number} verbatim in {sum(contain):,} texts. It generated "
            f"{number:,} of {of:,.0f} texts of this format; the probability without a leak is at "
            f"most {bound:.1g}."
        )
        found.append((sum(contain), Direct(sentence, bound)))
    return found


def _uniform(secret: Secret) -> Secret | None:
    """The secret with only the parts varying that may be uniform: no names, no words."""
    parts = [
        part if part.kind in UNIFORM_KINDS else part.alone(part.random)
        for part in secret.parts
        if part.kind in UNIFORM_KINDS or part.random
    ]
    return replace(secret, parts=tuple(parts)) if parts else None


def _runs(text: Words, length: int) -> Iterator[Words]:
    return (text[place : place + length] for place in range(len(text) - length + 1))


@dataclass(frozen=True)
class _Format:
    """What texts of a secret's format have in common.

    Attributes:
        words: the word at each position; None if it varies.
        digits: length of a word that is a number of fixed length; 0 of any other.
        as_long: share of the texts that have as many words.
    """

    words: tuple[str | None, ...]
    digits: tuple[int, ...]
    as_long: float

    def fits(self, run: Words) -> bool:
        """Whether a text of as many words may be of the format."""
        return all(
            own == word
            if own is not None
            else not length or (word.isdigit() and len(word) == length)
            for own, length, word in zip(self.words, self.digits, run, strict=True)
        )

    def is_given(self, wanted: Words, given: Words) -> bool:
        """Whether given words contain the first half of a word that varies, or more of it."""
        varying = (word for word, own in zip(wanted, self.words, strict=True) if own is None)
        return any(word.startswith(one) and 2 * len(one) >= len(word)
                   for word in varying for one in given)  # fmt: skip


def _format(secret: Secret, wanted: Words, seed: int) -> _Format | None:
    """The format of a secret by texts of it; None if it is not known."""
    generator = np.random.default_rng(seed)
    others = [tuple(normalized(secret.draw(generator))) for _ in range(ALTERNATIVES)]
    alike = [one for one in others if len(one) == len(wanted)]
    if not alike:
        return None
    columns = [{*column} for column in zip(wanted, *alike, strict=True)]
    numbers = [all(map(str.isdigit, c)) and len({*map(len, c)}) == 1 for c in columns]
    return _Format(
        words=tuple(None if len(c) > 1 else own for c, own in zip(columns, wanted, strict=True)),
        digits=tuple(
            len(own) if number else 0 for number, own in zip(numbers, wanted, strict=True)
        ),
        as_long=len(alike) / len(others),
    )


def _share_before(before: NextToken, secret: Secret, text: str, seed: int) -> float:
    """The earlier model's probability of a secret among texts of its format, at most 1.

    The larger one of the secret as it was listed and as it was generated, with the text before it.
    """
    shape = r"\W+".join(map(re.escape, re.findall(r"\w+", secret.text)))
    match = re.search(shape, text, re.IGNORECASE)
    prefix = text[max(0, match.start() - PREFIX) : match.start()] if match else ""
    forms = {secret.text: secret}
    if match and len(match[0]) == len(secret.text):  # in another case
        forms[match[0]] = replace(secret, text=match[0])
    return max(_share(before, form, one, seed) for one in forms.values() for form in {"", prefix})


def _share(before: NextToken, prefix: str, secret: Secret, seed: int) -> float:
    """The same after one prefix."""
    generator, encode = np.random.default_rng(seed), before.vocabulary.encode
    forms = [secret.text, *(secret.draw(generator) for _ in range(ALTERNATIVES))]
    texts = [encode(prefix + one) for one in forms]
    longest = getattr(before, "longest", None)
    if longest is not None and max(map(len, texts)) >= longest:
        texts = [encode(one) for one in forms]
        if max(map(len, texts)) >= longest:
            return 1.0
    logs = np.array([float(one.sum()) for one in log_probs_of(before, texts)])
    own, *others = np.exp(logs - logs.max())
    share = own / (own + (secret.size - 1) * float(np.mean(others)))
    return float(share) if isfinite(share) else 1.0


def _as_often(
    contain: Sequence[bool], alike: Sequence[bool], sampled: Sequence[bool], share: float
) -> float:
    """Probability that texts of the format contain the secret as often, each with this share."""
    trials = sum(one and random for one, random in zip(alike, sampled, strict=True))
    if hits := sum(one and random for one, random in zip(contain, sampled, strict=True)):
        return float(binom.sf(hits - 1, trials, share))
    return min(1.0, sum(alike) * share)
