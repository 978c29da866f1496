"""OpenAI's protocol: requests for questions, and validated replies.

Completions and chat, https://platform.openai.com/docs/api-reference. Servers differ: the same
log-probabilities come as parallel lists (`tokens`, `token_logprobs`, `top_logprobs`) or as a list
of objects (`content`), choices and most probable tokens in any order, and with the sampled token as
one too many. All of these are accepted; anything else is refused.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from vestige.data.files import Count, Excerpt, Measurements
from vestige.models.remote.retry import BadReply

Kind = Literal["completion", "chat"]

INSTRUCTION = (
    "Continue the user's text. Answer with the words that come next and with nothing else."
)
"""System message: without it a chat model answers the text."""
HIDDEN = -9999.0
"""OpenAI's mark for a hidden log-probability."""
TOKEN_CHARACTERS = 3
"""Characters of a token; a low estimate, so that a plan names enough tokens."""
TOLERANCE = 0.25
"""Largest difference of log-probabilities of one model; half precision explains 0.02."""


@dataclass(frozen=True)
class ShownToken:
    """What a server shows of one token.

    Attributes:
        text: of the token, as the server's tokenizer splits it.
        log_prob: natural, given the text before it; NaN if hidden.
        likeliest: most probable tokens at its position with their log-probabilities, in order.
    """

    text: str
    log_prob: float
    likeliest: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Question:
    """One question to a server; its fields are the key of a cached answer.

    Attributes:
        shown: most probable tokens wanted at each position; 0: none.
        length: tokens to generate, `greedy` or sampled.
        echo: show the tokens of the prompt as well.
    """

    prompt: str
    kind: Kind = "completion"
    shown: int = 0
    length: int = 1
    greedy: bool = False
    echo: bool = False

    @property
    def tokens(self) -> int:
        """Estimated cost in tokens, for servers that do not report it."""
        return len(self._prompt_sent) // TOKEN_CHARACTERS + 1 + self.length

    @property
    def most_tokens(self) -> int:
        """Upper bound of its cost: every token has at least one byte."""
        return len(self._prompt_sent.encode(errors="replace")) + 8 + self.length

    @property
    def _prompt_sent(self) -> str:
        return self.prompt if self.kind == "completion" else INSTRUCTION + self.prompt


@dataclass(frozen=True)
class Reply:
    """Reply to one question: the generated text, and its tokens if they were wanted."""

    text: str
    tokens: tuple[ShownToken, ...] = ()

    @property
    def likeliest(self) -> tuple[tuple[str, float], ...]:
        """Most probable tokens at the last position."""
        return self.tokens[-1].likeliest if self.tokens else ()

    def alike(self, other: "Reply") -> bool:
        """Whether two replies to one question can come from one model, up to rounding."""
        if not self.tokens or not other.tokens:
            return self.text == other.text
        old, new = dict(self.likeliest), dict(other.likeliest)
        if not old or not new:
            return old == new
        lowest = max(min(old.values()), min(new.values()))
        # A token missing from one list may be just below its last one.
        return all(
            abs(old.get(token, lowest) - new.get(token, lowest)) <= TOLERANCE
            for token in {*old, *new}
        )


def request_body(questions: Sequence[Question], model: str) -> dict[str, Any]:
    """Request for questions that differ only in their prompts."""
    first = questions[0]
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": first.length,
        "temperature": 0 if first.greedy else 1,
    }
    if first.kind == "chat":
        if first.shown:
            body |= {"logprobs": True, "top_logprobs": first.shown}
        system = {"role": "system", "content": INSTRUCTION}
        return body | {"messages": [system, {"role": "user", "content": first.prompt}]}
    if first.shown:
        body["logprobs"] = first.shown
    if first.echo:
        body["echo"] = True
    prompts = [question.prompt for question in questions]
    return body | {"prompt": prompts if len(prompts) > 1 else prompts[0]}


class _Candidate(Measurements):
    token: str
    logprob: float


class _Position(_Candidate):
    top_logprobs: list[_Candidate] | None = None


class _LogProbs(Measurements):
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None
    content: list[_Position] | None = None


class _Message(Excerpt):
    content: str | None = None


class _Choice(Excerpt):
    index: int = 0
    text: str | None = None
    message: _Message | None = None
    logprobs: _LogProbs | None = None


class _Usage(Excerpt):
    prompt_tokens: Count = 0
    total_tokens: Count = 0


class _Body(Excerpt):
    choices: list[_Choice]
    model: str = ""
    usage: _Usage | None = None


def read_answer(
    content: bytes, questions: Sequence[Question]
) -> tuple[list[Reply], int | None, str]:
    """The replies in a server's answer, one per question, its token count and its model.

    Raises:
        BadReply: it is not JSON, or a choice or wanted log-probabilities are missing.
    """
    try:
        body = _Body.model_validate(json.loads(content))
    except (ValueError, RecursionError) as error:
        kind = "of another shape" if isinstance(error, ValidationError) else "not JSON"
        raise BadReply(f"the answer is {kind}") from None
    choices = sorted(body.choices, key=lambda choice: choice.index)
    if [choice.index for choice in choices] != list(range(len(questions))):
        raise BadReply(f"the answer has {len(choices)} choices for {len(questions)} questions")
    replies = list(map(_reply, choices, questions))
    usage = body.usage
    tokens = None if usage is None else usage.total_tokens or usage.prompt_tokens
    return replies, tokens, body.model


def _reply(choice: _Choice, question: Question) -> Reply:
    text = choice.text if question.kind == "completion" else (choice.message or _Message()).content
    if text is None:
        raise BadReply("a choice has no text")
    if not question.shown:
        return Reply(text)
    tokens = tuple(
        _token(*position, question.shown) for position in _positions(choice.logprobs or _LogProbs())
    )
    if not any(token.likeliest for token in tokens):
        raise BadReply("a choice has no log-probabilities")
    return Reply(text, tokens)


def _positions(log_probs: _LogProbs) -> list[tuple[str, float | None, list[tuple[str, float]]]]:
    """For each position: its token, log-probability and most probable tokens."""
    if log_probs.content is not None:
        return [
            (
                entry.token,
                entry.logprob,
                [(top.token, top.logprob) for top in entry.top_logprobs or ()],
            )
            for entry in log_probs.content
        ]
    names = log_probs.tokens or []
    token_log_probs = log_probs.token_logprobs or [None] * len(names)
    tops = [list((top or {}).items()) for top in log_probs.top_logprobs or [None] * len(names)]
    if not len(names) == len(token_log_probs) == len(tops):
        raise BadReply("the lists of tokens and of log-probabilities differ in length")
    return list(zip(names, token_log_probs, tops, strict=True))


def _token(
    text: str, log_prob: float | None, top: list[tuple[str, float]], most: int
) -> ShownToken:
    for value in (log_prob or 0.0, *(value for _, value in top)):
        if math.isnan(value):
            raise BadReply("a log-probability is not a number")
        if value > 1e-3:
            raise BadReply("a log-probability is above 0")
    shown = [(token, value) for token, value in top if value > HIDDEN]
    return shown_token(text, log_prob, sorted(shown, key=lambda pair: (-pair[1], pair[0]))[:most])


def shown_token(text: str, log_prob: float | None, top: Sequence[Any]) -> ShownToken:
    is_shown = log_prob is not None and HIDDEN < log_prob <= 1e-3
    likeliest = tuple((token, float(value)) for token, value in top)
    return ShownToken(text, float(log_prob or 0) if is_shown else math.nan, likeliest)
