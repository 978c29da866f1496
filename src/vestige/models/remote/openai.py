"""OpenAI's protocol: questions, and answers as checked replies.

Completions and chat, https://platform.openai.com/docs/api-reference. Servers differ: the same
log-probabilities come as parallel lists (`tokens`, `token_logprobs`, `top_logprobs`) or as a list
of objects (`content`), choices and likeliest tokens in any order, and with the sampled token as one
too many. All are read alike, or refused.
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
"""For a chat model, which would answer the text instead."""
UNSAID = -9999.0
"""Log-probability with which OpenAI marks a hidden one."""
CHARACTERS = 3
"""Characters of a token, few, so that a plan rather names too many tokens."""
TOLERANCE = 0.25
"""Difference of a log-probability that rounding does not explain: half precision moves 0.02."""


@dataclass(frozen=True)
class ShownToken:
    """What a server shows of one token.

    Attributes:
        text: of the token, as the server's tokenizer splits it.
        log_prob: natural, given the text before it; NaN where it is hidden.
        likeliest: most probable tokens at its position with their log-probabilities, in order.
    """

    text: str
    log_prob: float
    likeliest: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Question:
    """One question to a server.

    Attributes:
        shown: most probable tokens wanted at each position; 0: none.
        length: tokens to generate, `greedy` or sampled.
        echo: show the prompt's tokens, too.
    """

    prompt: str
    kind: Kind = "completion"
    shown: int = 0
    length: int = 1
    greedy: bool = False
    echo: bool = False

    @property
    def tokens(self) -> int:
        """About as many tokens as it costs, where the server does not say."""
        return len(self._sent) // CHARACTERS + 1 + self.length

    @property
    def most_tokens(self) -> int:
        """Tokens that it can cost: no tokenizer has tokens without a byte."""
        return len(self._sent.encode(errors="replace")) + 8 + self.length

    @property
    def _sent(self) -> str:
        return self.prompt if self.kind == "completion" else INSTRUCTION + self.prompt


@dataclass(frozen=True)
class Reply:
    """Reply to one question: the generated text, and tokens if they were wanted."""

    text: str
    tokens: tuple[ShownToken, ...] = ()

    @property
    def likeliest(self) -> tuple[tuple[str, float], ...]:
        """Most probable tokens at the last position."""
        return self.tokens[-1].likeliest if self.tokens else ()

    def alike(self, other: "Reply") -> bool:
        """Whether two replies to one question are of one model, rounding aside."""
        if not self.tokens or not other.tokens:
            return self.text == other.text
        old, new = dict(self.likeliest), dict(other.likeliest)
        if not old or not new:
            return old == new
        lowest = max(min(old.values()), min(new.values()))
        # A token that one list lacks may be just below its end.
        return all(
            abs(old.get(token, lowest) - new.get(token, lowest)) <= TOLERANCE
            for token in {*old, *new}
        )


def body_of(questions: Sequence[Question], model: str) -> dict[str, Any]:
    """Arguments of the client's call for questions that differ in their prompts only."""
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


class _Place(_Candidate):
    top_logprobs: list[_Candidate] | None = None


class _LogProbs(Measurements):
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None
    content: list[_Place] | None = None


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
    """The replies in a server's answer, one for each question, its tokens and its model.

    Raises:
        BadReply: it is no JSON, lacks or repeats a choice, or lacks log-probabilities that were
            wanted.
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
        _token(*place, question.shown) for place in _places(choice.logprobs or _LogProbs())
    )
    if not any(token.likeliest for token in tokens):
        raise BadReply("a choice has no log-probabilities")
    return Reply(text, tokens)


def _places(found: _LogProbs) -> list[tuple[str, float | None, list[tuple[str, float]]]]:
    """The token of each position, its log-probability and the most probable ones."""
    if found.content is not None:
        return [
            (one.token, one.logprob, [(top.token, top.logprob) for top in one.top_logprobs or ()])
            for one in found.content
        ]
    names = found.tokens or []
    log_probs = found.token_logprobs or [None] * len(names)
    tops = [list((top or {}).items()) for top in found.top_logprobs or [None] * len(names)]
    if not len(names) == len(log_probs) == len(tops):
        raise BadReply("the lists of tokens and of log-probabilities differ in length")
    return list(zip(names, log_probs, tops, strict=True))


def _token(
    text: str, log_prob: float | None, top: list[tuple[str, float]], most: int
) -> ShownToken:
    for value in (log_prob or 0.0, *(value for _, value in top)):
        if math.isnan(value):
            raise BadReply("a log-probability is not a number")
        if value > 1e-3:
            raise BadReply("a log-probability is above 0")
    shown = [(token, value) for token, value in top if value > UNSAID]
    return shown_token(text, log_prob, sorted(shown, key=lambda one: (-one[1], one[0]))[:most])


def shown_token(text: str, log_prob: float | None, top: Sequence[Any]) -> ShownToken:
    known = log_prob is not None and UNSAID < log_prob <= 1e-3
    likeliest = tuple((token, float(value)) for token, value in top)
    return ShownToken(text, float(log_prob or 0) if known else math.nan, likeliest)
