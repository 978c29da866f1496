"""Contexts behind which a search begins beside a document's beginning: chat turns, prompts."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vestige.monitor import Monitor
from vestige.workflows.inputs import open_corpus, read_lines, several

if TYPE_CHECKING:
    from vestige.models.protocols import LanguageModel
    from vestige.workflows.inputs import Lines, Several

Chat = Literal["auto", "on", "off"]
TABLES = {".jsonl", ".json", ".csv", ".tsv", ".parquet"}
"""Files of prompts in which a prompt may have several lines."""
CHAT = "chat template"
MOST = 64
"""Contexts: samples and openings are divided among them."""

Contexts = dict[tuple[int, ...], str]
"""Ids of each context, and what it is called."""


def contexts_of(
    models: "Sequence[LanguageModel]",
    *,
    prompts: Sequence[str],
    chat: Chat,
    room: int,
    monitor: Monitor,
) -> Contexts:
    """The contexts that a search begins behind, by their ids; a document's beginning is not one.

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
    texts = {}
    for number, prompt in enumerate(prompts, 1):
        if not prompt.strip():
            raise ValueError(f"`prompt` must hold a text, got an empty one as number {number}")
        texts[f"prompt {number}"] = prompt
    if chat != "off":
        texts = _turns(models, texts, chat, monitor)
    limits = [most for model in models if (most := getattr(model, "longest", None)) is not None]
    found: Contexts = {}
    for name, text in texts.items():
        ids = tuple(models[0].vocabulary.encode(text))
        if limits and len(ids) + room > min(limits):
            raise ValueError(
                f"`prompt` must leave room for {room} tokens of the {min(limits)} that the models "
                f"read, got {name} with {len(ids)}"
            )
        if ids:
            found.setdefault(ids, name)
    return found


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
    models: "Sequence[LanguageModel]", texts: Mapping[str, str], chat: Chat, monitor: Monitor
) -> dict[str, str]:
    """The prompts as users' turns, and an empty one; as they are where there is no template."""
    from vestige.data.chat_template import assistant_turn
    from vestige.errors import DataError

    found = _template(models)
    if found is None:
        if chat == "on":
            raise ValueError(
                "`chat` must be auto or off where the tokenizer has no chat template, got on"
            )
        return dict(texts)
    turns = {CHAT: "", **{f"{name} in the {CHAT}": text for name, text in texts.items()}}
    try:
        return {name: assistant_turn(*found, message=text) for name, text in turns.items()}
    except DataError as error:
        if chat == "on":
            raise
        monitor.log(f"The search goes on without it: {error.problem}")
        return dict(texts)


def _template(models: "Sequence[LanguageModel]") -> tuple[str, dict[str, str]] | None:
    """The first model's template that has one, with its special tokens."""
    for model in models:
        tokenizer = getattr(model.vocabulary, "tokenizer", None)
        source = getattr(tokenizer, "chat_template", None)
        if isinstance(source, dict):  # several, by name
            source = source.get("default")
        if isinstance(source, str):
            named = getattr(tokenizer, "special_tokens_map", {})
            return source, {k: v for k, v in named.items() if isinstance(v, str)}
    return None
