"""What an audit of users costs at a server, before the first call."""

from collections.abc import Sequence

from vestige.errors import DataError
from vestige.models.endpoint import CHECK_EVERY
from vestige.models.endpoint_limits import reckon
from vestige.models.endpoint_probe import CALLS
from vestige.models.endpoint_wire import Question
from vestige.models.endpoint_words import GOES_ON, LONGEST_PIECES
from vestige.models.remote_options import RemoteOptions
from vestige.models.top_k import Context

ENDINGS = LONGEST_PIECES // GOES_ON
"""Most calls for a word that is cut into pieces."""


def server_cost(
    contexts: Sequence[Context], options: RemoteOptions, *, k: int, most: int | None = None
) -> str:
    """A line about calls and tokens.

    Args:
        contexts: that will be queried.
        options: with the budgets.
        k: length of the lists; each word may be cut into pieces, which Vestige completes.
        most: how many of the contexts will be queried, if it is not known yet which.

    Raises:
        DataError: a budget is too small even if no word is cut into pieces.
    """
    prompts = {" ".join(context.words) for context in contexts}
    asked = len(prompts) if most is None else min(most, len(prompts))
    checks = CALLS + 2 + asked // CHECK_EVERY
    each = sum(reckon(Question(prompt)) for prompt in prompts) / max(len(prompts), 1)
    calls, tokens = asked + checks, round(each * asked) + 20 * checks
    ends = asked * k * ENDINGS
    most_tokens = tokens + round(ends * (each + LONGEST_PIECES))
    for name, needed in (("budget", calls), ("token_budget", tokens)):
        allowed = getattr(options, name)
        if allowed is not None and allowed < needed:
            raise DataError(
                f"`{name}` {allowed} is too small: this audit needs {needed} if no word is cut "
                "into pieces",
                remedy=f"Give `{name}` {needed} (more for pieces and calls that fail), fewer "
                "`queries` or `calls`, or fewer texts.",
            )
    return (
        f"Plan: {asked:,} prompts, {calls:,} calls and about {tokens:,} tokens if each token is a "
        f"word; at most {calls + ends:,} calls and about {most_tokens:,} tokens if every listed "
        f"word has {LONGEST_PIECES} pieces. Fewer calls if the server takes several prompts at "
        "once; more if calls fail. Cached answers cost nothing."
    )
