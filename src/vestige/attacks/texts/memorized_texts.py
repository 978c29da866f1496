"""What is extracted of each of some texts: passages, and continuations that are generated."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.texts import memorization
from vestige.errors import DataError
from vestige.models.token_statistics import TokenStatistics

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


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
        units: (n,) the independent unit of each; None: each text is one.
        hits: (p,) of every passage, one text after the other, whether it is sampled.
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
    units: Whole | None = None
    hits: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def owners(self) -> Whole:
        """(n,) the unit of each text."""
        return np.arange(len(self)) if self.units is None else self.units

    @property
    def tested(self) -> Whole:
        """Units that have a passage."""
        return np.unique(self.owners[self.passages > 0])


def memorized(
    statistics: TokenStatistics, extraction: Extraction, units: Whole | None = None
) -> MemorizedTexts:
    """What is extracted of each text, but for continuations that are generated.

    A token of which no likeliest ones are known (NaN) is taken for none of them, and a passage with
    one is left out.

    Args:
        statistics: of the texts.
        extraction: what counts as extracted.
        units: (n,) the independent unit of each text; None: each is one.

    Raises:
        DataError: no text is as long as prefix and suffix together, or of no passage anything is
            known.
    """
    how = extraction
    drawn = memorization.sampled_log_probs(statistics, top_k=how.top_k, temperature=how.temperature)
    unknown = np.isnan(statistics.likeliest_log_probs[:, 0])
    found = [
        _of_text(statistics.ranks[start:end], drawn[start:end], unknown[start:end], how)
        for start, end in zip(statistics.offsets[:-1], statistics.offsets[1:], strict=True)
    ]
    hits = np.concatenate([one.pop("hits") for one in found])
    columns = {name: np.array([one[name] for one in found]) for name in found[0]}
    if not columns["passages"].any():
        longest = int(np.diff(statistics.offsets).max())
        if longest >= how.prefix + how.suffix:
            raise DataError(
                "no passage has finite scores",
                remedy=(
                    "Save the model again. A server must return the most probable tokens of a "
                    "prompt."
                ),
            )
        raise DataError(
            f"no text has {how.prefix + how.suffix} tokens (prefix {how.prefix}, passage "
            f"{how.suffix}); the longest has {longest}",
            remedy="Lower `prefix` and `suffix`.",
        )
    nothing = np.full(len(found), np.nan)
    return MemorizedTexts(**columns, edit=nothing, bleu=nothing.copy(), units=units, hits=hits)


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
) -> dict[str, Any]:
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
        "hits": needed <= how.tries,
    }
