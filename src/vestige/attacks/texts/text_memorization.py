"""What is extracted from a model of some texts and of a reference: the result of `memorization`.

A text counts for the verdict with the share of its passages that are sampled, each compared at the
same position (`positions`); a permutation test compares independent units. Every interval counts
units as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import comb

import numpy as np
from numpy.typing import NDArray

from vestige import claims
from vestige.attacks.texts.memorized_texts import Extraction, MemorizedTexts
from vestige.claims import Check, Claim, Estimate, Test, Verdict
from vestige.claims.effects import EXTRACTED_SHARE
from vestige.metrics.equal_length import above_position_mean, common_length
from vestige.metrics.estimates import columns, difference_of
from vestige.metrics.permutation import means_by_group, unit_permutation_test
from vestige.metrics.rates import clustered_rate
from vestige.results import Measurement

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

ALPHA = 0.05
"""Level of the test."""

PERMUTATIONS = 9999

APPROXIMATE = 0.75
"""BLEU from which on a continuation is approximately memorized (Ippolito et al. 2022)."""


_PUBLIC = {"prefix": "prefix_tokens", "suffix": "suffix_tokens", "tokens": "length"}
"""Names of numbers that elsewhere name texts, which are withheld."""


@dataclass(frozen=True, kw_only=True)
class TextMemorization(Measurement):
    """What is extracted of texts, and of a reference.

    Attributes:
        texts: one of each for every text.
        reference: texts that the model did not read; None where none were given.
        extraction: what counts as extracted.
        p_value: that as many passages of the reference are sampled; None where nothing can be
            compared.
        checks: all that the claim requires but "powerful".
        excerpts: the beginning of each text.
    """

    texts: MemorizedTexts
    reference: MemorizedTexts | None
    extraction: Extraction
    p_value: float | None = None
    checks: tuple[Check, ...] = ()
    excerpts: Sequence[str] = ()

    @property
    def claim(self) -> Claim:
        """Whether more is extracted than of the reference."""
        test = self._test()
        apart = _apart(_rate(self.texts, "sampled"), _rate(self.reference, "sampled"))
        if apart is not None:
            apart = replace(apart, name="share of passages extracted, beyond the reference")
        powerful = claims.bounded(
            test,
            None if apart is None else apart.high,
            limit=EXTRACTED_SHARE,
            what="of the passages, beyond the reference",
        )
        return Claim("extract texts", test, (*self.checks, powerful), apart)

    @property
    def verdict(self) -> Verdict:
        """The verdict of the claim."""
        return self.claim.verdict

    def _test(self) -> Test | None:
        if self.p_value is None or self.reference is None:
            return None
        n, m = (side.tested.size for side in (self.texts, self.reference))
        least = max(1 / (PERMUTATIONS + 1), 1 / comb(n + m, n))
        return Test(self.p_value, min(1.0, least), ALPHA, "reference texts")

    def summary(self) -> dict[str, object]:
        """Rates and means with intervals over texts, of the reference too, and differences."""
        told: dict[str, object] = {
            **self.claim.summary(),
            "p_value": self.p_value,
            **{
                _PUBLIC.get(one.name, one.name): getattr(self.extraction, one.name)
                for one in fields(Extraction)
            },
            **_counts("", self.texts),
            **_counts("reference_", self.reference),
        }
        each = 1e4 / self.extraction.suffix
        for name in ("greedy", "sampled"):
            own, other = _rate(self.texts, name), _rate(self.reference, name)
            told |= _three(name, own, other)
            own, other = own and own.scaled(each), other and other.scaled(each)
            told |= _three(f"{name}_per_10000", own, other)
        own, other = _any(self.texts), _any(self.reference)
        told |= _three("texts_sampled", own, other)
        for name in ("strength", "exact", "edit"):
            own, other = _mean(self.texts, name), _mean(self.reference, name)
            told |= _three(name, own, other)
        own, other = _approximate(self.texts), _approximate(self.reference)
        told |= _three("approximate", own, other)
        told["longest_of_all"] = int(self.texts.longest.max())
        rest = self.reference
        told["reference_longest_of_all"] = None if rest is None else int(rest.longest.max())
        return told

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a text, in their order; then one a text of the reference."""
        names = [one.name for one in fields(MemorizedTexts) if one.name not in ("units", "hits")]
        for kind, side in (("text", self.texts), ("reference", self.reference)):
            for place in range(0 if side is None else len(side)):
                values = {name: getattr(side, name)[place].item() for name in names}
                excerpt = self.excerpts[place] if kind == "text" and self.excerpts else None
                known = {_PUBLIC.get(k, k): v if v == v else None for k, v in values.items()}
                yield {"kind": kind, "number": place + 1, **known, "text": excerpt}


