"""What the models of a pair say of its texts, and the figures of each score on it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from pairs import Pair
from tunes import LONGEST

from vestige.attacks.texts.learnt_log_odds import LearntLogOdds, Shadow
from vestige.attacks.texts.other_texts import zlib_score
from vestige.attacks.texts.scores import SCORES
from vestige.attacks.texts.shown_tokens import shown_only
from vestige.attacks.texts.statistics_of_parts import first_tokens
from vestige.attacks.texts.token_statistics import TokenStatistics
from vestige.models.checkpoints import load_model
from vestige.monitor import SILENT
from vestige.workflows.kept_statistics import KeptStatistics

SHOWN = 20
FALSE_POSITIVES = (0.01, 0.001)


def asked(folder: Path, texts: Sequence[str], kept: Path) -> TokenStatistics:
    """Statistics of texts, in their order; each is asked once."""
    model = load_model(folder, device="cpu", dtype=torch.bfloat16).eval()
    ids = [row[:LONGEST] for row in model.vocabulary.encode_batch(list(texts))]
    name = {"model": str(folder), "longest": LONGEST}
    return KeptStatistics.beside(kept, name, monitor=SILENT).of(model, ids, task=folder.name)


@dataclass(frozen=True)
class Tuned:
    """A fine-tune and its base, over the same texts.

    Attributes:
        target, base: what each says: of never-read texts, of those kept apart, of those read.
        places: of the texts in the pair, in this order.
        texts: the texts.
    """

    target: TokenStatistics
    base: TokenStatistics
    places: np.ndarray
    texts: np.ndarray

    @classmethod
    def of(cls, pair: Pair, folder: Path, seed: int, kept: Path) -> "Tuned":
        """Ask both models, or read what they said."""
        places = np.concatenate([np.arange(pair.never + pair.apart), pair.drawn(seed)])
        texts = pair.texts[places]
        return cls(asked(folder, texts, kept), asked(pair.base, texts, kept), places, texts)


def naive_floor(target: TokenStatistics) -> TokenStatistics:
    """The tokens shown, the others as likely as the least of them."""
    floor = target.likeliest_log_probs[:, SHOWN - 1]
    return replace(target, log_probs=np.where(target.ranks < SHOWN, target.log_probs, floor))


def figures(scores: np.ndarray, seen: np.ndarray) -> tuple[float, ...]:
    """AUC, then TPR at each rate of false positives."""
    own, other = scores[seen], np.sort(scores[~seen])
    below = np.searchsorted(other, own, "left") + np.searchsorted(other, own, "right")
    rates = [(own > other[-1 - int(rate * other.size)]).mean() for rate in FALSE_POSITIVES]
    return below.mean() / (2 * other.size), *rates


def shadow(tuned: Tuned, pair: Pair, audited: np.ndarray, *, shown: bool) -> Shadow:
    """A fine-tune over texts that are neither scored nor compared with."""
    left = np.flatnonzero(~np.isin(tuned.places, audited))
    target, base = first_tokens(tuned.target, left), first_tokens(tuned.base, left)
    if shown:
        target = shown_only(target, base, likeliest=SHOWN)
    return Shadow(target, base, tuned.places[left] >= pair.never + pair.apart)


def measured(pair: Pair, tunes: Sequence[Tuned]) -> Iterator[dict[str, tuple[float, ...]]]:
    """Figures of each score, with each fine-tune as the target."""
    for turn, tuned in enumerate(tunes):
        own = np.flatnonzero((tuned.places < pair.never) | (tuned.places >= pair.never + pair.apart))
        audited = tuned.places[own]
        seen = audited >= pair.never
        others = [one for place, one in enumerate(tunes) if place != turn]
        target, base = first_tokens(tuned.target, own), first_tokens(tuned.base, own)
        part = shown_only(target, base, likeliest=SHOWN)
        found = {name: SCORES[name](target=target, base=base) for name in SCORES.names()}
        found["zlib"] = zlib_score(target, list(tuned.texts[own]))
        for name in ("log-ratio", "error-zone"):
            found[f"{name}, {SHOWN} shown, floor"] = SCORES[name](naive_floor(target), base)
            found[f"{name}, {SHOWN} shown, expected"] = SCORES[name](part, base)
        for shown, view in ((False, target), (True, part)):
            shadows = [shadow(one, pair, audited, shown=shown) for one in others]
            name = f"ours, {SHOWN} shown" if shown else "ours"
            found[name] = LearntLogOdds.fit(shadows, seed=0).scores(view, base)
        told = {name: figures(scores, seen) for name, scores in found.items()}
        gain = found["loss"] - SCORES["loss"](base)
        told["gain"] = (gain[seen].mean(), gain[~seen].mean(), 0.0)
        yield told
