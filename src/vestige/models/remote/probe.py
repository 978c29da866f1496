"""What a server can do, tested with a few calls, and what an audit loses by its limits.

The calls are about an English sentence that is sampled for each endpoint, so that a server cannot
recognise it. They contain no text of the user.
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from vestige.errors import ModelError
from vestige.models.remote.openai import Kind, Question, Reply
from vestige.models.remote.options import EndpointAddress, RemoteOptions
from vestige.models.remote.retry import BadReply, Refused
from vestige.models.remote.server import Endpoint
from vestige.monitor import Monitor

Echo = Literal["no", "right", "shifted"]

SHOWN_LIMITS = (20, 10, 5, 1)
"""Numbers of most probable tokens to request, in order; OpenAI's completions show 5."""
MOST_CALLS = 12
"""Most calls of a probe, with refused ones and without failed ones."""
PROMPTS = 16
"""Prompts in one call, if the server accepts several."""
_WHO = ("committee", "board", "council", "family", "team", "crew", "jury", "club", "panel")
_MET = ("met", "gathered", "argued", "voted", "waited", "dined", "travelled", "worked")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_AGREED = ("agreed", "decided", "announced", "explained", "feared", "hoped", "insisted")
_WHAT = ("report", "bridge", "plan", "garden", "price", "letter", "house", "train", "school")
_MUST = ("should", "must", "could", "will", "might", "cannot")


@dataclass(frozen=True, kw_only=True)
class EndpointAccess:
    """What a server can do; the fields are stored and reported.

    Attributes:
        kind: the interface that shows log-probabilities; completions if both do.
        shown: how many of the most probable tokens it shows.
        empty: whether it answers an empty prompt, with the first tokens of a text.
        echo: whether it shows the log-probabilities of the prompt's tokens; "shifted" if it shows
            with each token what follows it, as llama-cpp-python does.
        together: whether it accepts several prompts in one call.
    """

    kind: Kind
    shown: int
    empty: bool
    echo: Echo
    together: bool
    model: str = ""

    def sentences(self) -> list[str]:
        """Its abilities and what an audit loses, one sentence each."""
        chat = self.kind == "chat"
        lines = [
            f"The server's model is {self.model!r}. It returns the {self.shown} most probable "
            f"tokens by {('chat' if chat else 'completions')}."
        ]
        if chat:
            lines.append(
                "It has chat only: Vestige sends a text as the user's turn and asks the model to "
                "continue it. This changes the probabilities; expect weaker results than with "
                "completions."
            )
        if self.shown < 20:
            lines.append(
                f"Words that are not among the {self.shown} most probable have no probability. "
                "These rare words would show most about membership."
            )
        lines.append(_ECHO_SENTENCES[self.echo])
        if not self.empty:
            lines.append("It rejects an empty prompt: the first word of a text has no probability.")
        return lines


_ECHO_SENTENCES: dict[Echo, str] = {
    "right": "It returns the log-probability of every token of a prompt: one call per text.",
    "shifted": "It returns the most probable tokens at each position of a prompt: one call per "
    "text, but only those tokens have a log-probability.",
    "no": "It does not return log-probabilities of prompt tokens: it can be queried for words "
    "(membership --unit user), not for whole texts.",
}


@contextmanager
def open_endpoint(
    address: EndpointAddress, path: Path, options: RemoteOptions, monitor: Monitor
) -> Iterator[tuple[Endpoint, EndpointAccess]]:
    """A probed server and its access. Call `confirm` so that its answers count."""
    with Endpoint(address, path, options, monitor=monitor) as endpoint:
        is_new = "access" not in endpoint.about
        access = probe(endpoint)
        if is_new:
            for sentence in access.sentences():
                monitor.log(sentence)
        endpoint.together = PROMPTS if access.together else 1
        yield endpoint, access


