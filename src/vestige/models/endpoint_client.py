"""The client of a served model, and what its errors mean: try again, refused, or the end.

Whatever is said of an error holds no word of the server's, which may quote texts or a key.
"""

import json
import math
import time
from email.utils import parsedate_to_datetime
from typing import Any

from vestige.errors import ModelError
from vestige.models.endpoint_address import EndpointAddress
from vestige.models.endpoint_wire import BadReply
from vestige.models.service import TooSlow

LONGEST_WAIT = 600.0
"""Seconds that a server may ask us to wait for."""


class Refused(Exception):
    """The server will not answer such a question; its status."""


def describe(error: BaseException | None) -> str:
    """Why a call failed, without a word of the server's, which may quote texts or a key."""
    status = getattr(error, "status_code", None)
    if status is not None:
        return f"status {status}"
    if isinstance(error, BadReply | Refused | TooSlow):
        return str(error)
    return type(error).__name__


def client_of(address: EndpointAddress, key: str, timeout: float | None) -> Any:
    try:
        from openai import OpenAI
    except ImportError:
        raise ModelError(
            f"{address} needs the package openai",
            remedy="Install it: pip install 'vestige[endpoint]'.",
        ) from None
    return OpenAI(
        base_url=address.url,
        api_key=key or "none",
        max_retries=0,
        timeout=timeout,
        http_client=_client_of_one_origin(),
    )


class Elsewhere(Exception):
    """A redirect to another host, which would send texts and key there."""


def _client_of_one_origin() -> Any:
    """A client that follows redirects within the host it was given."""
    from openai import DefaultHttpxClient

    def refuse(response: Any) -> None:
        if not response.has_redirect_location:
            return
        here = response.request.url
        there = here.join(response.headers["location"])
        if (there.scheme, there.host, there.port) != (here.scheme, here.host, here.port):
            raise Elsewhere

    return DefaultHttpxClient(event_hooks={"response": [refuse]})


def holds(content: bytes, key: str) -> bool:
    """Whether an answer holds a key, as it is or behind JSON's escapes."""
    if key.encode() in content:
        return True
    try:
        decoded = json.dumps(json.loads(content), ensure_ascii=False)
    except (ValueError, RecursionError):
        return False
    return key in decoded or json.dumps(key, ensure_ascii=False)[1:-1] in decoded


def judged(error: BaseException, address: EndpointAddress) -> BaseException:
    """The error as what it means: to be tried again, refused, or the end."""
    status = getattr(error, "status_code", None)
    if isinstance(error, Elsewhere) or isinstance(error.__cause__, Elsewhere):
        return ModelError(
            f"{address} redirects to another host; no texts are sent there",
            remedy="Pass the address of that server if you trust it.",
        )
    if status in (401, 403):
        return ModelError(
            f"{address} rejects the key (status {status})",
            remedy="Put the key in OPENAI_API_KEY, or in the variable that `key_env` names.",
        )
    if status in (400, 404, 405, 413, 422, 501):
        return Refused(f"status {status}")
    if status is None and not isinstance(error, Exception):
        return error
    failure = BadReply(describe(error))
    failure.__dict__["headers"] = getattr(getattr(error, "response", None), "headers", {})
    return failure


def told_to_wait(error: BaseException | None) -> float | None:
    """Seconds that the server asks to wait, in its header Retry-After: a number or a date."""
    told = dict(getattr(error, "headers", None) or {}).get("retry-after")
    if told is None:
        return None
    try:
        seconds = float(told)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(told).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return min(max(seconds, 0.0), LONGEST_WAIT) if math.isfinite(seconds) else None
