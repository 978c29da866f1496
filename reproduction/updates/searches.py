"""Searches that the tables compare: the paper's beams, and those of `vestige diff`."""

from typing import NamedTuple

from reproduction.updates.beam_search import Beams
from vestige.audits.update.pair import Pair
from vestige.audits.update.phrases import Text, sort_key
from vestige.audits.update.search import search as seed_and_extend
from vestige.audits.update.settings import Settings

Search = Settings | Beams

PAIRS_AND_OPENINGS = Settings(sampling=None, openings=100, pair_vocabulary=None, repaired=0)
"""The search without samples: the gains of all v x v pairs of tokens are computed."""


class Finding(NamedTuple):
    """A phrase, its near-copies, and the group of a beam that found it, else its place."""

    phrase: Text
    copies: int
    group: int


def findings(pair: Pair, search: Search) -> list[Finding]:
    """All phrases of a search, runs included, best first."""
    if isinstance(search, Settings):
        found = seed_and_extend(pair, search).phrases
        long = [entry for entry in found if len(entry[0].phrase) >= search.min_tokens]
        return [Finding(*entry, place) for place, entry in enumerate(long)]
    grouped = [
        Finding(*entry, group)
        for group, entries in enumerate(search.phrases(pair))
        for entry in entries
    ]
    ranked = sorted(grouped, key=lambda one: sort_key(one.phrase))
    if search.groups > 1:
        return ranked
    return [one._replace(group=place) for place, one in enumerate(ranked)]


def null_scores(pair: Pair, search: Search) -> list[float]:
    """Scores of all phrases of a null model, those too short to report among them."""
    if isinstance(search, Settings):
        return seed_and_extend(pair, search).null_scores
    return [one.phrase.score for one in findings(pair, search) if not one.phrase.is_repetitive]
