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
    _say_together([out / REPEAT.format(seed) for seed in seeds])
    typer.echo(out)


def _say_together(trainings: Sequence[Path]) -> None:
    """Say what private trainings of one text promise together, since each tells more of it."""
    from vestige.cli.privacy_files import begun
    from vestige.cli.terminal import say_all
    from vestige.defences.composition import composed_epsilon
    from vestige.defences.privacy_statement import number, small

    found = [own.ledger[-1] for one in trainings if (own := begun(one)) is not None]
    mechanisms = [entry.mechanism for entry in found if entry.mechanism is not None]
    delta, accountant = (found[0].delta, found[0].accountant) if found else (None, None)
    if delta is None or accountant is None or len(mechanisms) < len(trainings):
        return
    together = composed_epsilon(mechanisms, delta=delta, accountant=accountant)
    say_all(
        [
            f"Each ε is that of one model. All {len(trainings)} together have ε = "
            f"{number(together)} at δ = {small(delta)} for what they read: release none that was "
            "only measured, or state this one."
        ]
    )
