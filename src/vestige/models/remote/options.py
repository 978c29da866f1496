"""Names and options of remote models: `openai:URL#MODEL` and `package.module:function`."""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from annotated_types import Le
from cyclopts import Group, Parameter

from vestige.arguments import Count, Few, Positive
from vestige.errors import AccessDenied, ModelError

PREFIX = "openai:"
_SERVER_ONLY = ("token_budget", "concurrency", "calls_per_minute", "key_env")
_CALLABLE = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*(\.[^\W\d]\w*)*)")


@Parameter(name="*", group=Group("Remote model", sort_key=5))
@dataclass(frozen=True, kw_only=True)
class RemoteOptions:
    """Budgets, speed and key of a remote model.

    Attributes:
        budget: Most calls, or most queries of a function. Earlier sessions count.
        token_budget: Most tokens, as the server counts them. Earlier sessions count.
        timeout: Seconds until a call has failed. Default: 60 for a server, none for a function.
        attempts: Most attempts per question.
        concurrency: Simultaneous calls.
        calls_per_minute: Most calls per minute. Default: no limit.
        key_env: Environment variable with the key. Vestige never writes the key to a file.
    """

    budget: Count | None = None
    token_budget: Count | None = None
    timeout: Positive | None = None
    attempts: Few = 4
    concurrency: Annotated[Count, Le(256)] = 4
    calls_per_minute: Positive | None = None
    key_env: Annotated[str, Parameter(metavar="NAME")] = "OPENAI_API_KEY"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.key_env):
            raise ValueError("`key_env` must be the name of an environment variable, not the key")

    def reject_for_local(self) -> None:
        """Raise ValueError if an option is set: a local model has none."""
        for name in self._changed():
            raise ValueError(f"`{name}` needs a remote model: openai:URL#MODEL or module:function")

    def reject_for_function(self) -> None:
        """Raise ValueError if an option is set that needs a server."""
        for name in self._changed():
            if name in _SERVER_ONLY:
                raise ValueError(f"`{name}` needs a server: openai:URL#MODEL")

    def _changed(self) -> list[str]:
        return [field.name for field in fields(self) if getattr(self, field.name) != field.default]


@dataclass(frozen=True)
class EndpointAddress:
    """Address of a served model: `openai:URL#MODEL`.

    Example:
        >>> EndpointAddress.parse("openai:http://localhost:8000/v1#smol")
        EndpointAddress(url='http://localhost:8000/v1', model='smol')
    """

    url: str
    model: str

    @classmethod
    def parse(cls, name: str) -> Self:
        """The address in the name of a target.

        ModelError if it lacks a part, or has a password or a query: addresses are written to files.
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
    except ValueError:  # an invalid port or IPv6 address
        return False


def is_endpoint(name: object) -> bool:
    """Whether a target is the address of a server."""
    return isinstance(name, str) and name.startswith(PREFIX)


def refuse_endpoint(name: object) -> None:
    """Raise AccessDenied for a server where the weights of a model are needed."""
    if is_endpoint(name):
        raise AccessDenied(
            f"{name} is a server: it returns probable tokens, not weights",
            remedy="Use vestige membership --unit user, or pass the model's folder.",
        )


def is_callable_name(name: str) -> bool:
    """Whether a text is `package.module:function` and not an existing file."""
    return _CALLABLE.fullmatch(name) is not None and not Path(name).exists()


def import_callable(name: str) -> Callable[..., Any]:
    """The function `package.module:function`; ModelError if there is none."""
    remedy = "Write it as package.module:function. Modules in this directory are found, too."
    match = _CALLABLE.fullmatch(name)
    if match is None:
        raise ModelError(f"{name} names no callable", remedy=remedy)
    if (directory := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, directory)
    try:
        value: Any = import_module(match["module"])
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's module may raise anything
        raise ModelError(
            f"{name}: importing {match['module']} raised {type(error).__name__}: {error}",
            remedy=remedy,
        ) from error
    for part in match["name"].split("."):
        if not hasattr(value, part):
            raise ModelError(f"{name}: {match['module']} has no {part!r}", remedy=remedy)
        value = getattr(value, part)
    if not callable(value):
        raise ModelError(f"{name} is {type(value).__name__} and cannot be called", remedy=remedy)
    return value  # type: ignore[no-any-return]
