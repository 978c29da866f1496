"""Where a search begins: at a document's beginning, after prompts, in turns of a chat template."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.audits.update.pair import Pair, Tokens
from vestige.errors import DataError
from vestige.models.prefix import template_of
from vestige.monitor import Monitor
from vestige.session import Session

if TYPE_CHECKING:
    from vestige.arguments import Lines
    from vestige.audits.update.diff import Chat


TABLES = {".jsonl", ".json", ".csv", ".tsv", ".parquet"}
"""Files of prompts that are read as records, so that a prompt may have several lines."""

BEGINNING, TEMPLATE, USER = "the beginning of a document", "chat template", "user's turn"
MOST = 64  # prompts; samples are divided among them


@dataclass(frozen=True)
class Reply:
    """Tokens that end a user's turn, and those that are read in place of such an end, up to the
    assistant's text."""

    ends: Tokens
    between: Tokens


@dataclass(frozen=True)
class Prompt:
    """Tokens that are read before a search begins.

    Attributes:
        name: shown to the user; prompts are numbered, their text stays private.
        tokens: at least one.
        reply: after a user's turn, how the samples continue with an answer.
    """

    name: str
    tokens: Tokens
    reply: Reply | None = None

    @property
    def shown_tokens(self) -> Tokens:
        """The tokens, except at a document's beginning."""
        return () if self.name == BEGINNING else self.tokens


def beginning(pair: Pair) -> Prompt:
    """The beginning of a document."""
    return Prompt(BEGINNING, (pair.beginning,))


def read_prompts(
    run: Session, prompt: str | Sequence[str], prompts: "Lines | None"
) -> tuple[str, ...]:
    """Prompts that are given, and those of a file: one per line, or one per record of a table."""
    given = (prompt,) if isinstance(prompt, str) else tuple(prompt)
    if not isinstance(prompts, str | PathLike):
        return (*given, *(prompts or ()))
    file = Path(prompts)
    if file.suffix.lower() in TABLES or file.is_dir():
        return (*given, *run.corpus("prompts", file))
    return (*given, *(line for line in run.lines(file, one="prompt") if line.strip()))


def find_prompts(
    pair: Pair, texts: Sequence[str], *, chat: "Chat", room: int, monitor: Monitor
) -> list[Prompt]:
    """A document's beginning, the turns of the chat template, and the given prompts.

    With a chat template, each prompt is a user's message and the search begins in the assistant's
    turn. It also begins after an empty message, and in the user's turn, where the model writes a
    question and answers it. After each prompt both models must be able to read `room` tokens.
    """
    if len(texts) >= MOST:
        raise ValueError(f"`prompt` must be given less than {MOST} times, got {len(texts)}")
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise ValueError(f"`prompt` must hold a text, got an empty one as number {number}")
    named = {f"prompt {number}": text for number, text in enumerate(texts, 1)}
    models: Any = (pair.after.model, pair.before.model)
    template = next((own for one in models if (own := template_of(one)) is not None), None)
    if template is None and chat == "on":
        raise ValueError("`chat` must be auto or off if the tokenizer has no chat template, got on")
    turn: Prompt | None = None
    if template is not None and chat != "off":
        try:
            named, turn = _in_template(pair.vocabulary, *template, named)
        except DataError as error:
            if chat == "on":
                raise
            monitor.log(f"The search does not use the chat template: {error.problem}")
    limit, found = pair.longest, dict[Tokens, Prompt]()
    found[(pair.beginning,)] = beginning(pair)
    if turn is not None and turn.reply is not None:
        between = len(turn.tokens) + len(turn.reply.between)
        if limit is None or between + 2 * room <= limit:
            found.setdefault(turn.tokens, turn)
    for name, text in named.items():
        tokens = tuple(pair.vocabulary.encode(text))
        if limit is not None and len(tokens) + room > limit:
            raise ValueError(
                f"`prompt` must leave room for {room} tokens of the {limit} that the models read, "
                f"got {name} with {len(tokens)}"
            )
        if tokens:
            found.setdefault(tokens, Prompt(name, tokens))
    return list(found.values())


def _in_template(
    vocabulary: Any, template: str, special: dict[str, str], texts: dict[str, str]
) -> tuple[dict[str, str], Prompt | None]:
    """Prompts as users' messages, and an empty one; and the user's turn.

    The user's turn ends at the end of a document, or at the template's mark if that is one token.
    """
    from vestige.data.chat_template import assistant_turn, users_turn

    messages = {TEMPLATE: "", **{f"{name} in the {TEMPLATE}": text for name, text in texts.items()}}
    rendered = {
        name: assistant_turn(template, special, message=text) for name, text in messages.items()
    }
    around = users_turn(template, special)
    if around is None:
        return rendered, None
    start, between = (tuple(vocabulary.encode(text)) for text in around)
    mark = {between[0]} & vocabulary.tokenizer.added_tokens_decoder.keys()
    return rendered, Prompt(USER, start, Reply(tuple(sorted({vocabulary.eos_id} | mark)), between))
