"""`vestige rank`: a phrase's tokens and its rank in a sentence."""

from typing import TYPE_CHECKING

from vestige.cli.verbs import Output, Verb
from vestige.workflows.rank import rank

if TYPE_CHECKING:
    from vestige.attacks.update.differential_rank import DifferentialRank


def _show(ranked: "DifferentialRank", output: Output) -> None:
    from vestige.cli.terminal import show_table
    from vestige.reports.disclosure import disclose
    from vestige.reports.rank import describe_rank

    pieces = disclose([p.piece for p in ranked.positions], show_secrets=output.show_secrets)
    columns = ["token", "before", "after", "gain", "sum"]
    cells = [
        (piece, row["before"], row["after"], row["gain"], row["cumulative"])
        for piece, row in zip(pieces, ranked.rows(), strict=True)
    ]
    show_table("Token by token, its prefix known", columns, cells)
    print(describe_rank(ranked.summary()))


VERB = Verb(rank, show=_show)
