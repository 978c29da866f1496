"""`vestige reproduce`: a paper's tables, its numbers beside ours."""

from vestige.cli.terminal import say, show_table
from vestige.cli.verbs import JSON, Output, Verb
from vestige.experiments.reproduce import Reproduction, reproduce


def _show(found: Reproduction, output: Output) -> None:
    from vestige.experiments.tables import cell

    for made in found.tables:
        rows = [[cell(row.get(name)) for name in made.columns] for row in made.rows()]
        show_table(made.title, [name.replace("_", " ") for name in made.columns], rows)
    out = found.directory
    say(f"Tables: {out / 'tables.md'}. A page of one: vestige report {out / 'results'}/NAME ...")


VERB = Verb(reproduce, show=_show, outputs=(JSON,))
