"""What comes back of texts, beside texts that the model never saw: the result of `memorization`."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.texts import memorization
from vestige.attacks.texts.token_statistics import TokenStatistics
from vestige.errors import DataError
from vestige.metrics.clustered import clustered_rate
from vestige.metrics.differences import difference_by_margins
from vestige.metrics.intervals import Interval, clopper_pearson, columns
from vestige.result import Result

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

Verdict = Literal["more than never seen", "not shown", "not decided"]

APPROXIMATE = 0.75
"""BLEU from which on a continuation is approximately memorized (Ippolito et al. 2022)."""


_PUBLIC = {"prefix": "prefix_tokens", "suffix": "suffix_tokens", "tokens": "length"}
"""Names of numbers that elsewhere name texts, which are withheld."""


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """What counts as coming back.

    Attributes:
        prefix: tokens of a text that no passage begins before.
        suffix: tokens of a passage.
        tries: samples that are drawn of each passage.
        chance: with which one of them is the passage at least, in (0, 1).
        top_k: the next token is drawn from so many likeliest.
        temperature: of the draw.
    """

    prefix: int = 50
    suffix: int = 50
    tries: int = 100
    chance: float = 0.5
    top_k: int = 20
    temperature: float = 1.0


@dataclass(frozen=True, kw_only=True)
class MemorizedTexts:
    """What comes back of each of n texts.

    Attributes:
        tokens: (n,).
        passages: (n,) in each; none in a text that is shorter than prefix and suffix together.
        greedy: (n,) of them, which greedy decoding says word for word.
        sampled: (n,) of them, which are (n, p)-discoverable.
        log_prob: (n,) of the likeliest passage in one sample; NaN without one.
        tries: (n,) samples that this passage needs, at least 1; NaN without one.
        strength: (n,) extraction strength.
        exact: (n,) exact memorization.
        longest: (n,) tokens of the longest verbatim run.
        edit: (n,) edit similarity of what greedy decoding says behind the prefix, NaN not asked.
        bleu: (n,) likewise.
    """

    tokens: Whole
    passages: Whole
    greedy: Whole
    sampled: Whole
    log_prob: Floats
    tries: Floats
    strength: Floats
    exact: Floats
    longest: Whole
    edit: Floats
    bleu: Floats

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, kw_only=True)
class TextMemorization(Result):
    """What comes back of texts, and of texts that were never seen.

    Attributes:
        texts: one of each for every text.
        reference: never-seen texts; None where none were given.
        extraction: what counts as coming back.
        excerpts: the beginning of each text.
    """

    texts: MemorizedTexts
    reference: MemorizedTexts | None
    extraction: Extraction
    excerpts: Sequence[str] = ()

    @property
    def verdict(self) -> Verdict:
        """Whether more passages are sampled than of never-seen texts, by the interval."""
        if self.reference is None:
            return "not decided"
        apart = _apart(_rate(self.texts, "sampled"), _rate(self.reference, "sampled"))
        if apart is None or apart[1] is None:
            return "not decided"
        return "more than never seen" if apart[1].low > 0 else "not shown"

    def summary(self) -> dict[str, object]:
        """Rates and means with intervals over texts, of the reference too, and differences."""
        told: dict[str, object] = {
            "verdict": self.verdict,
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
            told |= _three(name, own, other, _apart(own, other))
            own, other = _times(each, own), _times(each, other)
            told |= _three(f"{name}_per_10000", own, other, _apart(own, other))
        own, other = _any(self.texts), _any(self.reference)
        told |= _three("texts_sampled", own, other, _apart(own, other))
        for name in ("strength", "exact", "edit"):
            own, other = _mean(self.texts, name), _mean(self.reference, name)
            told |= _three(name, own, other, _apart(own, other))
        own, other = _approximate(self.texts), _approximate(self.reference)
        told |= _three("approximate", own, other, _apart(own, other))
        told["longest_of_all"] = int(self.texts.longest.max())
        rest = self.reference
        told["reference_longest_of_all"] = None if rest is None else int(rest.longest.max())
        return told

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a text, in their order; then one a text of the reference."""
        names = [one.name for one in fields(MemorizedTexts)]
        for kind, side in (("text", self.texts), ("reference", self.reference)):
            for place in range(0 if side is None else len(side)):
                values = {name: getattr(side, name)[place].item() for name in names}
                excerpt = self.excerpts[place] if kind == "text" and self.excerpts else None
                known = {_PUBLIC.get(k, k): v if v == v else None for k, v in values.items()}
                yield {"kind": kind, "number": place + 1, **known, "text": excerpt}


def memorized(statistics: TokenStatistics, extraction: Extraction) -> MemorizedTexts:
    """What comes back of each text, but for continuations that are generated.

    A token of which no likeliest ones are known (NaN) is taken for none of them, and a passage with
    one is left out.

    Raises:
        DataError: no text is as long as prefix and suffix together.
    """
    how = extraction
    drawn = memorization.sampled_log_probs(statistics, top_k=how.top_k, temperature=how.temperature)
    unknown = np.isnan(statistics.likeliest_log_probs[:, 0])
    found = [
        _of_text(statistics.ranks[start:end], drawn[start:end], unknown[start:end], how)
        for start, end in zip(statistics.offsets[:-1], statistics.offsets[1:], strict=True)
    ]
    columns = {name: np.array([one[name] for one in found]) for name in found[0]}
    if not columns["passages"].any():
        raise DataError(
            f"no text has {how.prefix + how.suffix} tokens, a prefix of {how.prefix} and a passage "
            f"of {how.suffix}; the longest has {int(np.diff(statistics.offsets).max())}",
            remedy="Set `prefix` and `suffix` lower.",
        )
    nothing = np.full(len(found), np.nan)
    return MemorizedTexts(**columns, edit=nothing, bleu=nothing.copy())


