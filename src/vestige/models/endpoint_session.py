"""A server that speaks OpenAI's protocol, opened within the limits of `RemoteOptions`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from vestige.models.endpoint import Endpoint
from vestige.models.endpoint_address import EndpointAddress
from vestige.models.endpoint_limits import EndpointLimits
from vestige.models.endpoint_probe import EndpointAccess, probe
from vestige.models.endpoint_store import EndpointStore
from vestige.models.remote_options import RemoteOptions
from vestige.models.service import RetryPolicy
from vestige.monitor import Monitor

PROMPTS = 16
"""Prompts in one call, if the server takes several."""
TIMEOUT = 60.0


@contextmanager
def opened(
    address: EndpointAddress, path: Path, options: RemoteOptions, monitor: Monitor
) -> Iterator[tuple[Endpoint, EndpointAccess]]:
    """A probed server and its access. Call `confirm` before its answers count.

    Args:
        address: of the server and its model.
        path: file of its answers.
        options: budgets, speed and key.
        monitor: gets one line per finding of the first probe.

    Raises:
        ModelError: the server does not answer, or serves another model than before.
    """
    limits = EndpointLimits(
        calls=options.budget,
        tokens=options.token_budget,
        calls_per_minute=options.calls_per_minute,
        concurrency=options.concurrency,
        retry=RetryPolicy(attempts=options.attempts, timeout=options.timeout or TIMEOUT),
    )
    store = EndpointStore(path, monitor)
    with Endpoint(address, store, limits=limits, key_env=options.key_env) as endpoint:
        is_new = store.about("access") is None
        access = probe(endpoint)
        if is_new:
            for sentence in access.sentences():
                monitor.log(sentence)
        endpoint.limits = replace(limits, together=PROMPTS if access.together else 1)
        yield endpoint, access
