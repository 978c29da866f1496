"""`vestige rank`: a phrase's tokens and its rank in a sentence, or the ranks of own secrets."""

from typing import TYPE_CHECKING

from vestige.cli.verbs import Output, Verb
from vestige.workflows.rank import rank

if TYPE_CHECKING:
    from vestige.attacks.exposure.secret_rank import SecretRank
    from vestige.attacks.update.differential_rank import DifferentialRank


def _show(ranked: "DifferentialRank | SecretRank", output: Output) -> None:
    from vestige.attacks.exposure.secret_rank import SecretRank
    from vestige.cli.terminal import show_table
    from vestige.reports import secrets
    from vestige.reports.disclosure import disclose
    from vestige.reports.rank import describe_rank

    if isinstance(ranked, SecretRank):
        ranks = secrets.secrets_table(list(ranked.rows()), show_secrets=output.show_secrets)
        show_table("Secrets", list(secrets.COLUMNS), ranks)
        print(ranked.sentence)
        return
    pieces = disclose([p.piece for p in ranked.positions], show_secrets=output.show_secrets)
    columns = ["token", "before", "after", "gain", "sum"]
    cells = [
        (piece, row["before"], row["after"], row["gain"], row["cumulative"])
        for piece, row in zip(pieces, ranked.rows(), strict=True)
    ]
    show_table("Token by token, its prefix known", columns, cells)
    print(describe_rank(ranked.summary()))


VERB = Verb(rank, show=_show)
