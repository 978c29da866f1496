"""Chat templates of tokenizers, rendered where they can do no harm.

A template is a Jinja program that comes with a model. It runs in Jinja's sandbox, in a process of
its own with little memory and little time, and what it writes is bounded. The date that some
templates ask for is a fixed one: a search must not depend on the day.

    python -m vestige.data.chat_template < request.json > prompt

Differs from transformers' `apply_chat_template`: it has no tools, documents or assistant masks, and
`{% generation %}`, which marks what the assistant says, marks nothing.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import Any

from vestige.errors import DataError

SECONDS = 10
MEMORY = 2**30
LONGEST = 100_000
"""Characters of a prompt."""
MARK = "vestigemarksthemessage"
"""A message that no template has of itself."""
DAY = datetime(2024, 7, 26)
"""What templates write where they ask for today: the day that Llama 3's take by themselves."""
REMEDY = "Pass --chat off, and write prompts as the model reads them."


def assistant_turn(template: str, tokens: Mapping[str, str], *, message: str) -> str:
    """The prompt up to the assistant's turn.

    Args:
        template: Jinja, as `tokenizer.chat_template` has it.
        tokens: special tokens by the names that the template knows, such as `bos_token`.
        message: of the user.

    Raises:
        DataError: the template is none, refuses the message, or takes too much.
    """
    request = {"template": template, "message": message, "tokens": dict(tokens)}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "vestige.data.chat_template"],
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(
            f"the tokenizer's chat template takes longer than {SECONDS} s", remedy=REMEDY
        ) from error
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode or len(text) > LONGEST:
        raise DataError("the tokenizer's chat template cannot be rendered", remedy=REMEDY)
    return text


def users_turn(template: str, tokens: Mapping[str, str]) -> tuple[str, str] | None:
    """What stands before the first message of a user, and between it and the assistant's answer.

    None where the template says more than once, or otherwise, what the user has written.

    Args:
        template, tokens: see `assistant_turn`.

    Raises:
        DataError: as `assistant_turn`.
    """
    parts = assistant_turn(template, tokens, message=MARK).split(MARK)
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) else None


def _render(template: str, messages: Sequence[Mapping[str, str]], tokens: Mapping[str, str]) -> str:
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012  as Jinja declares it

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            inside = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(inside, lineno=line)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", Generation],
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(raise_exception=_refuse, strftime_now=DAY.strftime)
    length, parts = 0, []
    for part in environment.from_string(template).generate(
        messages=messages, add_generation_prompt=True, tools=None, documents=None, **tokens
    ):
        parts.append(part)
        length += len(part)
        if length > LONGEST:
            raise ValueError("too long")
    return "".join(parts)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)  # without Jinja's escapes of HTML


def _refuse(message: str) -> None:
    raise ValueError("the chat template rejects the messages")


def _bounded() -> None:
    """Less memory and time for this process; what forks or writes files fails."""
    try:
        resource = import_module("resource")
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))


def main() -> None:
    """Render the request on stdin; the exit code says whether that went well."""
    _bounded()
    asked = json.load(sys.stdin)
    messages = [{"role": "user", "content": asked["message"]}]
    try:
        text = _render(asked["template"], messages, asked["tokens"])
    except Exception:  # it may quote the template
        sys.exit(1)
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
