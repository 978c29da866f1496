"""`vestige diff` as it is by default: contrastive samples, openings and what extends them."""

from typing import Any

from update_pairs.protocol import Found, Row
from vestige.attacks.update.seed_and_extend import Effort, SeedAndExtend
from vestige.attacks.update.update_diff import null_scores, update_diff
from vestige.models.protocols import NextToken


def search(before: NextToken, after: NextToken, budget: int, seed: int) -> Found:
    """The default search, whose work is about the benchmark's budget; runs left out."""
    return searched(before, after, SeedAndExtend(seed=seed))


def searched(
    before: NextToken, after: NextToken, how: SeedAndExtend, fragments: bool = True
) -> Found:
    """What a search of `vestige diff` finds, and the scores that it has as a null search."""
    kept: dict[str, Any] = {}
    diff = update_diff(before, after, search=how, effort=Effort(kept=kept).of("0"))
    # no model is asked again: all units are kept
    nulls = null_scores(before, [after], search=how, effort=Effort(kept=kept))
    assert diff.searched is not None
    rows = (
        *(Row(one.tokens, one.score) for one in diff.findings if not one.run),
        *(Row(one.tokens, one.score, fragment=True) for one in diff.fragments if fragments),
    )
    read = diff.searched
    return Found(rows=rows, before=read.before, after=read.after, scores=nulls.searches[0])
