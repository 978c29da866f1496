"""Questions to a server that speaks OpenAI's protocol, and its answers, checked.

Completions and chat, https://platform.openai.com/docs/api-reference. Servers differ: the same
log-probabilities come as parallel lists (`tokens`, `token_logprobs`, `top_logprobs`) or as a list
of objects (`content`), choices in any order, the likeliest tokens in any order, and with the
sampled token as one too many. What is read here is the same for all of them, or refused.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from vestige.data.files import Count, Excerpt, Measurements
from vestige.models.token_scores import ShownToken

Kind = Literal["completion", "chat"]

INSTRUCTION = (
    "Continue the user's text. Answer with the words that come next and with nothing else."
)
"""What a chat model is told, since it would answer the text instead."""
UNSAID = -9999.0
"""Log-probability by which OpenAI says that it does not say one."""


class BadReply(Exception):
    """An answer that is none: it is asked for again. The message quotes nothing of it."""


@dataclass(frozen=True)
class Question:
    """What a server is asked.

    Attributes:
        prompt: the text that it goes on with.
        kind: by which of the two interfaces.
        shown: likeliest tokens wanted for each place; 0: none.
        length: tokens to write.
        greedy: write the likeliest tokens; else one is drawn, and what is shown does not depend
            on it.
        echo: show the prompt's tokens, too.
    """

    prompt: str
    kind: Kind = "completion"
    shown: int = 0
    length: int = 1
    greedy: bool = False
    echo: bool = False

    @property
    def key(self) -> str:
        """Its name in a store."""
        return json.dumps(vars(self), sort_keys=True)


@dataclass(frozen=True)
class Reply:
    """Answer to one question: the text that was written, and the tokens where they were wanted."""

    text: str
    tokens: tuple[ShownToken, ...] = ()

    def to_json(self) -> str:
        """The reply as a store keeps it."""
        tokens = [[one.text, _plain(one.log_prob), one.likeliest] for one in self.tokens]
        return json.dumps([self.text, tokens])

    @classmethod
    def from_json(cls, kept: str) -> "Reply":
        """The reply that a store kept."""
        text, tokens = json.loads(kept)
        return cls(text, tuple(_shown(one, log_prob, top) for one, log_prob, top in tokens))


@dataclass(frozen=True)
class Answer:
    """Answer to one call: a reply to each of its questions.

    Attributes:
        model: which model the server says it was.
        tokens: what it counted; None where it does not say.
    """

    replies: tuple[Reply, ...]
    model: str
    tokens: int | None


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
        told = {"role": "system", "content": INSTRUCTION}
        return body | {"messages": [told, {"role": "user", "content": first.prompt}]}
    if first.shown:
        body["logprobs"] = first.shown
    if first.echo:
        body["echo"] = True
    prompts = [question.prompt for question in questions]
    return body | {"prompt": prompts if len(prompts) > 1 else prompts[0]}


def read_answer(content: bytes, questions: Sequence[Question]) -> Answer:
    """The replies in a server's answer, one for each question.

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
    replies = tuple(_reply(*pair) for pair in zip(choices, questions, strict=True))
    usage = body.usage
    told = None if usage is None else usage.total_tokens or usage.prompt_tokens
    return Answer(replies, body.model, told)


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


def _reply(choice: _Choice, question: Question) -> Reply:
    text = choice.text if question.kind == "completion" else (choice.message or _Message()).content
    if text is None:
        raise BadReply("a choice has no text")
    if not question.shown:
        return Reply(text)
    tokens = _tokens(choice.logprobs or _LogProbs(), question.shown)
    if not any(token.likeliest for token in tokens):
        raise BadReply("a choice has no log-probabilities")
    return Reply(text, tokens)


def _tokens(said: _LogProbs, most: int) -> tuple[ShownToken, ...]:
    if said.content is not None:
        return tuple(
            _token(
                place.token,
                place.logprob,
                [(one.token, one.logprob) for one in place.top_logprobs or ()],
                most,
            )
            for place in said.content
        )
    names = said.tokens or []
    log_probs = said.token_logprobs or [None] * len(names)
    tops = said.top_logprobs or [None] * len(names)
    if not len(names) == len(log_probs) == len(tops):
        raise BadReply("the lists of tokens and of log-probabilities differ in length")
    return tuple(
        _token(name, log_prob, list((top or {}).items()), most)
        for name, log_prob, top in zip(names, log_probs, tops, strict=True)
    )


def _token(
    text: str, log_prob: float | None, top: list[tuple[str, float]], most: int
) -> ShownToken:
    own = [] if log_prob is None else [log_prob]
    for value in (*own, *(value for _, value in top)):
        if math.isnan(value):
            raise BadReply("a log-probability is not a number")
        if value > 1e-3:
            raise BadReply("a log-probability is above 0")
    said = [(token, value) for token, value in top if value > UNSAID]
    return _shown(text, log_prob, sorted(said, key=lambda one: (-one[1], one[0]))[:most])


def _shown(text: str, log_prob: float | None, top: Sequence[Any]) -> ShownToken:
    known = log_prob is not None and UNSAID < log_prob <= 1e-3
    return ShownToken(
        text, float(log_prob or 0) if known else math.nan, tuple((t, float(v)) for t, v in top)
    )


def _plain(number: float) -> float | None:
    return None if math.isnan(number) else number
