"""`vestige diff` as it is by default: contrastive samples, openings and what extends them."""

from update_pairs.protocol import Found, Row
from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search_update
from vestige.audits.update.settings import Settings
from vestige.models.protocols import NextToken


def search(before: NextToken, after: NextToken, budget: int, seed: int) -> Found:
    """The default search, whose work is about the benchmark's budget; runs left out."""
    return searched(before, after, Settings(seed=seed))


def searched(before: NextToken, after: NextToken, how: Settings, fragments: bool = True) -> Found:
    """What a search of `vestige diff` finds, and the scores that it has as a null search."""
    found = search_update(Pair.of(before, after, TokenScore("smoothed")), how)
    phrases = [phrase for phrase, _ in found.phrases if len(phrase.phrase) >= how.min_tokens]
    more = [phrase for phrase, _ in (*found.fragments, *found.samples) if fragments]
    rows = (
        *(Row(one.phrase, one.score) for one in phrases if not one.is_run),
        *(Row(one.phrase, one.score, fragment=True) for one in more if not one.is_run),
    )
    read = found.tokens
    return Found(rows=rows, before=read[0], after=read[1], scores=tuple(found.null_scores))
