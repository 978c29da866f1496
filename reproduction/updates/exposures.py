"""Exposure of the canaries of one updated model."""

import itertools
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from reproduction.updates.beam_search import Beam, beam_search, halving_widths
from vestige.audits.update.pair import Pair
from vestige.audits.update.rank import rank_of_phrase
from vestige.audits.update.scores import TokenScore
from vestige.data.canaries.texts import Canary
from vestige.models.largest import TIE
from vestige.models.protocols import LanguageModel


@torch.no_grad()
def exposures(
    before: LanguageModel, after: LanguageModel, canaries: Sequence[Canary], *, budget: int | None
) -> Iterator[dict[str, Any]]:
    """One row for each planted canary.

    Canaries planted together are found together. What the search finds of one would count
    against the rank of another, which is alone in the paper: `beam_rank` leaves out phrases
    that share two adjacent words with another canary, `beam_rank_with_others` counts them.

    `canaries` have ids; those with copies are planted in the update, the others are controls.
    `budget` is that of the bounded search for the exact rank; None leaves that rank out.
    """
    pair = Pair.of(before, after, TokenScore("differential"))
    planted = [canary for canary in canaries if canary.planted]
    scores = {canary.phrase: gains(pair, canary.ids) for canary in canaries}
    lengths = {len(canary.ids) for canary in planted}
    beams = {n: beam_search(pair, halving_widths(pair.vocab_size, n)) for n in lengths}
    for canary in planted:
        own = sum(scores[canary.phrase])
        others = [other for other in planted if other != canary]
        controls = [c for c in canaries if c.control and c.pattern == canary.pattern]
        yield {
            "pattern": canary.pattern,
            "copies": canary.copies,
            "phrase": canary.phrase,
            "frequencies": list(canary.frequencies),
            "score": own,
            **_beam_rank(beams[len(canary.ids)], canary, others, own),
            "canaries_above": sum(sum(scores[other.phrase]) > own for other in others),
            "control_score": fmean(sum(scores[c.phrase]) for c in controls) if controls else None,
            "token_scores": scores[canary.phrase],
            **({} if budget is None else _exact_ranks(before, after, canary, budget)),
        }


@torch.no_grad()
def scores_of(
    before: LanguageModel, after: LanguageModel, canaries: Sequence[Canary]
) -> dict[str, float]:
    """The differential score of each phrase."""
    pair = Pair.of(before, after, TokenScore("differential"))
    return {canary.phrase: sum(gains(pair, canary.ids)) for canary in canaries}


@torch.no_grad()
def gains(pair: Pair, tokens: Sequence[int]) -> list[float]:
    """The score of each token of a phrase, given those before it, from a text's beginning."""
    return list(pair.token_gains([tuple(tokens)], context=())[0])


@torch.no_grad()
def token_profile(
    before: LanguageModel, after: LanguageModel, canary: Canary
) -> Iterator[dict[str, Any]]:
    """One row for each token of a canary: its gain, given the true words before it."""
    pair = Pair.of(before, after, TokenScore("differential"))
    for place, gain in enumerate(gains(pair, canary.ids)):
        yield {
            "pattern": canary.pattern,
            "copies": canary.copies,
            "position": place + 1,
            "piece": before.vocabulary.piece(canary.ids[place]),
            "gain": gain,
        }


def _exact_ranks(
    before: LanguageModel, after: LanguageModel, canary: Canary, budget: int
) -> dict[str, Any]:
    whole, prefix = (
        rank_of_phrase(before, after, tokens, budget=budget).summary
        for tokens in (canary.ids, canary.ids[:2])
    )
    shown = ("rank_lower", "rank_upper", "exact", "relative_score", "smoothed_score")
    return {
        **{name: whole[name] for name in shown},
        "prefix_rank_lower": prefix["rank_lower"],
        "prefix_rank_upper": prefix["rank_upper"],
    }


def _beam_rank(
    beam: Beam, canary: Canary, others: Sequence[Canary], score: float
) -> dict[str, Any]:
    own = torch.tensor(canary.ids, device=beam.tokens.device)
    itself = (beam.tokens == own).all(1)
    higher = (beam.score > score + TIE * len(own)) & ~itself
    of_others = torch.zeros_like(higher)
    for other in others:
        of_others |= _shares_pair(beam.tokens, other.ids)
    return {
        "in_beam": bool(itself.any()),
        "beam_rank": int((higher & ~of_others).sum()),
        "beam_rank_with_others": int(higher.sum()),
    }


def _shares_pair(tokens: Tensor, ids: Sequence[int]) -> Tensor:
    """(k, n) phrases -> (k,) whether each holds two adjacent tokens of ids."""
    pairs = itertools.pairwise(ids)
    found = [((tokens[:, :-1] == a) & (tokens[:, 1:] == b)).any(1) for a, b in pairs]
    return torch.stack(found).any(0)