def compared_tokens(texts: MemorizedTexts, reference: MemorizedTexts, how: Extraction) -> int:
    """Tokens of texts whose passages are compared, those before them and a rest included."""
    reached = how.prefix + (_compared(texts, reference) + 1) * how.suffix
    return int(np.minimum(texts.tokens, reached)[texts.passages > 0].sum())


def more_extracted(texts: MemorizedTexts, reference: MemorizedTexts, *, seed: int) -> float | None:
    """The p-value that as many passages of the reference are sampled; None without passages.

    Args:
        texts: of n units.
        reference: of m other units.
        seed: of the permutations.
    """
    if not (texts.passages.any() and reference.passages.any()):
        return None
    sides = (texts, reference)
    lengths = np.concatenate([side.passages for side in sides])
    owners = _owners(*sides)
    values = np.concatenate([side.hits for side in sides])
    means = above_position_mean(values, lengths, owners, cut=_compared(*sides))
    asked, n = lengths > 0, len(texts)
    own, rest = (
        means_by_group(means[part][asked[part]], owners[part][asked[part]])
        for part in (slice(n), slice(n, None))
    )
    return unit_permutation_test(own, rest, seed=seed, permutations=PERMUTATIONS)


def _owners(texts: MemorizedTexts, reference: MemorizedTexts) -> Whole:
    """(n + m,) units; without any, each text is one."""
    if texts.units is None or reference.units is None:
        return np.arange(len(texts) + len(reference))
    return np.concatenate([texts.units, reference.units])


def _compared(texts: MemorizedTexts, reference: MemorizedTexts) -> int:
    """Passages of a text that are compared."""
    lengths = np.concatenate([texts.passages, reference.passages])
    asked, audited = lengths > 0, int((texts.passages > 0).sum())
    return common_length(lengths[asked], _owners(texts, reference)[asked], audited)


def _rate(texts: MemorizedTexts | None, name: str) -> Estimate | None:
    """The share of passages; units are its clusters, each with the mean of its texts."""
    if texts is None or not texts.passages.any():
        return None
    asked = texts.passages > 0
    hits, trials = (
        means_by_group(column[asked], texts.owners[asked])
        for column in (getattr(texts, name), texts.passages)
    )
    return clustered_rate(hits.tolist(), trials.tolist())


def _any(texts: MemorizedTexts | None) -> Estimate | None:
    """The share of the texts of which a passage is sampled, each unit with the same weight."""
    if texts is None or not texts.passages.any():
        return None
    return _of_units(texts, np.where(texts.passages > 0, texts.sampled > 0, np.nan))


def _approximate(texts: MemorizedTexts | None) -> Estimate | None:
    if texts is None:
        return None
    return _of_units(texts, np.where(np.isnan(texts.bleu), np.nan, texts.bleu >= APPROXIMATE))


def _mean(texts: MemorizedTexts | None, name: str) -> Estimate | None:
    """The mean over texts of shares of tokens; where all are 0 its interval still has a width."""
    if texts is None:
        return None
    return _of_units(texts, getattr(texts, name), trials=round(float(texts.tokens.mean())))


def _of_units(texts: MemorizedTexts, values: Floats, *, trials: int = 1) -> Estimate | None:
    """The mean over units of shares (n,), NaN left out, each of so many trials."""
    known = ~np.isnan(values)
    if not known.any():
        return None
    means = means_by_group(values[known], texts.owners[known])
    return clustered_rate((means * trials).tolist(), [trials] * means.size)


def _apart(own: Estimate | None, other: Estimate | None) -> Estimate | None:
    return None if own is None or other is None else difference_of(own, other)


def _three(name: str, own: Estimate | None, other: Estimate | None) -> dict[str, float | None]:
    """A number, that of the reference, and their difference, each with its interval."""
    return {
        **columns(name, own),
        **columns(f"reference_{name}", other),
        **columns(f"{name}_difference", _apart(own, other)),
    }


def _counts(before: str, texts: MemorizedTexts | None) -> dict[str, object]:
    if texts is None:
        return {f"{before}texts": 0}
    return {
        f"{before}texts": len(texts),
        f"{before}texts_with_passages": int((texts.passages > 0).sum()),
        f"{before}units": int(texts.tested.size),
        f"{before}passages": int(texts.passages.sum()),
        f"{before}texts_tokens": int(texts.tokens.sum()),
        f"{before}greedy_passages": int(texts.greedy.sum()),
        f"{before}sampled_passages": int(texts.sampled.sum()),
        f"{before}generated": int((~np.isnan(texts.bleu)).sum()),
    }
