"""Configuration of an audit of users that travels together: the service and the shadow models."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from vestige import _validate
from vestige.errors import DataError
from vestige.workflows.options import Directory, Metavar

KEY = "OPENAI_API_KEY"
ENDPOINT = ("token_budget", "concurrency", "calls_per_minute", "key_env")
"""Settings of an endpoint alone."""

ServedTask = Literal["next-word", "translation", "dialogue"]


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """A service behind a callable.

    Attributes:
        budget: Queries at most, repeated ones and those of interrupted sessions counted.
        timeout: Seconds after which a call has failed. Default: wait for ever.
        attempts: Calls for the same contexts at most.
        task: What the service does. Default: `next-word`.
        vocabulary_size: Words that can be queried, the commonest of `reference`.
        tokenizer: `whitespace` splits texts at blanks, `words` splits off punctuation too.
        token_budget: Tokens that an endpoint may count in all sessions; `budget` is its calls.
        concurrency: Calls to an endpoint at a time.
        calls_per_minute: Calls to an endpoint at most in a minute. Default: as fast as it answers.
        key_env: The environment variable that holds an endpoint's key, which is written nowhere.
    """

    budget: Annotated[int | None, Ge(1)] = None
    timeout: float | None = None
    attempts: Annotated[int, Ge(1)] = 4
    task: ServedTask | None = None
    vocabulary_size: Annotated[int, Ge(3)] = 5000
    tokenizer: Literal["whitespace", "words"] = "whitespace"
    token_budget: Annotated[int | None, Ge(1)] = None
    concurrency: Annotated[int, Ge(1), Le(256)] = 4
    calls_per_minute: float | None = None
    key_env: Annotated[str, Metavar("NAME")] = KEY

    def __post_init__(self) -> None:
        if self.calls_per_minute is not None:
            _validate.positive(**{"`calls_per_minute`": self.calls_per_minute})
            _validate.finite(**{"`calls_per_minute`": self.calls_per_minute})
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.key_env):
            raise ValueError("`key_env` must name an environment variable and be no key itself")
        if self.timeout is not None:
            _validate.positive(**{"`timeout`": self.timeout})
            _validate.finite(**{"`timeout`": self.timeout})

    def refuse_for_model(self) -> None:
        """Raise ValueError where something was set: a model of ours has none of this."""
        for name, default in vars(ServiceSettings()).items():
            if getattr(self, name) != default:
                raise ValueError(
                    f"`{name}` must be left out unless MODEL is a callable, "
                    "package.module:function, or an endpoint, openai:URL#MODEL"
                )

    def refuse_for_callable(self) -> None:
        """Raise ValueError where something was set that only an endpoint has."""
        for name in ENDPOINT:
            if getattr(self, name) != getattr(ServiceSettings(), name):
                raise ValueError(
                    f"`{name}` must be left out unless MODEL is an endpoint, openai:URL#MODEL"
                )

    def refuse_for_endpoint(self) -> None:
        """Raise ValueError where a task was set that an endpoint is not asked for."""
        if self.task not in (None, "next-word"):
            raise ValueError(
                f"`task` must be next-word for an endpoint, got {self.task}: ask by a callable "
                "how it translates or answers"
            )

    def afford(self, needed: int, *, exact: bool) -> None:
        """Refuse a budget that cannot be enough, before anything is queried.

        Raises:
            DataError: it takes more.
        """
        if self.budget is not None and self.budget < needed:
            raise DataError(
                f"`budget` {self.budget} is too small: this audit takes "
                f"{'' if exact else 'up to '}{needed} queries",
                remedy=f"Give `budget` {needed} (and some more for calls that fail), ask about "
                "less (`queries`, `calls`), or give fewer texts.",
            )


@dataclass(frozen=True, kw_only=True)
class ShadowSettings:
    """Shadow models.

    Attributes:
        shadows: Models to train on text of the non-members who are not compared with, each on a
            random half of them; 0: word counts alone. It takes 3 to check whether the comparison
            is fair.
        shadow_dir: Where trained ones are looked for and kept. Default: DIR/shadows.
        other_shapes: The paper's GRUs of 64 to 352 units, for a model of unknown shape. Default:
            the shape of MODEL where it is ours, else the task's preset.
        architecture: Shadow architecture. Default: that of MODEL where it is ours, else the
            preset's.
        hidden_size: Width of a layer.
        embedding_size: Numbers in a word's vector.
        epochs: Passes over the data, about as many as MODEL has had. Default: what
            `vestige train` recorded of MODEL, else the preset's.
        batch_size: Texts read together.
        sequence_length: Tokens of a text at a time.
        learning_rate: Before the schedule.
        optimizer: `adam` or `sgd`.
        momentum: With `sgd`, the share of a step to keep.
        processes: Train so many at a time here.
        cluster: Train on the Ray cluster whose head is there, HOST:PORT or `auto`.
    """

    shadows: Annotated[int, Ge(0)] = 10
    shadow_dir: Directory | None = None
    other_shapes: bool = False
    architecture: Literal["lstm", "gru"] | None = None
    hidden_size: Annotated[int | None, Ge(1)] = None
    embedding_size: Annotated[int | None, Ge(1)] = None
    epochs: Annotated[int | None, Ge(1)] = None
    batch_size: Annotated[int | None, Ge(1)] = None
    sequence_length: Annotated[int | None, Ge(1)] = None
    learning_rate: float | None = None
    optimizer: Literal["adam", "sgd"] | None = None
    momentum: float | None = None
    processes: Annotated[int, Ge(1), Le(1024)] = 1
    cluster: Annotated[str | None, Metavar("ADDRESS")] = None

    def __post_init__(self) -> None:
        if self.shadows == 1:
            raise ValueError(
                "`shadows` must be 0, 2 or more, got 1: half of the reference users would have "
                "no model that has not seen them"
            )
        shaped = ("architecture", *SIZES)
        given = [name for name in shaped if getattr(self, name) is not None]
        if self.other_shapes and given:
            raise ValueError(
                f"`{given[0]}` must be left out with `other_shapes`, which has its own"
            )
        if self.cluster is not None and self.processes > 1:
            raise ValueError(
                f"`processes` must be left out with `cluster`, got {self.processes}: there every "
                "core trains one"
            )

    def set_of(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Those of the named settings that were set."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


SIZES = ("hidden_size", "embedding_size")
"""Settings of a shadow's network."""

TRAINING = ("epochs", "batch_size", "sequence_length", "learning_rate", "optimizer", "momentum")
"""Settings of a shadow's training."""


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """How texts are read, and whose they are."""

    format: str
    text: str
    user: str | None
    source: str | None
    limit: int | None
    person: str | None
    artificial: int | None
    seed: int
