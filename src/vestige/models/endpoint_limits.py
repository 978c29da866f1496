"""Bounds of what an endpoint is asked, and what a question costs."""

from dataclasses import dataclass, field

from vestige import _validate
from vestige.models.endpoint_wire import INSTRUCTION, Question
from vestige.models.service import RetryPolicy

CHARACTERS = 3
"""Characters of a token, few, so that rather too many tokens are told of beforehand."""


@dataclass(frozen=True, kw_only=True)
class EndpointLimits:
    """Bounds of what an endpoint is asked.

    Attributes:
        calls: in all sessions, failed ones counted; None: any number.
        tokens: likewise, as the server counts them, or reckoned where it does not say.
        calls_per_minute: None: as fast as it answers.
        concurrency: calls at a time.
        together: questions in a call, where the server takes several.
        retry: attempts, pauses and time of each call.
    """

    calls: int | None = None
    tokens: int | None = None
    calls_per_minute: float | None = None
    concurrency: int = 4
    together: int = 1
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(timeout=60.0))

    def __post_init__(self) -> None:
        _validate.at_least(1, concurrency=self.concurrency, together=self.together)
        for name in ("calls", "tokens", "calls_per_minute"):
            if (value := getattr(self, name)) is not None:
                _validate.positive(**{name: value})


def reckon(question: Question) -> int:
    """Tokens that a question will about take, where the server does not say."""
    return len(_sent(question)) // CHARACTERS + 1 + question.length


def at_most(question: Question) -> int:
    """Tokens that a question can take: no tokenizer has tokens without a byte."""
    return len(_sent(question).encode(errors="replace")) + 8 + question.length


def _sent(question: Question) -> str:
    return question.prompt if question.kind == "completion" else INSTRUCTION + question.prompt
