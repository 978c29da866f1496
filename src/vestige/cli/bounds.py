"""How large may a number on the command line be? Every option has a bound, new ones too.

A number that no machine could follow is refused where it is read, and not where an array of that
size is asked for. What several sizes take together is asked when they are known
(`vestige.memory.require_room`).
"""

import math
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand

MANY = 10**9
"""The most of what is counted and not held: steps, documents, questions, epochs."""
WIDEST = 2**20
"""The most units, tokens or rows side by side."""
LARGEST_LIST = 2**28
"""Bytes of a file with a word or a phrase on each line."""

LARGEST = {
    "--seed": 2**63 - 1,
    **dict.fromkeys(("--vocab-size", "--vocabulary-size"), 2**24),
    **dict.fromkeys(("--references", "--samples"), 2**24),
    **dict.fromkeys(("--hidden-size", "--embedding-size", "--batch-size"), WIDEST),
    **dict.fromkeys(("--physical-batch-size", "--local-batch-size"), WIDEST),
    **dict.fromkeys(("--sequence-length", "--prefix", "--beam", "--top-k"), WIDEST),
    **dict.fromkeys(("--width", "--groups", "--top"), WIDEST),
    # Each phrase is looked for in the whole corpus.
    **dict.fromkeys(("--number", "--copies", "--controls", "--coin-flip"), 10**6),
    **dict.fromkeys(("--artificial", "--sample"), 10**6),
    **dict.fromkeys(("--bins", "--orders", "--count", "--shadows", "--seeds"), 10_000),
    "--lora-rank": 2**14,
    **dict.fromkeys(("--length", "--min-length", "--layers", "--attempts"), 1_000),
    "--processes": 1_024,
}


class Bounded(TyperCommand):
    """A verb whose numbers have been held to their bounds when it is called."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        for option in self.params:
            value = ctx.params.get(option.name)
            for number in value if isinstance(value, list | tuple) else (value,):
                if (reason := _beyond(option.opts, number)) is not None:
                    hint = " / ".join(option.opts)
                    raise typer.BadParameter(reason, ctx=ctx, param_hint=f"'{hint}'")
        return rest


def _beyond(names: Sequence[str], number: object) -> str | None:
    """What is wrong with a value, if it is a number; None where nothing is."""
    if isinstance(number, float) and not math.isfinite(number):
        return f"{number} is not a finite number."
    if not isinstance(number, int):
        return None
    most = min((LARGEST[name] for name in names if name in LARGEST), default=MANY)
    if number > most:  # a number of a million digits is not repeated
        return f"it must be at most {most:,}."
    return None
