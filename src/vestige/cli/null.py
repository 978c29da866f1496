"""`vestige null`: where the null models are."""

from vestige.cli.verbs import JSON, Output, Verb
from vestige.workflows.null import NullModels, null


def _show(made: NullModels, output: Output) -> None:
    from vestige.cli.terminal import say

    say(f"{len(made.models)} null models, each of {made.tokens:,} tokens.")
    print(made.directory)


VERB = Verb(null, show=_show, outputs=(JSON,))
