"""Exposure of the canaries of one updated model."""

import itertools
from collections.abc import Iterator, Sequence
from statistics import fmean

import torch
from torch import Tensor

from reproduction.papers import Row
from reproduction.updates.searches import Beam, beam_search, halving_widths
from vestige.audits.update.pair import Pair
from vestige.audits.update.rank import rank_of_phrase
from vestige.audits.update.scores import TokenScore
from vestige.data.canaries.texts import Canary
from vestige.models.largest import TIE
from vestige.models.protocols import LanguageModel

DIFFERENTIAL = TokenScore("differential")


@torch.no_grad()
def exposures(
    before: LanguageModel, after: LanguageModel, canaries: Sequence[Canary], *, budget: int | None
) -> Iterator[Row]:
    """One row per planted canary.

    All canaries are planted together; in the paper each is alone. The search finds the others as
    well, which would worsen a canary's rank. So `beam_rank` leaves out phrases that share two
    adjacent words with another canary; `beam_rank_with_others` counts them.

    `canaries` have ids; those with copies are planted in the update, the others are controls.
    `budget` is that of the bounded search for the exact rank; None leaves that rank out.
    """
    pair = Pair.of(before, after, DIFFERENTIAL)
    planted = [canary for canary in canaries if canary.planted]
    token_scores = {canary.phrase: gains(pair, canary.ids) for canary in canaries}
    scores = {phrase: sum(values) for phrase, values in token_scores.items()}
    lengths = {len(canary.ids) for canary in planted}
    beams = {n: beam_search(pair, halving_widths(pair.vocab_size, n)) for n in lengths}
    for canary in planted:
        score = scores[canary.phrase]
        others = [other for other in planted if other != canary]
        controls = [c for c in canaries if c.control and c.pattern == canary.pattern]
        yield {
            "pattern": canary.pattern,
            "copies": canary.copies,
            "phrase": canary.phrase,
            "frequencies": list(canary.frequencies),
            "score": score,
            **_beam_ranks(beams[len(canary.ids)], canary, others, score),
            "canaries_above": sum(scores[other.phrase] > score for other in others),
            "control_score": fmean(scores[c.phrase] for c in controls) if controls else None,
            "token_scores": token_scores[canary.phrase],
            **({} if budget is None else _exact_ranks(before, after, canary, budget)),
        }


@torch.no_grad()
def gains(pair: Pair, tokens: Sequence[int]) -> list[float]:
    """The score of each token of a phrase given those before it, at the beginning of a text."""
    return list(pair.token_gains([tuple(tokens)], context=())[0])


def _exact_ranks(before: LanguageModel, after: LanguageModel, canary: Canary, budget: int) -> Row:
    phrase, prefix = (
        rank_of_phrase(before, after, tokens, budget=budget).summary
        for tokens in (canary.ids, canary.ids[:2])
    )
    columns = ("rank_lower", "rank_upper", "exact", "relative_score", "smoothed_score")
    return {
        **{name: phrase[name] for name in columns},
        "prefix_rank_lower": prefix["rank_lower"],
        "prefix_rank_upper": prefix["rank_upper"],
    }


def _beam_ranks(beam: Beam, canary: Canary, others: Sequence[Canary], score: float) -> Row:
    ids = torch.tensor(canary.ids, device=beam.tokens.device)
    is_canary = (beam.tokens == ids).all(1)
    higher = (beam.score > score + TIE * len(ids)) & ~is_canary
    of_others = torch.zeros_like(higher)
    for other in others:
        of_others |= _shares_bigram(beam.tokens, other.ids)
    return {
        "in_beam": bool(is_canary.any()),
        "beam_rank": int((higher & ~of_others).sum()),
        "beam_rank_with_others": int(higher.sum()),
    }


def _shares_bigram(tokens: Tensor, ids: Sequence[int]) -> Tensor:
    """(k, n) phrases -> (k,) whether each contains two adjacent tokens of `ids`."""
    bigrams = itertools.pairwise(ids)
    matches = [((tokens[:, :-1] == a) & (tokens[:, 1:] == b)).any(1) for a, b in bigrams]
    return torch.stack(matches).any(0)
