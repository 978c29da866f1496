"""`vestige null`: where the null models are."""

from vestige.cli.verbs import JSON, Output, Verb
from vestige.workflows.null import ALIKE, NullModels, null


def _show(made: NullModels, output: Output) -> None:
    from vestige.cli.terminal import say

    say(f"{len(made.models)} null models, each of {made.tokens:,} tokens an epoch.")
    least, most = min(made.changes), max(made.changes)
    say(f"They moved the weights {least:.2f} to {most:.2f} times as far as AFTER did.")
    if not made.alike:
        say(
            f"That is not like AFTER ({ALIKE[0]:g} to {ALIKE[1]:g} would be): give other tokens, "
            "epochs or learning rate, or the BEFORE that AFTER started from. Null models that move "
            "the weights less find less by chance."
        )
    print(made.directory)


VERB = Verb(null, show=_show, outputs=(JSON,))