def probe(endpoint: Endpoint) -> EndpointAccess:
    """Find out once what a server can do, and set its control question.

    Raises:
        ModelError: it shows no log-probabilities, or does not answer.
    """
    stored = endpoint.about.get("access")
    if stored is not None:
        row, names = json.loads(stored), {field.name for field in fields(EndpointAccess)}
        return EndpointAccess(**{name: row[name] for name in names & set(row)})
    question, reply = _most_shown(endpoint, random_sentence())
    endpoint.set_control(question, reply)
    completes = question.kind == "completion"
    access = EndpointAccess(
        kind=question.kind,
        shown=question.shown,
        empty=completes and _attempt(endpoint, replace(question, prompt="")) is not None,
        echo=_echo(endpoint, question, reply) if completes else "no",
        together=completes and _accepts_several(endpoint, question, reply),
        model=endpoint.about.get("model") or endpoint.address.model,
    )
    endpoint.about["access"] = json.dumps(asdict(access))
    return access


def random_sentence() -> str:
    """The beginning of one of a million English sentences, from the system's entropy."""
    who, met, day, agreed, what, must = map(
        secrets.choice, (_WHO, _MET, _DAYS, _AGREED, _WHAT, _MUST)
    )
    later = secrets.choice(_DAYS)
    return f"The {who} {met} on {day} and {agreed} by {later} that the {what} {must} be"


def _most_shown(endpoint: Endpoint, sentence: str) -> tuple[Question, Reply]:
    """The question that shows most tokens, completions first, and its reply."""
    kinds: tuple[Kind, ...] = ("completion", "chat")
    for kind in kinds:
        for shown in SHOWN_LIMITS:
            question = Question(sentence, kind=kind, shown=shown)
            if (replies := _attempt(endpoint, question)) is not None:
                # The list may have the sampled token on top of the limit; limits are round numbers.
                tokens, number = replies[0].tokens, len(replies[0].likeliest)
                allowed = next(
                    limit for limit in (*SHOWN_LIMITS[:-1], 4, 3, 2, 1) if limit <= number
                )
                last = replace(tokens[-1], likeliest=tokens[-1].likeliest[:allowed])
                reply = replace(replies[0], tokens=(*tokens[:-1], last))
                return replace(question, shown=allowed), reply
    raise ModelError(
        f"{endpoint.address} returns no log-probabilities, by completions or by chat: "
        f"{endpoint.last_error}",
        remedy="Check address and model, ask its owner for `logprobs`, or audit the model's files.",
    )


def _attempt(endpoint: Endpoint, *questions: Question) -> tuple[Reply, ...] | None:
    """The replies; None if the server does not accept such questions.

    A server that ignores an option always sends a BadReply. One that crashes on it sends status
    500, which is a BadReply as well.
    """
    try:
        replies: Any = endpoint.attempt(*questions)
        return tuple(replies)
    except Refused:
        return None
    except ModelError:
        if isinstance(endpoint.last_error, BadReply):
            return None
        raise


def _echo(endpoint: Endpoint, question: Question, reply: Reply) -> Echo:
    """How the server shows the prompt's tokens, compared with the reply without echo."""
    replies = _attempt(endpoint, replace(question, echo=True))
    shown = () if replies is None else replies[0].tokens
    text, prompt_tokens = "", 0
    for token in shown:
        if len(text.lstrip()) >= len(question.prompt):
            break
        text, prompt_tokens = text + token.text, prompt_tokens + 1
    if prompt_tokens < 2 or text.lstrip() != question.prompt:
        return "no"
    if prompt_tokens < len(shown) and reply.alike(Reply(text, shown[: prompt_tokens + 1])):
        return "right"
    return "shifted" if prompt_tokens == len(shown) and reply.alike(Reply(text, shown)) else "no"


def _accepts_several(endpoint: Endpoint, question: Question, reply: Reply) -> bool:
    """Whether each prompt in a call of two gets the same reply as alone."""
    other = question.prompt
    while other == question.prompt:
        other = random_sentence()
    replies = _attempt(endpoint, replace(question, prompt=other), question)
    return replies is not None and replies[1].alike(reply) and not replies[0].alike(reply)
