r"""Listed secrets that a search generates verbatim: direct evidence, without null models.

A search keeps the best of thousands of texts, so the probability of one of its texts bounds
nothing. What is random here is the secret. If it was chosen uniformly from the N texts of its
format, and neither model read it, it is independent of all that the search generates, however that
was sampled, extended, edited and selected. So

.. math:: P(\text{generated}) = E(k) / N

with k the distinct texts of the format among everything generated, reported or not.

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
from dataclasses import replace
from math import isfinite

import numpy as np
from scipy.stats import binom

from vestige.audits.update.known_secrets import Listed
from vestige.audits.update.phrases import Text
from vestige.claims import Direct
from vestige.claims.text_lists import normalized
from vestige.data.secrets.kinds import UNIFORM
from vestige.data.secrets.lines import Secret
from vestige.data.vocabulary import Vocabulary
from vestige.models.predictions import log_probs_of
from vestige.models.protocols import NextToken, length_limit

ALTERNATIVES = 128  # texts of a secret's format that give the earlier model's preference for it
UNIFORM_KINDS = UNIFORM | {"given", "date"}  # parts that count as chosen uniformly
PREFIX = 400  # characters before a secret that the earlier model reads

Words = tuple[str, ...]

Format = tuple[str | int | None, ...]
"""What texts of a secret's format have in common at each position: the word; the length of a number
that varies; None for any other word that varies."""


def generated(read: Sequence[Text], vocabulary: Vocabulary) -> list[tuple[str, bool]]:
    """Texts of a search, each turn of a sample once, and whether each was sampled independently.

    Each is decoded with what was read before it, without marks of a document's ends.
    """
    marks = {vocabulary.bos_id, vocabulary.eos_id}
    texts = []
    for one in read:
        answer = bool(one.log_ratios) and one.first > max(1, len(one.prompt))
        tokens = one.tokens[one.first :] if answer else one.tokens
        text = vocabulary.decode([token for token in tokens if token not in marks])
        texts.append((text, bool(one.log_ratios)))
    return texts


def verbatim(
    before: NextToken,
    listed: Sequence[Listed],
    texts: Sequence[tuple[str, bool]],
    *,
    given: Sequence[str] = (),
    seed: int,
) -> list[tuple[int, Direct | None]]:
    """For each listed secret the number of generated texts that contain it, and what that proves.

    A secret of which the `given` prompts contain a part proves nothing.
    """
    words = [tuple(normalized(text)) for text, _ in texts]
    sampled = [random for _, random in texts]
    joined = "\n".join(f" {' '.join(text)} " for text in words)
    prompts = tuple(word for text in given for word in normalized(text))
    found = list[tuple[int, Direct | None]]()
    for one in listed:
        wanted = tuple(normalized(one.secret.text))
        if not wanted or f" {' '.join(wanted)} " not in joined:
            found.append((0, None))
            continue
        contain = [wanted in set(_runs(text, len(wanted))) for text in words]
        secret = _uniform(one.secret)
        known = None if secret is None else _format(secret, wanted, seed)
        if secret is None or known is None or _is_given(wanted, known[0], prompts):
            found.append((sum(contain), None))
            continue
        form, as_long = known
        alike = [{run for run in _runs(text, len(wanted)) if _fits(run, form)} for text in words]
        share = _share_before(before, secret, texts[contain.index(True)][0], seed)
        probability = _as_often(contain, list(map(bool, alike)), sampled, share)
        number, of = len(set().union(*alike)), secret.size * as_long
        bound = min(1.0, len(listed) * max(number / of, probability))
        sentence = (
            f"AFTER generates secret {secret.number} verbatim in {sum(contain):,} texts. It "
            f"generated {number:,} of {of:,.0f} texts of this format; the probability without a "
            f"leak is at most {bound:.1g}."
        )
        found.append((sum(contain), Direct(sentence, bound)))
    return found


def _uniform(secret: Secret) -> Secret | None:
    """The secret with only the parts varying that may be uniform: no names, no words."""
    parts = [
        part if part.kind in UNIFORM_KINDS else part.varying(part.random)
        for part in secret.parts
        if part.kind in UNIFORM_KINDS or part.random
    ]
    return replace(secret, parts=tuple(parts)) if parts else None


def _runs(text: Words, length: int) -> Iterator[Words]:
    return (text[place : place + length] for place in range(len(text) - length + 1))


def _format(secret: Secret, wanted: Words, seed: int) -> tuple[Format, float] | None:
    """The format by texts of it, and the share of these with as many words; None if unknown."""
    generator = np.random.default_rng(seed)
    others = [tuple(normalized(secret.draw(generator))) for _ in range(ALTERNATIVES)]
    alike = [one for one in others if len(one) == len(wanted)]
    if not alike:
        return None
    form: list[str | int | None] = []
    for own, column in zip(wanted, map(set, zip(wanted, *alike, strict=True)), strict=True):
        number = all(map(str.isdigit, column)) and len(set(map(len, column))) == 1
        form.append(own if len(column) == 1 else len(own) if number else None)
    return tuple(form), len(alike) / len(others)


def _fits(run: Words, form: Format) -> bool:
    """Whether a text of as many words may be of the format."""
    return all(
        own == word if isinstance(own, str) else not own or (word.isdigit() and len(word) == own)
        for own, word in zip(form, run, strict=True)
    )


def _is_given(wanted: Words, form: Format, given: Words) -> bool:
    """Whether given words contain the first half of a word that varies, or more of it."""
    varying = [word for word, own in zip(wanted, form, strict=True) if not isinstance(own, str)]
    return any(word.startswith(one) and 2 * len(one) >= len(word)
               for word in varying for one in given)  # fmt: skip


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
    longest = length_limit(before)
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
