"""Where a served model is: `openai:URL#MODEL`."""

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from vestige.errors import AccessDenied, ModelError

PREFIX = "openai:"


@dataclass(frozen=True)
class EndpointAddress:
    """Where a model is served: `openai:URL#MODEL`.

    Example:
        >>> EndpointAddress.parse("openai:http://localhost:8000/v1#smol")
        EndpointAddress(url='http://localhost:8000/v1', model='smol')
    """

    url: str
    model: str

    @classmethod
    def parse(cls, name: str) -> Self:
        """The address that a target names.

        Raises:
            ModelError: it lacks a part, or holds a password or a query, which would be written
                wherever the address is.
        """
        url, _, model = name.removeprefix(PREFIX).partition("#")
        if not (_is_url(url) and model.strip() and model.isprintable()):
            raise ModelError(
                "the address is not of the form openai:URL#MODEL",
                remedy=(
                    "Write it like openai:http://localhost:8000/v1#smollm2. Put a key in the "
                    "environment (`key_env`), never in the address."
                ),
            )
        return cls(url.rstrip("/"), model)

    def __str__(self) -> str:
        return f"{PREFIX}{self.url}#{self.model}"


def _is_url(url: str) -> bool:
    """Whether an address is plain HTTP or HTTPS, without a password, query or control character."""
    if not url.isprintable() or not re.fullmatch(r"https?://[^\s/@?]+(/[^\s@?]*)?", url):
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an IPv6 address that is none
        return False


def is_endpoint(name: object) -> bool:
    """Whether a target is named as an endpoint is."""
    return isinstance(name, str) and name.startswith(PREFIX)


def refuse_endpoint(name: object) -> None:
    """Raise AccessDenied where a model's weights are wanted and an endpoint was named."""
    if is_endpoint(name):
        raise AccessDenied(
            f"{name} is a server: it returns probable tokens, not weights",
            remedy="Use vestige membership --unit user, or pass the model's folder.",
        )
