"""Options of a model behind a server or a function, declared once for all verbs."""

import re
from dataclasses import dataclass, fields
from typing import Annotated

from annotated_types import Le
from cyclopts import Group, Parameter

from vestige.arguments import Count, Few, Positive

KEY_ENV = "OPENAI_API_KEY"
OF_SERVER = ("token_budget", "concurrency", "calls_per_minute", "key_env")
"""Options of a server that a function does not have."""


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
    key_env: Annotated[str, Parameter(metavar="NAME")] = KEY_ENV

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.key_env):
            raise ValueError("`key_env` must be the name of an environment variable, not the key")

    def reject_for_local(self) -> None:
        """Raise ValueError if an option is set: a local model has none of them."""
        for name in self._changed():
            raise ValueError(f"`{name}` needs a remote model: openai:URL#MODEL or module:function")

    def reject_for_function(self) -> None:
        """Raise ValueError if an option is set that only a server has."""
        for name in self._changed():
            if name in OF_SERVER:
                raise ValueError(f"`{name}` needs a server: openai:URL#MODEL")

    def _changed(self) -> list[str]:
        usual = RemoteOptions()
        names = [one.name for one in fields(self)]
        return [name for name in names if getattr(self, name) != getattr(usual, name)]