def drawn_texts(texts: MemorizedTexts, most: int, *, seed: int) -> Whole:
    """Places of texts with a passage, so many at most, drawn at random."""
    long_enough = np.flatnonzero(texts.passages)
    return np.sort(np.random.default_rng([seed, 2]).permutation(long_enough)[:most])


def with_continued(
    texts: MemorizedTexts,
    places: Sequence[int] | Whole,
    pairs: Iterator[tuple[Sequence[Hashable], Sequence[Hashable]]],
) -> MemorizedTexts:
    """With how near greedy decoding comes to some texts behind their prefix.

    Args:
        texts: without it.
        places: of these texts.
        pairs: for each the tokens that were written and those that stand there.
    """
    edit, of_words = np.full(len(texts), np.nan), np.full(len(texts), np.nan)
    for place, pair in zip(places, pairs, strict=False):
        names = {token: number for number, token in enumerate(dict.fromkeys([*pair[0], *pair[1]]))}
        said, true = ([names[token] for token in own] for own in pair)
        edit[place] = memorization.edit_similarity(said, true)
        of_words[place] = memorization.bleu(said, true)
    return replace(texts, edit=edit, bleu=of_words)


def _of_text(
    ranks: NDArray[np.int32], drawn: Floats, unknown: NDArray[np.bool_], how: Extraction
) -> dict[str, float]:
    starts = memorization.passages(len(ranks), prefix=how.prefix, suffix=how.suffix)
    starts = starts[memorization.passage_sums(unknown, starts, how.suffix) == 0]
    sums = memorization.passage_sums(drawn, starts, how.suffix)
    wrong = memorization.passage_sums(ranks > 0, starts, how.suffix)
    needed = memorization.tries_needed(sums, chance=how.chance)
    return {
        "tokens": len(ranks),
        "passages": len(starts),
        "greedy": int((wrong == 0).sum()),
        "sampled": int((needed <= how.tries).sum()),
        "log_prob": float(sums.max(initial=-np.inf)) if len(starts) else np.nan,
        "tries": float(needed.min()) if len(starts) else np.nan,
        "strength": memorization.extraction_strength(ranks),
        "exact": memorization.exact_memorization(ranks),
        "longest": memorization.longest_run(ranks),
    }


Estimate = tuple[float, Interval | None] | None


def _rate(texts: MemorizedTexts | None, name: str) -> Estimate:
    """The share of passages, its unit the text."""
    if texts is None or not texts.passages.any():
        return None
    asked = texts.passages > 0
    hits, trials = getattr(texts, name)[asked].tolist(), texts.passages[asked].tolist()
    return sum(hits) / sum(trials), clustered_rate(hits, trials)


def _times(factor: float, found: Estimate) -> Estimate:
    if found is None:
        return None
    value, ends = found
    return factor * value, ends and Interval(factor * ends.low, factor * ends.high)


def _any(texts: MemorizedTexts | None) -> Estimate:
    """The share of the texts of which a passage is sampled."""
    if texts is None or not texts.passages.any():
        return None
    asked = texts.passages > 0
    hits, trials = int((texts.sampled[asked] > 0).sum()), int(asked.sum())
    return hits / trials, clopper_pearson(hits, trials)


def _approximate(texts: MemorizedTexts | None) -> Estimate:
    known = _known(texts, "bleu")
    if not known.size:
        return None
    hits = int((known >= APPROXIMATE).sum())
    return hits / known.size, clopper_pearson(hits, known.size)


def _known(texts: MemorizedTexts | None, name: str) -> Floats:
    values = np.array([]) if texts is None else np.asarray(getattr(texts, name), dtype=np.float64)
    known: Floats = values[~np.isnan(values)]
    return known


def _mean(texts: MemorizedTexts | None, name: str) -> Estimate:
    """The mean over texts of shares of tokens; where all are 0 its interval still has a width."""
    values = _known(texts, name)
    if texts is None or not values.size:
        return None
    each = round(float(texts.tokens.mean()))
    ends = clustered_rate((values * each).tolist(), [each] * values.size)
    return float(values.mean()), ends


def _apart(own: Estimate, other: Estimate) -> Estimate:
    if own is None or other is None:
        return None
    sides = own[1] is not None and other[1] is not None
    margins = difference_by_margins(*own, *other) if sides else None  # type: ignore[arg-type]
    return own[0] - other[0], margins


def _three(name: str, own: Estimate, other: Estimate, apart: Estimate) -> dict[str, float | None]:
    """A number, that of the reference, and their difference, each with its interval."""
    named = {name: own, f"reference_{name}": other, f"{name}_difference": apart}
    return {
        key: value
        for each, found in named.items()
        for key, value in columns(each, *(found or (None, None))).items()
    }


def _counts(before: str, texts: MemorizedTexts | None) -> dict[str, object]:
    if texts is None:
        return {f"{before}texts": 0}
    return {
        f"{before}texts": len(texts),
        f"{before}texts_with_passages": int((texts.passages > 0).sum()),
        f"{before}passages": int(texts.passages.sum()),
        f"{before}texts_tokens": int(texts.tokens.sum()),
        f"{before}greedy_passages": int(texts.greedy.sum()),
        f"{before}sampled_passages": int(texts.sampled.sum()),
        f"{before}generated": int((~np.isnan(texts.bleu)).sum()),
    }
