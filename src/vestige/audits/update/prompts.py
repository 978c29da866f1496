"""Contexts in which a search begins: a document's beginning, prompts, turns of a chat template."""

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
"""Files of prompts that are read as tables, so that a prompt may have several lines."""

BEGINNING, TEMPLATE, USER = "the beginning of a document", "chat template", "user's turn"
MAX_PROMPTS = 64  # samples are divided among them


@dataclass(frozen=True)
class Reply:
    """How samples continue after a user's turn.

    Attributes:
        ends: tokens that end the user's turn.
        between: tokens read instead of such an end, up to the assistant's text.
    """

    ends: Tokens
    between: Tokens


@dataclass(frozen=True)
class Prompt:
    """Tokens that are read before a search begins.

    Attributes:
        name: shown to the user; prompts have numbers, because their text is private.
        tokens: at least one.
        reply: of a user's turn, how samples continue with an answer.
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
    """The texts of `prompt`, then those of `prompts`: a list, a file of lines, or a table."""
    texts = (prompt,) if isinstance(prompt, str) else tuple(prompt)
    if not isinstance(prompts, str | PathLike):
        return (*texts, *(prompts or ()))
    file = Path(prompts)
    if file.suffix.lower() in TABLES or file.is_dir():
        return (*texts, *run.corpus("prompts", file))
    return (*texts, *(line for line in run.lines(file, item="prompt") if line.strip()))


def find_prompts(
    pair: Pair, texts: Sequence[str], *, chat: "Chat", room: int, monitor: Monitor
) -> list[Prompt]:
    """A document's beginning, the turns of the chat template, and the user's prompts.

    With a chat template, each prompt is a user's message and the search begins in the assistant's
    turn. It also begins after an empty message, and in the user's turn, where the model writes a
    question and answers it.

    Args:
        pair: the models.
        texts: the user's prompts.
        chat: whether the chat template is used.
        room: tokens that both models must be able to read after each prompt.
        monitor: of messages.

    Raises:
        ValueError: a prompt is empty or too long, there are too many, or there is no template.
        DataError: the template fails, and `chat` is "on".
    """
    if len(texts) >= MAX_PROMPTS:
        raise ValueError(f"`prompt` must be given less than {MAX_PROMPTS} times, got {len(texts)}")
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise ValueError(f"`prompt` must hold a text, got an empty one as number {number}")
    by_name = {f"prompt {number}": text for number, text in enumerate(texts, 1)}
    template = template_of(pair.after.model) or template_of(pair.before.model)
    if template is None and chat == "on":
        raise ValueError("`chat` must be auto or off if the tokenizer has no chat template, got on")
    users_turn: Prompt | None = None
    if template is not None and chat != "off":
        try:
            by_name, users_turn = _in_template(pair.vocabulary, *template, by_name)
        except DataError as error:
            if chat == "on":
                raise
            monitor.log(f"The search does not use the chat template: {error.problem}")
    limit = pair.longest
    prompts: dict[Tokens, Prompt] = {(pair.beginning,): beginning(pair)}
    if users_turn is not None and users_turn.reply is not None:
        template_tokens = len(users_turn.tokens) + len(users_turn.reply.between)
        if limit is None or template_tokens + 2 * room <= limit:
            prompts.setdefault(users_turn.tokens, users_turn)
    for name, text in by_name.items():
        tokens = tuple(pair.vocabulary.encode(text))
        if limit is not None and len(tokens) + room > limit:
            raise ValueError(
                f"`prompt` must leave room for {room} tokens of the {limit} that the models read, "
                f"got {name} with {len(tokens)}"
            )
        if tokens:
            prompts.setdefault(tokens, Prompt(name, tokens))
    return list(prompts.values())


def _in_template(
    vocabulary: Any, template: str, special: dict[str, str], texts: dict[str, str]
) -> tuple[dict[str, str], Prompt | None]:
    """An empty user's message and the prompts as messages; and the user's turn.

    The user's turn ends at the end of a document, or at the template's mark if that is one token.
    """
    from vestige.data.chat_template import assistant_turn, users_turn

    messages = {TEMPLATE: "", **{f"{name} in the {TEMPLATE}": text for name, text in texts.items()}}
    rendered = {
        name: assistant_turn(template, special, message=text) for name, text in messages.items()
    }
    turn = users_turn(template, special)
    if turn is None:
        return rendered, None
    start, between = (tuple(vocabulary.encode(text)) for text in turn)
    mark = {between[0]} & vocabulary.tokenizer.added_tokens_decoder.keys()
    return rendered, Prompt(USER, start, Reply(tuple(sorted({vocabulary.eos_id} | mark)), between))
