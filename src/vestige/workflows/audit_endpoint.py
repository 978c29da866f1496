"""An endpoint as the target of an audit: what it costs, what it can do, and its words."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from vestige.errors import DataError
from vestige.models.endpoint import (
    CHECK_EVERY,
    Endpoint,
)
from vestige.models.endpoint_address import EndpointAddress
from vestige.models.endpoint_limits import EndpointLimits, reckon
from vestige.models.endpoint_probe import CALLS, EndpointAccess, probe
from vestige.models.endpoint_store import EndpointStore
from vestige.models.endpoint_wire import Question
from vestige.models.endpoint_words import GOES_ON, LONGEST_PIECES, EndpointWords
from vestige.models.service import RetryPolicy
from vestige.models.top_k import Context
from vestige.monitor import Monitor
from vestige.workflows.audit_options import ServiceSettings
from vestige.workflows.endpoint_settings import EndpointSettings

TOGETHER = 16
"""Prompts in one call, where a server takes several."""
ENDINGS = LONGEST_PIECES // GOES_ON
"""Calls that a word cut into pieces takes at most."""


def tell_cost(
    contexts: Sequence[Context],
    settings: ServiceSettings,
    *,
    k: int,
    most: int | None = None,
    monitor: Monitor,
) -> None:
    """Say what an audit will cost, before the first call, and refuse a budget that is too small.

    Args:
        contexts: what will be asked about.
        settings: with the budgets.
        k: words listed at most; each may be cut into pieces and is then asked to its end.
        most: how many of the contexts, where it is not known yet which.

    Raises:
        DataError: calls or tokens are too few even if no word is cut into pieces.
    """
    prompts = {" ".join(context.words) for context in contexts}
    asked = len(prompts) if most is None else min(most, len(prompts))
    checks = CALLS + 2 + asked // CHECK_EVERY
    each = sum(reckon(Question(prompt)) for prompt in prompts) / max(len(prompts), 1)
    calls, tokens = asked + checks, round(each * asked) + 20 * checks
    ends = asked * k * ENDINGS
    most_tokens = tokens + round(ends * (each + LONGEST_PIECES))
    monitor.log(
        f"The endpoint is asked about {asked:,} beginnings of texts: {calls:,} calls and about "
        f"{tokens:,} tokens where each of its tokens is a word, fewer calls where it takes several "
        f"prompts at once. Words that it cuts into pieces are asked to their end: at most "
        f"{calls + ends:,} calls and about {most_tokens:,} tokens in all, if every word took "
        f"{LONGEST_PIECES} pieces; calls that fail are made again. What was answered before is not "
        "asked again"
    )
    for name, needed in (("budget", calls), ("token_budget", tokens)):
        allowed = getattr(settings, name)
        if allowed is not None and allowed < needed:
            raise DataError(
                f"`{name}` {allowed} is too small: this audit takes {needed} if no word "
                "is cut into pieces",
                remedy=f"Give `{name}` {needed} (and some more for pieces, and calls that fail), "
                "ask about less (`queries`, `calls`), or give fewer texts.",
            )


@contextmanager
def opened(
    address: EndpointAddress,
    path: Path,
    settings: ServiceSettings | EndpointSettings,
    monitor: Monitor,
) -> Iterator[tuple[Endpoint, EndpointAccess]]:
    """An endpoint that was probed, and what it can do; `confirm` it before its answers count."""
    retry = RetryPolicy(attempts=settings.attempts, timeout=settings.timeout or 60.0)
    limits = EndpointLimits(
        calls=settings.budget,
        tokens=settings.token_budget,
        calls_per_minute=settings.calls_per_minute,
        concurrency=settings.concurrency,
        retry=retry,
    )
    store = EndpointStore(path, monitor)
    with Endpoint(address, store, limits=limits, key_env=settings.key_env) as endpoint:
        is_new = store.about("access") is None
        access = probe(endpoint)
        if is_new:
            for sentence in access.sentences():
                monitor.log(sentence)
        endpoint.limits = replace(limits, together=TOGETHER if access.together else 1)
        yield endpoint, access


def require_shown(access: EndpointAccess, k: int) -> None:
    """Refuse lists that are longer than what the server shows.

    Raises:
        DataError: it shows fewer.
    """
    if k > access.shown:
        raise DataError(
            f"`top_k` {k} is more than the {access.shown} tokens that the server shows",
            remedy=f"Give `top_k` {access.shown} or less.",
        )


def spent(endpoint: Endpoint, words: EndpointWords) -> dict[str, float | int | bool | None]:
    """Statistics of all sessions, by the names that a callable's have, and those it has not."""
    found = endpoint.store.statistics()
    return {
        "calls": found["calls"],
        "failures": found["failed_calls"],
        "retries": found["failed_calls"],
        "tokens": found["tokens"],
        "seconds": found["seconds"],
        "budget": endpoint.limits.calls,
        "budget_spent": endpoint.budget_spent,
        "listed_tokens": words.counts["tokens"],
        "listed_pieces": words.counts["pieces"],
    }
