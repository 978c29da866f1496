"""Where a search begins besides the beginning of a document: after prompts and in chat turns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vestige.attacks.manifests import template_of
from vestige.errors import DataError
from vestige.monitor import Monitor
from vestige.session import Session

if TYPE_CHECKING:
    from vestige.attacks.update.proposals.protocol import Turn
    from vestige.models.protocols import LanguageModel

Chat = Literal["auto", "on", "off"]
Tokens = tuple[int, ...]

TABLES = {".jsonl", ".json", ".csv", ".tsv", ".parquet"}
"""Files of prompts that are read as records, so that a prompt may have several lines."""

TEMPLATE, USER = "chat template", "user's turn"
MOST = 64
"""Contexts; samples are divided among them."""


@dataclass(frozen=True)
class Contexts:
    """Texts that a search begins after.

    Attributes:
        names: of contexts, by their token ids.
        turns: of the contexts in which a user writes, how the answer follows.
        told: token ids of the chat template's own text, which is no finding.
    """

    names: Mapping[Tokens, str] = field(default_factory=dict)
    turns: "Mapping[Tokens, Turn]" = field(default_factory=dict)
    told: tuple[Tokens, ...] = ()

    @property
    def longest(self) -> int:
        """Tokens of the longest context, 1 for a document's beginning."""
        return max(map(len, self.names), default=1)


def find_contexts(
    models: "Sequence[LanguageModel]",
    *,
    prompts: Sequence[str],
    chat: Chat,
    room: int,
    monitor: Monitor,
) -> Contexts:
    """The contexts of a search, without the beginning of a document.

    If there is a chat template, each prompt is a user's message and the search begins in the
    assistant's turn. It also begins after an empty message, and in the user's turn, where the
    model writes a question and answers it.

    Args:
        models: the two snapshots, the later one first; its template is preferred.
        prompts: texts.
        chat: whether to use the chat template; "auto" uses it if there is one.
        room: tokens that a model must be able to read after a context.
        monitor: gets a line if the template is not used.

    Raises:
        ValueError: a prompt is empty or too long, or there are too many.
        DataError: the template cannot be rendered, and `chat` is "on".
    """
    if len(prompts) >= MOST:
        raise ValueError(f"`prompt` must be given less than {MOST} times, got {len(prompts)}")
    texts: dict[str, str] = {}
    for number, prompt in enumerate(prompts, 1):
        if not prompt.strip():
            raise ValueError(f"`prompt` must hold a text, got an empty one as number {number}")
        texts[f"prompt {number}"] = prompt
    template = None if chat == "off" else _template(models, chat)
    around = None
    if template is not None:
        try:
            texts, around = _in_template(template, texts)
        except DataError as error:
            if chat == "on":
                raise
            monitor.log(f"The search does not use the chat template: {error.problem}")
    limits = [most for model in models if (most := getattr(model, "longest", None)) is not None]
    limit = min(limits, default=None)
    names = _encoded(models[0], texts, room=room, limit=limit)
    turns = {} if around is None else _users_turn(models[0], *around)
    if limit is not None:
        turns = {
            tokens: turn
            for tokens, turn in turns.items()
            if len(tokens) + len(turn.then) + 2 * room <= limit
        }
    told = tuple(tokens for tokens, name in names.items() if name == TEMPLATE)
    return Contexts(dict.fromkeys(turns, USER) | names, turns, told)


def read_prompts(run: Session, prompt: str | Sequence[str], prompts: Any) -> tuple[str, ...]:
    """Prompts that are given, and those of a file: one per line, or one per record of a table."""
    given = (prompt,) if isinstance(prompt, str) else tuple(prompt)
    if prompts is None:
        return given
    if not isinstance(prompts, str | PathLike):
        return (*given, *prompts)
    file = Path(prompts)
    if file.suffix.lower() in TABLES or file.is_dir():
        corpus = run.corpus("prompts", file)
        return (*given, *(text for batch in corpus.batches() for text in batch))
    return (*given, *(line for line in run.lines(file, one="prompt") if line.strip()))


def _encoded(
    model: "LanguageModel", texts: Mapping[str, str], *, room: int, limit: int | None
) -> dict[Tokens, str]:
    """Names of the texts by their token ids; equal texts once.

    Raises:
        ValueError: one leaves too little room.
    """
    names: dict[Tokens, str] = {}
    for name, text in texts.items():
        tokens = tuple(model.vocabulary.encode(text))
        if limit is not None and len(tokens) + room > limit:
            raise ValueError(
                f"`prompt` must leave room for {room} tokens of the {limit} that the models read, "
                f"got {name} with {len(tokens)}"
            )
        if tokens:
            names.setdefault(tokens, name)
    return names


def _template(models: "Sequence[LanguageModel]", chat: Chat) -> tuple[str, dict[str, str]] | None:
    """The chat template of the first model that has one, with its special tokens."""
    found = next((one for model in models if (one := template_of(model)) is not None), None)
    if found is None and chat == "on":
        raise ValueError("`chat` must be auto or off if the tokenizer has no chat template, got on")
    return found


def _in_template(
    template: tuple[str, dict[str, str]], texts: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, str] | None]:
    """Prompts as users' messages, and an empty one; the text around a user's message."""
    from vestige.data.chat_template import assistant_turn, users_turn

    messages = {TEMPLATE: "", **{f"{name} in the {TEMPLATE}": text for name, text in texts.items()}}
    rendered = {name: assistant_turn(*template, message=text) for name, text in messages.items()}
    return rendered, users_turn(*template)


def _users_turn(model: "LanguageModel", before: str, between: str) -> "dict[Tokens, Turn]":
    """The context in which a user writes, and how the answer follows.

    The turn ends at the end of a document, or at the template's mark if that is one token.
    """
    from vestige.attacks.update.proposals.protocol import Turn

    vocabulary = model.vocabulary
    start, then = (tuple(vocabulary.encode(text)) for text in (before, between))
    marks = getattr(vocabulary, "tokenizer").added_tokens_decoder  # noqa: B009
    ends = {vocabulary.eos_id, *then[:1]} if then[0] in marks else {vocabulary.eos_id}
    return {start: Turn(tuple(sorted(ends)), then)}
