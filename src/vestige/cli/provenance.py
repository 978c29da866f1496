"""What a run directory says about where its numbers come from."""

from collections.abc import Mapping
from typing import Any

from vestige.workflows.provenance import of_corpus, of_model, of_network

__all__ = ["COMMAND", "of_corpus", "of_model", "of_network", "record"]

COMMAND = "vestige.command"
"""Where the click context holds the command line as it was given."""


def record(
    context: Any,
    configuration: Mapping[str, object],
    *,
    seed: int | None = None,
    models: Mapping[str, object] | None = None,
    data: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """The `run` of `results.save`.

    Args:
        context: the click context of the verb.
        configuration: every setting that the result depends on.
        seed: where chance entered.
        models: `of_model` by role.
        data: `of_corpus` by role.
    """
    return {
        "command": context.meta.get(COMMAND, []),
        "configuration": configuration,
        "seed": seed,
        "models": models or {},
        "data": data or {},
    }
