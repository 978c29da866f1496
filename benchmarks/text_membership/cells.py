"""What the models of a pair say of its texts, and the figures of each score on it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from pairs import Pair
from tunes import LONGEST

from vestige.audits.membership.text_scores import (
    SCORES,
    Shadow,
    WeightedGains,
    unread_means,
    zlib_score,
)
from vestige.models.checkpoints import load_model
from vestige.models.shown_statistics import shown_only
from vestige.models.token_statistics import TokenStatistics, cached_outputs, first_tokens
from vestige.monitor import SILENT

SHOWN = 20
FALSE_POSITIVES = (0.01, 0.001)


def asked(folder: Path, texts: Sequence[str], kept: Path, likeliest: int = 20) -> TokenStatistics:
    """Statistics of texts, in their order; each is asked once."""
    model = load_model(folder, device="cpu", dtype=torch.bfloat16).eval()
    ids = [row[:LONGEST] for row in model.vocabulary.encode_batch(list(texts))]
    name = {"sha256": f"{folder} {LONGEST}"}
    with cached_outputs(kept, SILENT) as outputs:
        return outputs.statistics(model, name, ids, task=folder.name, likeliest=likeliest)


@dataclass(frozen=True)
class Texts:
    """The texts of a pair that its fine-tunes are asked about.

    Attributes:
        texts: never-read ones, those kept apart, and what any fine-tune reads.
        read: (fine-tunes, texts) who reads what.
        compared: (texts,) the never-read ones that all are scored beside.
    """

    texts: np.ndarray
    read: np.ndarray
    compared: np.ndarray

    @classmethod
    def of(cls, pair: Pair, seeds: int) -> "Texts":
        """Those of so many fine-tunes."""
        drawn = [pair.drawn(seed) for seed in range(seeds)]
        unread = np.arange(pair.never + pair.apart)
        places = np.concatenate([unread, np.unique(np.concatenate(drawn))])
        read = np.stack([np.isin(places, one) for one in drawn])
        return cls(pair.texts[places], read, places < pair.never)

    def shadows(
        self, tunes: Sequence[TokenStatistics], base: TokenStatistics, target: int
    ) -> list[Shadow]:
        """The other fine-tunes, on texts that the target is not scored on."""
        left = self.left(target)
        below = first_tokens(base, left)
        return [
            Shadow(first_tokens(tuned, left), below, self.read[other][left])
            for other, tuned in enumerate(tunes)
            if other != target
        ]

    def unread(
        self, tunes: Sequence[TokenStatistics], base: TokenStatistics, target: int
    ) -> np.ndarray:
        """Mean log-probabilities of the audited texts' tokens, by the others that read them not."""
        own = self.audited(target)
        others = [other for other in range(len(tunes)) if other != target]
        told = [first_tokens(tunes[other], own).log_probs for other in others]
        return unread_means(told, self.read[others][:, own], first_tokens(base, own))

    def pretended(self, target: int) -> tuple["Texts", list[int], np.ndarray]:
        """A null: what the next fine-tune read is said to be what the target read, and is left out.

        Returns:
            The texts that the target did not read, the fine-tunes that are asked, the target first,
            and the places of these texts.
        """
        other = (target + 1) % len(self.read)
        kept = [target, *(each for each in range(len(self.read)) if each not in (target, other))]
        places = np.flatnonzero(~self.read[target])
        read = self.read[[other, *kept[1:]]][:, places]
        return Texts(self.texts[places], read, self.compared[places]), kept, places

    def audited(self, target: int) -> np.ndarray:
        """Places of the texts that a fine-tune is scored on."""
        return np.flatnonzero(self.compared | self.read[target])

    def left(self, target: int) -> np.ndarray:
        """Places of all others, from which its shadows learn."""
        return np.flatnonzero(~(self.compared | self.read[target]))


def naive_floor(target: TokenStatistics) -> TokenStatistics:
    """The tokens shown, the others as likely as the least of them."""
    floor = target.likeliest_log_probs[:, SHOWN - 1]
    return replace(target, log_probs=np.where(target.ranks <= SHOWN, target.log_probs, floor))


def figures(scores: np.ndarray, seen: np.ndarray) -> tuple[float, ...]:
    """AUC, then TPR at each rate of false positives."""
    own, other = scores[seen], np.sort(scores[~seen])
    below = np.searchsorted(other, own, "left") + np.searchsorted(other, own, "right")
    rates = [(own > other[-1 - int(rate * other.size)]).mean() for rate in FALSE_POSITIVES]
    return below.mean() / (2 * other.size), *rates


Figures = dict[str, tuple[float, ...]]


def measured(
    texts: Texts, tunes: Sequence[TokenStatistics], base: TokenStatistics
) -> Iterator[Figures]:
    """Figures of each score, with each fine-tune as the target."""
    for turn in range(len(tunes)):
        own = texts.audited(turn)
        seen = texts.read[turn][own]
        found = {
            **plain(texts.texts[own], first_tokens(tunes[turn], own), first_tokens(base, own)),
            **ours(texts, tunes, base, turn),
        }
        told = {name: figures(scores, seen) for name, scores in found.items()}
        gain = found["loss"] - SCORES["loss"](first_tokens(base, own))
        yield told | {"gain": (gain[seen].mean(), gain[~seen].mean(), 0.0)}


def nulls(
    texts: Texts, tunes: Sequence[TokenStatistics], base: TokenStatistics
) -> Iterator[Figures]:
    """Figures of ours where the target read none of the texts that it is said to have read."""
    for turn in range(len(tunes)):
        own, kept, places = texts.pretended(turn)
        told = [first_tokens(tunes[each], places) for each in kept]
        seen = own.read[0][own.audited(0)]
        found = ours(own, told, first_tokens(base, places), 0)
        yield {name: figures(scores, seen) for name, scores in found.items()}


def plain(
    texts: Sequence[str], target: TokenStatistics, base: TokenStatistics
) -> dict[str, np.ndarray]:
    """Scores of texts without shadows."""
    expected = shown_only(target, base, likeliest=SHOWN)
    found = {name: SCORES[name](target=target, base=base) for name in SCORES}
    found["zlib"] = zlib_score(target, list(texts))
    for name in ("log-ratio", "error-zone"):
        found[f"{name}, {SHOWN} shown, floor"] = SCORES[name](naive_floor(target), base)
        found[f"{name}, {SHOWN} shown, expected"] = SCORES[name](expected, base)
    return found


def ours(
    texts: Texts, tunes: Sequence[TokenStatistics], base: TokenStatistics, turn: int
) -> dict[str, np.ndarray]:
    """The learnt score of a fine-tune's texts, from all tokens and from those shown."""
    own = texts.audited(turn)
    target, below = first_tokens(tunes[turn], own), first_tokens(base, own)
    unread = texts.unread(tunes, base, turn)
    shadows = texts.shadows(tunes, base, turn)
    return {
        f"ours{part}": WeightedGains.fit(shadows, shown=shown).scores(target, below, unread)
        for shown, part in ((None, ""), (SHOWN, f", {SHOWN} shown"))
    }
