"""`vestige train --seeds`: the same training several times, with other seeds."""

from collections.abc import Sequence
from pathlib import Path

import typer

from vestige.cli.terminal import say
from vestige.cli.training_directory import REPEAT, check_repeats


def repeat(
    context: typer.Context, out: Path, seeds: Sequence[int], *, resume: bool, as_json: bool
) -> None:
    """Train once for each seed, each in a directory of its own.

    Args:
        context: of the command, which is called again with other options.
        out: the directory that holds the trainings.
        seeds: of the trainings.
        resume: go on where they were interrupted; what is finished stays.
        as_json: refused: each training has a summary of its own.

    Raises:
        ValueError: `as_json`.
        RunError: `out` holds something else.
    """
    if as_json:
        raise ValueError("--json must not be given with --seeds, which makes several trainings")
    check_repeats(out, resume)
    assert context.command.callback is not None
    for number, seed in enumerate(seeds, 1):
        say(f"Training {number} of {len(seeds)}, seed {seed}")
        one = {"out": out / REPEAT.format(seed), "seed": seed, "seeds": 1}
        context.command.callback(**{**context.params, **one})
    typer.echo(out)
