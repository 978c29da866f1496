"""Chat templates of tokenizers, rendered in a sandbox.

A template is a Jinja program in the files of a model. It runs in Jinja's sandbox, in a separate
process with limits on memory and time, and its output is bounded. The date that some templates
write is fixed, so that a search does not depend on the day.

    python -m vestige.data.chat_template < request.json > texts.json

Differs from transformers' `apply_chat_template` (the tests compare both): no tools, documents or
assistant masks; `{% generation %}` has no effect; the output is bounded while it is written; and
the process starts ten times faster than transformers is imported.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from vestige.errors import DataError

if TYPE_CHECKING:
    from jinja2 import Template

SECONDS = 10
"""Time limit of one process."""
_MEMORY = 2**30
_LONGEST = 100_000  # characters of the output, in addition to three times the text of the chat
_CHATS_PER_PROCESS = 1_000
_MARK = "vestigemarksthemessage"  # a message that no template contains
_DATE = datetime(2024, 7, 26)  # the default date of Llama 3's templates
_REMEDY = "Pass --chat off, and write prompts as the model reads them."

Chat = Sequence[Mapping[str, str]]
"""Turns with "role" and "content"."""


def assistant_turn(template: str, tokens: Mapping[str, str], *, message: str) -> str:
    """The prompt up to the assistant's turn.

    Args:
        template: Jinja source, from `tokenizer.chat_template`.
        tokens: special tokens by their names in the template, such as `bos_token`.
        message: of the user.

    Raises:
        DataError: the template is invalid, rejects the message, or exceeds a limit.
    """
    chat = [{"role": "user", "content": message}]
    try:
        text = _render_chats(template, tokens, [chat], prompt=True)[0]
    except subprocess.TimeoutExpired as error:
        raise DataError(
            f"the tokenizer's chat template takes longer than {SECONDS} s", remedy=_REMEDY
        ) from error
    if text is None:
        raise DataError("the tokenizer's chat template cannot be rendered", remedy=_REMEDY)
    return text


def users_turn(template: str, tokens: Mapping[str, str]) -> tuple[str, str] | None:
    """The text before the first message of a user, and the text between message and answer.

    None if the template repeats or changes the message. See `assistant_turn`.
    """
    parts = assistant_turn(template, tokens, message=_MARK).split(_MARK)
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) else None


def whole_chats(
    template: str, tokens: Mapping[str, str], chats: Sequence[Chat]
) -> list[str | None]:
    """Chats as training texts, without the beginning of a further turn.

    None for a chat that the template rejects or that exceeds a limit. See `assistant_turn`.
    """
    rendered: list[str | None] = []
    for start in range(0, len(chats), _CHATS_PER_PROCESS):
        part = chats[start : start + _CHATS_PER_PROCESS]
        try:
            texts = _render_chats(template, tokens, part, prompt=False)
        except subprocess.TimeoutExpired:
            texts = []
        if not any(texts):  # it would not render the others either
            return rendered + [None] * (len(chats) - start)
        rendered += texts
    return rendered


def _render_chats(
    template: str, tokens: Mapping[str, str], chats: Sequence[Chat], *, prompt: bool
) -> list[str | None]:
    """Chats, rendered in one process; None for a chat that cannot be rendered."""
    request = {"template": template, "chats": chats, "tokens": dict(tokens), "prompt": prompt}
    process = subprocess.run(
        [sys.executable, "-P", "-m", "vestige.data.chat_template"],
        input=json.dumps(request).encode(),
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    texts = [] if process.returncode else json.loads(process.stdout)
    return texts if len(texts) == len(chats) else [None] * len(chats)


# In the separate process


def main() -> None:
    """Render the request on stdin; exit code 1 for an invalid template."""
    try:
        resource = import_module("resource")
    except ImportError:  # Windows
        pass
    else:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
    request = json.load(sys.stdin)
    try:
        template = _compiled(request["template"])
    except Exception:  # it may quote the template
        sys.exit(1)
    json.dump([_render(template, chat, request) for chat in request["chats"]], sys.stdout)


def _compiled(template: str) -> "Template":
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012  as Jinja declares it

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def reject(message: str) -> None:
        raise ValueError("the chat template rejects the messages")

    def to_json(value: Any, indent: int | None = None) -> str:  # without escapes of HTML
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = to_json
    environment.globals.update(raise_exception=reject, strftime_now=_DATE.strftime)
    return environment.from_string(template)


def _render(template: "Template", messages: Chat, request: Mapping[str, Any]) -> str | None:
    """A chat; None if the template rejects it or writes too much."""
    remaining = _LONGEST + 3 * sum(len(turn["content"]) for turn in messages)
    parts = []
    try:
        for part in template.generate(
            messages=messages, add_generation_prompt=request["prompt"], tools=None,
            documents=None, **request["tokens"],
        ):  # fmt: skip
            parts.append(part)
            remaining -= len(part)
            if remaining < 0:
                return None
    except Exception:  # it may quote the template
        return None
    return "".join(parts).encode("utf-8", "replace").decode()  # without lone surrogates


if __name__ == "__main__":
    main()
