"""What a server can do, found out by asking it, and what an audit loses by what it cannot.

A few calls about an English sentence that is drawn anew for each endpoint, so that a server cannot
recognise it: none of it is the asker's text.
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from vestige.data.vocabulary import Vocabulary
from vestige.errors import ModelError
from vestige.models.endpoint import Endpoint, alike
from vestige.models.endpoint_client import Refused, describe
from vestige.models.endpoint_wire import Kind, Question, Reply

Echo = Literal["no", "right", "shifted"]

_WHO = ("committee", "board", "council", "family", "team", "crew", "jury", "club", "panel")
_MET = ("met", "gathered", "argued", "voted", "waited", "dined", "travelled", "worked")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_AGREED = ("agreed", "decided", "announced", "explained", "feared", "hoped", "insisted")
_WHAT = ("report", "bridge", "plan", "garden", "price", "letter", "house", "train", "school")
_MUST = ("should", "must", "could", "will", "might", "cannot")
SHOWN = (20, 10, 5, 1)
"""Likeliest tokens that are asked for until a server agrees; OpenAI's completions show 5."""
CALLS = 12
"""Calls that a probe takes at most, refused ones counted and failed ones not."""


@dataclass(frozen=True, kw_only=True)
class EndpointAccess:
    """What a server can do.

    Attributes:
        kind: the interface that shows log-probabilities; completions where both do.
        shown: how many of the likeliest tokens it shows.
        empty: answers to an empty prompt, with what a text may begin with.
        echo: shows the log-probabilities of the prompt's own tokens; "shifted" where it shows
            beside each token what comes after it, as llama-cpp-python does.
        together: takes several prompts in one call.
        same_tokens: share of its tokens that are tokens of ours; None where none were compared.
        model: what it calls itself.
    """

    kind: Kind
    shown: int
    empty: bool
    echo: Echo
    together: bool
    same_tokens: float | None = None
    model: str = ""

    def summary(self) -> dict[str, Any]:
        """The row of a table."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """What it can do and what an audit loses, a sentence each."""
        chat = self.kind == "chat"
        said = [
            f"The server's model is {self.model!r}. It returns the {self.shown} most probable "
            f"tokens by {('chat' if chat else 'completions')}."
        ]
        if chat:
            said.append(
                "It has chat only: Vestige sends a text as the user's turn and asks the model to "
                "continue it. This changes the probabilities; expect weaker results than with "
                "completions."
            )
        if self.shown < 20:
            said.append(
                f"Words that are not among the {self.shown} most probable have no probability. "
                "These rare words would show most about membership."
            )
        if self.echo == "right":
            said.append(
                "It returns the log-probability of every token of a prompt: one call per text."
            )
        elif self.echo == "shifted":
            said.append(
                "It returns the most probable tokens at each position of a prompt: one call per "
                "text, but only those tokens have a log-probability."
            )
        else:
            said.append(
                "It does not return log-probabilities of prompt tokens: one call per token, and "
                "only the most probable have a log-probability."
            )
        if not self.empty:
            said.append("It rejects an empty prompt: the first word of a text has no probability.")
        if self.same_tokens is not None and self.same_tokens < 1:
            said.append(
                f"{self.same_tokens:.0%} of its tokens are tokens of the given tokenizer. Where "
                "texts are split differently, values are added over tokens or are missing."
            )
        return said


def probe(endpoint: Endpoint, vocabulary: Vocabulary | None = None) -> EndpointAccess:
    """Find out what a server can do; what was found out before is not asked again.

    Args:
        endpoint: which; its control question is set here.
        vocabulary: ours, to compare its tokens with.

    Raises:
        ModelError: it shows no log-probabilities at all, or gives no answer.
    """
    kept = endpoint.store.about("access")
    if kept is not None:
        found = EndpointAccess(**json.loads(kept))
    else:
        found = _probed(endpoint)
        endpoint.store.note("access", json.dumps(asdict(found)))
    if vocabulary is None:
        return found
    shown = endpoint.store.about("controlled")
    tokens = _tokens(Reply.from_json(shown)) if shown else []
    return replace(found, same_tokens=_shared(tokens, vocabulary))


def drawn_sentence() -> str:
    """The beginning of an English sentence, one of a million, from the system's entropy."""
    who, met, day, agreed, what, must = map(
        secrets.choice, (_WHO, _MET, _DAYS, _AGREED, _WHAT, _MUST)
    )
    later = secrets.choice(_DAYS)
    return f"The {who} {met} on {day} and {agreed} by {later} that the {what} {must} be"


