"""`vestige gate`: the answer, a line a check, and the exit code."""

from vestige.cli.verbs import JSON, Output, Verb
from vestige.release.gate import Gate, gate


def _show(found: Gate, output: Output) -> None:
    from vestige.cli.terminal import show_table

    cells = [
        (check.run or "–", check.quantity, "–" if check.limit is None else f"{check.limit:g}",
         check.state, check.sentence)
        for check in found.checks
    ]  # fmt: skip
    print(found.answer)
    show_table("Checks", ["run", "quantity", "at most", "state", "found"], cells)


VERB = Verb(gate, show=_show, outputs=(JSON,), code_of=lambda found: found.code)
