"""Texts of a search: prompts and chat turns that it begins after, listed secrets, one phrase."""

import re
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.attacks.update.known_phrases import Asked
from vestige.attacks.update.model_pair import most_tokens
from vestige.attacks.update.proposals.protocol import Turn
from vestige.attacks.update.seed_and_extend import Effort
from vestige.data.canary import SAMPLED, Canary
from vestige.data.secret_shapes import Part, Secret
from vestige.data.sources import manifest_file
from vestige.errors import DataError
from vestige.models.canaries import load_canaries, template_of
from vestige.monitor import Monitor
from vestige.session import Session

if TYPE_CHECKING:
    from vestige.arguments import Lines
    from vestige.audits.update.diff import Chat
    from vestige.models.protocols import LanguageModel

Tokens = tuple[int, ...]

TABLES = {".jsonl", ".json", ".csv", ".tsv", ".parquet"}
"""Files of prompts that are read as records, so that a prompt may have several lines."""

TEMPLATE, USER = "chat template", "user's turn"
MOST = 64
"""Contexts; samples are divided among them."""
MOST_SECRETS = 10_000


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


def find_contexts(
    models: "Sequence[LanguageModel]",
    *,
    prompts: Sequence[str],
    chat: "Chat",
    room: int,
    monitor: Monitor,
) -> Effort:
    """Where a search begins, besides the beginning of a document.

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
        ValueError: a prompt is empty or too long, there are too many, or there is no template and
            `chat` is "on".
        DataError: the template cannot be rendered, and `chat` is "on".
    """
    if len(prompts) >= MOST:
        raise ValueError(f"`prompt` must be given less than {MOST} times, got {len(prompts)}")
    for number, prompt in enumerate(prompts, 1):
        if not prompt.strip():
            raise ValueError(f"`prompt` must hold a text, got an empty one as number {number}")
    texts = {f"prompt {number}": prompt for number, prompt in enumerate(prompts, 1)}
    found = next((one for model in models if (one := template_of(model)) is not None), None)
    if found is None and chat == "on":
        raise ValueError("`chat` must be auto or off if the tokenizer has no chat template, got on")
    turns: dict[Tokens, Turn] = {}
    if found is not None and chat != "off":
        try:
            texts, turns = _in_template(models[0], *found, texts)
        except DataError as error:
            if chat == "on":
                raise
            monitor.log(f"The search does not use the chat template: {error.problem}")
    limit, names = most_tokens(*models), dict[Tokens, str]()
    for name, text in texts.items():
        tokens = tuple(models[0].vocabulary.encode(text))
        if limit is not None and len(tokens) + room > limit:
            raise ValueError(
                f"`prompt` must leave room for {room} tokens of the {limit} that the models read, "
                f"got {name} with {len(tokens)}"
            )
        if tokens:
            names.setdefault(tokens, name)
    for tokens, turn in list(turns.items()):
        if limit is not None and len(tokens) + len(turn.then) + 2 * room > limit:
            del turns[tokens]
    told = tuple(tokens for tokens, name in names.items() if name == TEMPLATE)
    return Effort(contexts=dict.fromkeys(turns, USER) | names, turns=turns, told=told)


def _in_template(
    model: "LanguageModel", template: str, special: dict[str, str], texts: Mapping[str, str]
) -> tuple[dict[str, str], dict[Tokens, Turn]]:
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
        return rendered, {}
    vocabulary: Any = model.vocabulary
    start, then = (tuple(vocabulary.encode(text)) for text in around)
    mark = {then[0]} & vocabulary.tokenizer.added_tokens_decoder.keys()
    return rendered, {start: Turn(tuple(sorted({vocabulary.eos_id} | mark)), then)}


def read_secrets(
    secrets: "Lines | None", model: "LanguageModel", *, room: int, monitor: Monitor
) -> tuple[Asked, ...]:
    """Listed secrets as a model reads them; none if none are listed.

    Args:
        secrets: texts, a file with one per line, or a manifest with planted canaries.
        model: its vocabulary reads them.
        room: tokens that may precede them.
        monitor: gets a line about secrets that are left out.

    Raises:
        ValueError: one is too long or has unknown words, or there are too many or none.
        VestigeError: the file cannot be read.
    """
    if secrets is None:
        return ()
    words, longest = model.vocabulary, most_tokens(model)
    listed = [
        Asked.of(secret.text, words, number=secret.number, secret=secret)
        for secret in _listed(secrets, model, monitor)
    ]
    for one in listed:
        if words.unk_id is not None and words.unk_id in one.first:
            raise ValueError(
                "`secrets` must hold only words of the models' vocabulary, got others in entry "
                f"{one.number}"
            )
        if longest is not None and one.longest + room > longest:
            raise ValueError(
                f"`secrets` must hold phrases of at most {longest - room} tokens, got "
                f"{one.longest} in entry {one.number}"
            )
    return tuple(listed)


def _listed(secrets: "Lines", model: "LanguageModel", monitor: Monitor) -> Sequence[Secret]:
    """Secrets of a list, or a manifest's planted canaries."""
    from vestige.data.secret_lines import read_own_secrets

    if isinstance(secrets, str | PathLike):
        file = manifest_file(secrets)
        if file.suffix.lower() == ".json":
            planted = list(_planted(load_canaries(file, model, monitor)[1]))
            if not 1 <= len(planted) <= MOST_SECRETS:
                raise ValueError(
                    f"`secrets` must hold 1 to {MOST_SECRETS:,} planted canaries, got "
                    f"{len(planted):,}"
                )
            return planted
    return read_own_secrets(secrets, monitor=monitor).secrets


def _planted(canaries: Sequence[Canary]) -> Iterator[Secret]:
    """Planted canaries; each word could have been any word of a canary."""
    words = {word: None for canary in canaries for word in canary.phrase.split()}
    planted = [canary for canary in canaries if not canary.control]
    for number, canary in enumerate(planted, 1):
        own = tuple(re.split(r"( )", canary.phrase))
        slots = tuple((word,) if word == " " else tuple(words) for word in own)
        sampled = canary.pattern not in ("given", SAMPLED)
        kind = "given" if sampled else "words"
        part = Part(0, len(canary.phrase), kind, slots, own, drawn=sampled)
        yield Secret(canary.phrase, (part,), number)


def phrase_tokens(models: "Sequence[LanguageModel]", phrase: str) -> Tokens:
    """The token ids of a phrase.

    Raises:
        ValueError: it is empty, too long for a model, or has unknown words.
    """
    words, most = models[0].vocabulary, most_tokens(*models)
    tokens = tuple(words.encode(phrase))
    if not tokens:
        raise ValueError("`phrase` must hold at least one token, got none")
    if words.unk_id in tokens:
        unknown = [str(n) for n, token in enumerate(tokens, 1) if token == words.unk_id]
        raise ValueError(
            "`phrase` must hold only words of the models' vocabulary, got others at "
            f"{', '.join(unknown)} of its {len(tokens)} words"
        )
    if most is not None and len(tokens) > most:
        raise ValueError(
            f"`phrase` must have at most {most} tokens, all that the models read at once, got "
            f"{len(tokens)}"
        )
    return tokens
