r"""Listed secrets that a search generates verbatim: direct evidence, without null models.

A search selects the best of thousands of texts, so the probability of one of its texts bounds
nothing. Here the secret is random. If it was chosen uniformly from the N texts of its format, and
neither model read it, it is independent of all generated texts, however they were sampled,
extended, edited and selected. So

.. math:: P(\text{generated}) = E(k) / N

with k the number of distinct generated texts of the format, reported or not.

A secret that the earlier model read is not independent of the search: the update may have promoted
only its prefix. So the earlier model gets the same opportunity. It reads the text before and around
the secret as the later one generated it, and its probability s of the secret among the texts of its
format is estimated from `ALTERNATIVES` of them. If the update did not change these preferences, c
of d samples with a text of this format contain the secret with at most the probability of c
successes in d trials at s; texts that were searched, not sampled, count once, at d s. The bound is
the larger of both, times the number of listed secrets.

Assumptions: the secret was chosen uniformly from its format (a birthday among codes was not), and
the format was not chosen after the search. Names and words are not uniform: only codes, numbers,
keys, dates, listed choices and planted words count as varying. If nothing varies there is no bound:
an update on other texts with the same words may make a text more probable than the earlier model
did by any factor.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isfinite
from typing import NamedTuple

import numpy as np
from scipy.stats import binom

from vestige.audits.update.listed_secrets import ListedSecret
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


class Format(NamedTuple):
    """The format of a secret.

    Attributes:
        parts: at each position the word, the length of a number that varies, or None for any other
            word that varies.
        share_as_long: share of the alternatives that have as many words as the secret.
    """

    parts: tuple[str | int | None, ...]
    share_as_long: float

    def matches(self, text: Words) -> Iterator[Words]:
        """Parts of a text that may be of the format."""
        return (words for words in _ngrams(text, len(self.parts)) if self._fits(words))

    def _fits(self, words: Words) -> bool:
        for part, word in zip(self.parts, words, strict=True):
            if isinstance(part, str) and part != word:
                return False
            if isinstance(part, int) and not (word.isdigit() and len(word) == part):
                return False
        return True


class Generated(NamedTuple):
    """A text that the search generated, with its context."""

    text: str
    words: Words
    sampled: bool


def generated_texts(texts: Sequence[Text], vocabulary: Vocabulary) -> list[Generated]:
    """The decoded texts of a search, each turn of a sample once, without marks of the ends."""
    marks = {vocabulary.bos_id, vocabulary.eos_id}
    generated = []
    for text in texts:
        sampled = bool(text.log_ratios)
        is_reply = sampled and text.first > max(1, len(text.prompt))
        tokens = text.tokens[text.first :] if is_reply else text.tokens
        decoded = vocabulary.decode([token for token in tokens if token not in marks])
        generated.append(Generated(decoded, tuple(normalized(decoded)), sampled))
    return generated


def verbatim_proofs(
    before: NextToken,
    secrets: Sequence[ListedSecret],
    texts: Sequence[Generated],
    *,
    prompts: Sequence[str] = (),
    seed: int,
) -> list[tuple[int, Direct | None]]:
    """For each listed secret the number of generated texts that contain it, and the proof.

    There is no proof if the prompts contain a part of the secret, or coincidence has no bound.
    """
    joined = "\n".join(f" {' '.join(text.words)} " for text in texts)
    prompt_words = tuple(word for prompt in prompts for word in normalized(prompt))
    proofs = list[tuple[int, Direct | None]]()
    for listed in secrets:
        wanted, containing = tuple(normalized(listed.secret.text)), list[Generated]()
        if wanted and f" {' '.join(wanted)} " in joined:
            containing = [text for text in texts if wanted in _ngrams(text.words, len(wanted))]
        secret = _uniform(listed.secret) if containing else None
        form = None if secret is None else _format(secret, wanted, seed)
        if secret is None or form is None or _is_prompted(wanted, form, prompt_words):
            proofs.append((len(containing), None))
            continue
        proof = _proof(before, secret, form, texts, containing, tests=len(secrets), seed=seed)
        proofs.append((len(containing), proof))
    return proofs


def _proof(
    before: NextToken,
    secret: Secret,
    form: Format,
    texts: Sequence[Generated],
    containing: Sequence[Generated],
    *,
    tests: int,
    seed: int,
) -> Direct:
    """The bound of coincidence for a secret that some texts contain, among several tests."""
    of_format = [set(form.matches(text.words)) for text in texts]
    share = _share_before(before, secret, containing[0].text, seed)
    if hits := sum(text.sampled for text in containing):
        trials = sum(bool(grams) and t.sampled for grams, t in zip(of_format, texts, strict=True))
        by_preference = float(binom.sf(hits - 1, trials, share))
    else:
        by_preference = min(1.0, sum(map(bool, of_format)) * share)
    number, size = len(set().union(*of_format)), secret.size * form.share_as_long
    bound = min(1.0, tests * max(number / size, by_preference))
    sentence = (
        f"AFTER generates secret {secret.number} verbatim in {len(containing):,} texts. It "
        f"generated {number:,} of {size:,.0f} texts of this format; the probability without a "
        f"leak is at most {bound:.1g}."
    )
    return Direct(sentence, bound)


def _uniform(secret: Secret) -> Secret | None:
    """The secret with only uniform parts varying: no names, no words; None without any."""
    parts = [
        part if part.kind in UNIFORM_KINDS else part.varying(part.random)
        for part in secret.parts
        if part.kind in UNIFORM_KINDS or part.random
    ]
    return replace(secret, parts=tuple(parts)) if parts else None


def _ngrams(text: Words, n: int) -> Iterator[Words]:
    return (text[i : i + n] for i in range(len(text) - n + 1))


def _format(secret: Secret, wanted: Words, seed: int) -> Format | None:
    """The format, from sampled alternatives; None if none of them has as many words."""
    generator = np.random.default_rng(seed)
    alternatives = [tuple(normalized(secret.draw(generator))) for _ in range(ALTERNATIVES)]
    as_long = [words for words in alternatives if len(words) == len(wanted)]
    if not as_long:
        return None
    parts: list[str | int | None] = []
    for word, column in zip(wanted, map(set, zip(wanted, *as_long, strict=True)), strict=True):
        is_number = all(map(str.isdigit, column)) and len(set(map(len, column))) == 1
        parts.append(word if len(column) == 1 else len(word) if is_number else None)
    return Format(tuple(parts), len(as_long) / len(alternatives))


def _is_prompted(wanted: Words, form: Format, prompt_words: Words) -> bool:
    """Whether a prompt contains at least the first half of a word that varies."""
    pairs = zip(wanted, form.parts, strict=True)
    varying = [word for word, part in pairs if not isinstance(part, str)]
    return any(
        word.startswith(prompted) and 2 * len(prompted) >= len(word)
        for word in varying
        for prompted in prompt_words
    )


def _share_before(before: NextToken, secret: Secret, text: str, seed: int) -> float:
    """The earlier model's probability of a secret among texts of its format, at most 1.

    The larger one of the secret as listed and as generated, with the generated text before it.
    """
    pattern = r"\W+".join(map(re.escape, re.findall(r"\w+", secret.text)))
    match = re.search(pattern, text, re.IGNORECASE)
    prefix = text[max(0, match.start() - PREFIX) : match.start()] if match else ""
    spellings = {secret.text: secret}
    if match and len(match[0]) == len(secret.text):  # in another case
        spellings[match[0]] = replace(secret, text=match[0])
    return max(
        _share_after(before, context, spelling, seed)
        for spelling in spellings.values()
        for context in {"", prefix}
    )


def _share_after(before: NextToken, prefix: str, secret: Secret, seed: int) -> float:
    """The same for one spelling after one prefix."""
    generator, encode = np.random.default_rng(seed), before.vocabulary.encode
    forms = [secret.text, *(secret.draw(generator) for _ in range(ALTERNATIVES))]
    texts = [encode(prefix + form) for form in forms]
    longest = length_limit(before)
    if longest is not None and max(map(len, texts)) >= longest:
        texts = [encode(form) for form in forms]
        if max(map(len, texts)) >= longest:
            return 1.0
    log_probs = np.array([float(logs.sum()) for logs in log_probs_of(before, texts)])
    secret_odds, *other_odds = np.exp(log_probs - log_probs.max())
    share = secret_odds / (secret_odds + (secret.size - 1) * float(np.mean(other_odds)))
    return float(share) if isfinite(share) else 1.0
