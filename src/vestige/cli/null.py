"""`vestige null`: where the null models are."""

from collections.abc import Sequence
from math import isnan

from vestige.cli.verbs import JSON, Output, Verb
from vestige.workflows.null import NullModels, null


def _show(made: NullModels, output: Output) -> None:
    from vestige.attacks.update.null_searches import LIKE
    from vestige.cli.terminal import say

    count = len(made.models)
    say(f"{count} null model{'s' * (count > 1)}, each of {made.tokens:,} tokens an epoch.")
    if isnan(sum(made.changes)):
        say("How far they moved the weights cannot be said of this kind of adapter.")
    else:
        say(f"They moved the weights {_range(made.changes)} times as far as AFTER did.")
        if not made.alike:
            say(
                f"That is not like AFTER ({LIKE[0]:g} to {LIKE[1]:g} would be), and vestige diff "
                "gives no verdict by them: give other tokens, epochs or learning rate, or the "
                "BEFORE that AFTER started from."
            )
    print(made.directory)


def _range(values: Sequence[float]) -> str:
    least, most = f"{min(values):.2f}", f"{max(values):.2f}"
    return least if least == most else f"{least} to {most}"


VERB = Verb(null, show=_show, outputs=(JSON,))
