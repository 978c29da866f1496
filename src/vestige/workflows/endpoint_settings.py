"""What an endpoint may be asked: budgets, pace and key."""

import re
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from vestige import _validate
from vestige.workflows.options import Metavar

KEY = "OPENAI_API_KEY"


@dataclass(frozen=True, kw_only=True)
class EndpointSettings:
    """An endpoint, openai:URL#MODEL.

    Attributes:
        budget: Calls to each endpoint at most, those of interrupted sessions counted.
        token_budget: Tokens that each endpoint may count in all sessions.
        timeout: Seconds after which a call has failed. Default: 60.
        attempts: Calls for the same question at most.
        concurrency: Calls at a time.
        calls_per_minute: Calls at most in a minute. Default: as fast as it answers.
        key_env: The environment variable that holds the key, which is written nowhere.
    """

    budget: Annotated[int | None, Ge(1)] = None
    token_budget: Annotated[int | None, Ge(1)] = None
    timeout: float | None = None
    attempts: Annotated[int, Ge(1)] = 4
    concurrency: Annotated[int, Ge(1), Le(256)] = 4
    calls_per_minute: float | None = None
    key_env: Annotated[str, Metavar("NAME")] = KEY

    def __post_init__(self) -> None:
        for name in ("calls_per_minute", "timeout"):
            if (value := getattr(self, name)) is not None:
                _validate.positive(**{f"`{name}`": value})
                _validate.finite(**{f"`{name}`": value})
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.key_env):
            raise ValueError("`key_env` must name an environment variable and be no key itself")

    def refuse_for_folder(self) -> None:
        """Raise ValueError where something was set: a model that is read has none of this."""
        for name, default in vars(EndpointSettings()).items():
            if getattr(self, name) != default:
                raise ValueError(
                    f"`{name}` must be left out unless MODEL is an endpoint, openai:URL#MODEL"
                )