def _probed(endpoint: Endpoint) -> EndpointAccess:
    question, reply = _most_shown(endpoint, drawn_sentence())
    endpoint.control(question, reply)
    plain = question.kind == "completion"
    return EndpointAccess(
        kind=question.kind,
        shown=question.shown,
        empty=plain and _tried(endpoint, replace(question, prompt="")) is not None,
        echo=_echo(endpoint, question, reply) if plain else "no",
        together=plain and _takes_several(endpoint, question, reply),
        model=endpoint.store.about("model") or endpoint.address.model,
    )


def _most_shown(endpoint: Endpoint, sentence: str) -> tuple[Question, Reply]:
    """The question that shows most, completions first."""
    kinds: tuple[Kind, ...] = ("completion", "chat")
    for kind in kinds:
        for shown in SHOWN:
            question = Question(sentence, kind=kind, shown=shown)
            found = _tried(endpoint, question)
            if found is not None:
                # One more than it allows may be the token that it drew: a bound is round.
                there = len(found[0].tokens[-1].likeliest)
                most = next(number for number in (*SHOWN[:-1], 4, 3, 2, 1) if number <= there)
                return replace(question, shown=most), _cut(found[0], most)
    raise ModelError(
        f"{endpoint.address} returns no log-probabilities, by completions or by chat: "
        f"{describe(endpoint.last_error)}",
        remedy="Check address and model, ask its owner for `logprobs`, or audit the model's files.",
    )


def _cut(reply: Reply, most: int) -> Reply:
    last = replace(reply.tokens[-1], likeliest=reply.tokens[-1].likeliest[:most])
    return replace(reply, tokens=(*reply.tokens[:-1], last))


def _tried(endpoint: Endpoint, *questions: Question) -> tuple[Reply, ...] | None:
    """The replies; None where the server does not take such questions.

    One that ignores what it does not know answers without what was wanted, every time; one that
    falls over it, by status 500.
    """
    try:
        return endpoint.attempt(*questions)
    except Refused:
        return None
    except ModelError:
        if endpoint.unfit:
            return None
        raise


def _echo(endpoint: Endpoint, question: Question, reply: Reply) -> Echo:
    """How the prompt's own tokens are shown: the place behind the prompt is known without echo."""
    found = _tried(endpoint, replace(question, echo=True))
    shown = () if found is None else found[0].tokens
    text, own = "", 0
    for token in shown:
        if len(text.lstrip()) >= len(question.prompt):
            break
        text, own = text + token.text, own + 1
    if own < 2 or text.lstrip() != question.prompt:
        return "no"
    if own < len(shown) and alike(reply, Reply(text, shown[: own + 1])):
        return "right"
    return "shifted" if own == len(shown) and alike(reply, Reply(text, shown)) else "no"


def _takes_several(endpoint: Endpoint, question: Question, reply: Reply) -> bool:
    """Whether a call of two prompts gives to each what it has alone."""
    other = question.prompt
    while other == question.prompt:
        other = drawn_sentence()
    found = _tried(endpoint, replace(question, prompt=other), question)
    return found is not None and alike(found[1], reply) and not alike(found[0], reply)


def _tokens(reply: Reply) -> list[str]:
    return [text for text, _ in reply.tokens[-1].likeliest] if reply.tokens else []


def _shared(tokens: Sequence[str], vocabulary: Vocabulary) -> float | None:
    """Share of a server's tokens that are one token of ours."""
    if not tokens:
        return None
    ours = {vocabulary.piece(token) for token in range(len(vocabulary))}
    return sum(token in ours for token in tokens) / len(tokens)
