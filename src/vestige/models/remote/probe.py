"""What a server can do, found out by asking it, and what an audit loses by what it cannot.

A few calls about an English sentence that is sampled for each endpoint, so that a server cannot
recognise it; it is none of the user's text.
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

SHOWN = (20, 10, 5, 1)
"""Most probable tokens that are asked for until a server agrees; OpenAI's completions show 5."""
CALLS = 12
"""Most calls of a probe, refused ones counted and failed ones not."""
PROMPTS = 16
"""Prompts in one call, if the server takes several."""
_WHO = ("committee", "board", "council", "family", "team", "crew", "jury", "club", "panel")
_MET = ("met", "gathered", "argued", "voted", "waited", "dined", "travelled", "worked")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_AGREED = ("agreed", "decided", "announced", "explained", "feared", "hoped", "insisted")
_WHAT = ("report", "bridge", "plan", "garden", "price", "letter", "house", "train", "school")
_MUST = ("should", "must", "could", "will", "might", "cannot")


@dataclass(frozen=True, kw_only=True)
class EndpointAccess:
    """What a server can do.

    Attributes:
        kind: the interface that shows log-probabilities; completions if both do.
        shown: how many of the most probable tokens it shows.
        empty: whether it answers to an empty prompt, with what a text may begin with.
        echo: whether it shows the log-probabilities of the prompt's tokens; "shifted" if it shows
            with each token what comes after it, as llama-cpp-python does.
        together: whether it takes several prompts in one call.
    """

    kind: Kind
    shown: int
    empty: bool
    echo: Echo
    together: bool
    model: str = ""

    def summary(self) -> dict[str, Any]:
        return asdict(self)

    def sentences(self) -> list[str]:
        """What it can do and what an audit loses, a sentence each."""
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
        lines.append(_ECHO[self.echo])
        if not self.empty:
            lines.append("It rejects an empty prompt: the first word of a text has no probability.")
        return lines


_ECHO: dict[Echo, str] = {
    "right": "It returns the log-probability of every token of a prompt: one call per text.",
    "shifted": "It returns the most probable tokens at each position of a prompt: one call per "
    "text, but only those tokens have a log-probability.",
    "no": "It does not return log-probabilities of prompt tokens: it can be asked about words "
    "(membership --unit user), not about whole texts.",
}


@contextmanager
def opened(
    address: EndpointAddress, path: Path, options: RemoteOptions, monitor: Monitor
) -> Iterator[tuple[Endpoint, EndpointAccess]]:
    """A probed server and its access. Call `confirm` before its answers count."""
    with Endpoint(address, path, options, monitor=monitor) as endpoint:
        is_new = "access" not in endpoint.about
        access = probe(endpoint)
        if is_new:
            for sentence in access.sentences():
                monitor.log(sentence)
        endpoint.together = PROMPTS if access.together else 1
        yield endpoint, access


def probe(endpoint: Endpoint) -> EndpointAccess:
    """Find out what a server can do, once, and set its control question.

    Raises:
        ModelError: it shows no log-probabilities, or does not answer.
    """
    stored = endpoint.about.get("access")
    if stored is not None:
        row, names = json.loads(stored), {one.name for one in fields(EndpointAccess)}
        return EndpointAccess(**{name: row[name] for name in names & set(row)})
    question, reply = _most_shown(endpoint, drawn_sentence())
    endpoint.control(question, reply)
    plain = question.kind == "completion"
    access = EndpointAccess(
        kind=question.kind,
        shown=question.shown,
        empty=plain and _tried(endpoint, replace(question, prompt="")) is not None,
        echo=_echo(endpoint, question, reply) if plain else "no",
        together=plain and _takes_several(endpoint, question, reply),
        model=endpoint.about.get("model") or endpoint.address.model,
    )
    endpoint.about["access"] = json.dumps(asdict(access))
    return access


def drawn_sentence() -> str:
    """The beginning of an English sentence, one of a million, from the system's entropy."""
    who, met, day, agreed, what, must = map(
        secrets.choice, (_WHO, _MET, _DAYS, _AGREED, _WHAT, _MUST)
    )
    later = secrets.choice(_DAYS)
    return f"The {who} {met} on {day} and {agreed} by {later} that the {what} {must} be"


def _most_shown(endpoint: Endpoint, sentence: str) -> tuple[Question, Reply]:
    """The question that shows most, completions first."""
    kinds: tuple[Kind, ...] = ("completion", "chat")
    for kind in kinds:
        for shown in SHOWN:
            question = Question(sentence, kind=kind, shown=shown)
            if (found := _tried(endpoint, question)) is not None:
                # One more than it allows may be the sampled token: limits are round numbers.
                tokens, number = found[0].tokens, len(found[0].likeliest)
                most = next(one for one in (*SHOWN[:-1], 4, 3, 2, 1) if one <= number)
                last = replace(tokens[-1], likeliest=tokens[-1].likeliest[:most])
                reply = replace(found[0], tokens=(*tokens[:-1], last))
                return replace(question, shown=most), reply
    raise ModelError(
        f"{endpoint.address} returns no log-probabilities, by completions or by chat: "
        f"{endpoint.last_error}",
        remedy="Check address and model, ask its owner for `logprobs`, or audit the model's files.",
    )


def _tried(endpoint: Endpoint, *questions: Question) -> tuple[Reply, ...] | None:
    """The replies; None if the server does not accept such questions.

    A server that ignores unknown options answers something else, every time; one that crashes on
    them answers with status 500.
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
    """How the prompt's tokens are shown: the position after it is known without echo."""
    found = _tried(endpoint, replace(question, echo=True))
    shown = () if found is None else found[0].tokens
    text, own = "", 0
    for token in shown:
        if len(text.lstrip()) >= len(question.prompt):
            break
        text, own = text + token.text, own + 1
    if own < 2 or text.lstrip() != question.prompt:
        return "no"
    if own < len(shown) and reply.alike(Reply(text, shown[: own + 1])):
        return "right"
    return "shifted" if own == len(shown) and reply.alike(Reply(text, shown)) else "no"


def _takes_several(endpoint: Endpoint, question: Question, reply: Reply) -> bool:
    """Whether a call of two prompts gives each the reply that it has alone."""
    other = question.prompt
    while other == question.prompt:
        other = drawn_sentence()
    found = _tried(endpoint, replace(question, prompt=other), question)
    return found is not None and found[1].alike(reply) and not found[0].alike(reply)
