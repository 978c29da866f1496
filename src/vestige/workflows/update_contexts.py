"""Contexts behind which a search begins beside a document's beginning: chat turns, prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vestige.attacks.manifests import template_of
from vestige.errors import DataError
from vestige.monitor import Monitor
from vestige.workflows.inputs import open_corpus, read_lines, several

if TYPE_CHECKING:
    from vestige.attacks.update.proposals.protocol import Turn
    from vestige.models.protocols import LanguageModel
    from vestige.workflows.inputs import Lines, Several

Chat = Literal["auto", "on", "off"]
TABLES = {".jsonl", ".json", ".csv", ".tsv", ".parquet"}
"""Files of prompts in which a prompt may have several lines."""
CHAT = "chat template"
USER = "user's turn"
MOST = 64
"""Contexts: samples and openings are divided among them."""


@dataclass(frozen=True)
class Contexts:
    """Behind what a search begins, beside a document's beginning.

    Attributes:
        names: what each context is called, by its ids.
        turns: of the contexts behind which a user's turn begins, how the answer follows.
        told: ids of what the chat template says by itself.
    """

    names: Mapping[tuple[int, ...], str] = field(default_factory=dict)
    turns: "Mapping[tuple[int, ...], Turn]" = field(default_factory=dict)
    told: tuple[tuple[int, ...], ...] = ()


def contexts_of(
    models: "Sequence[LanguageModel]",
    *,
    prompts: Sequence[str],
    chat: Chat,
    room: int,
    monitor: Monitor,
) -> Contexts:
    """The contexts that a search begins behind; a document's beginning is not one.

    A chat template gives the assistant's turn after each prompt and after an empty message, and
    the user's turn, where the model writes a question and answers it.

    Args:
        models: the two snapshots; the template is the later one's, which comes first.
        prompts: texts; the user's turn where there is a chat template.
        chat: whether to put them into the template; "auto" where there is one.
        room: tokens that a model reads beside them.
        monitor: told of a template that is left aside.

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
    asked = None
    if template is not None:
        try:
            texts, asked = _turns(template, texts)
        except DataError as error:
            if chat == "on":
                raise
            monitor.log(f"The search goes on without it: {error.problem}")
    limits = [most for model in models if (most := getattr(model, "longest", None)) is not None]
    found: dict[tuple[int, ...], str] = {}
    for name, text in texts.items():
        ids = tuple(models[0].vocabulary.encode(text))
        if limits and len(ids) + room > min(limits):
            raise ValueError(
                f"`prompt` must leave room for {room} tokens of the {min(limits)} that the models "
                f"read, got {name} with {len(ids)}"
            )
        if ids:
            found.setdefault(ids, name)
    turns = {} if asked is None else _dialogue(models[0], *asked)
    for ids, turn in list(turns.items()):
        if limits and len(ids) + len(turn.then) + 2 * room > min(limits):
            del turns[ids]
    told = tuple(ids for ids, name in found.items() if name == CHAT)
    return Contexts(dict.fromkeys(turns, USER) | found, turns, told)


def read_prompts(prompt: "Several", prompts: "Lines | None") -> tuple[str, ...]:
    """Prompts that are given, and those of a file: one a line, or one a record."""
    given = several(prompt)
    if prompts is None:
        return given
    if not isinstance(prompts, str | PathLike):
        return (*given, *prompts)
    file = Path(prompts)
    if file.suffix.lower() in TABLES or file.is_dir():
        corpus = open_corpus(file)
        return (*given, *(text for batch in corpus.batches() for text in batch))
    return (*given, *(line for line in read_lines(file, one="prompt") if line.strip()))


def _turns(
    template: tuple[str, dict[str, str]], texts: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, str] | None]:
    """The prompts as users' turns, and an empty one; what stands around a user's turn."""
    from vestige.data.chat_template import assistant_turn, users_turn

    turns = {CHAT: "", **{f"{name} in the {CHAT}": text for name, text in texts.items()}}
    rendered = {name: assistant_turn(*template, message=text) for name, text in turns.items()}
    return rendered, users_turn(*template)


def _dialogue(model: "LanguageModel", before: str, between: str) -> "dict[tuple[int, ...], Turn]":
    """The context in which a user writes, and how the answer follows.

    A turn ends where a document would, and at the template's own mark where that is one token.
    """
    from vestige.attacks.update.proposals.protocol import Turn

    vocabulary = model.vocabulary
    start, then = (tuple(vocabulary.encode(text)) for text in (before, between))
    marks = getattr(vocabulary, "tokenizer").added_tokens_decoder  # noqa: B009
    ends = {vocabulary.eos_id, *then[:1]} if then[0] in marks else {vocabulary.eos_id}
    return {start: Turn(tuple(sorted(ends)), then)}


def _template(models: "Sequence[LanguageModel]", chat: Chat) -> tuple[str, dict[str, str]] | None:
    """The first model's template that has one, with its special tokens."""
    for model in models:
        found = template_of(model)
        if found is not None:
            return found
    if chat == "on":
        raise ValueError(
            "`chat` must be auto or off where the tokenizer has no chat template, got on"
        )
    return None
