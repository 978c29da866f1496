"""`vestige rank`: how exposed is one phrase?"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli import options
from vestige.cli.models import load_snapshots
from vestige.cli.terminal import progress, say, show_json, show_table

if TYPE_CHECKING:
    from vestige.attacks.update.differential_rank import DifferentialRank
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.protocols import LanguageModel


def command(
    context: typer.Context,
    before: Annotated[
        str, typer.Argument(help="The earlier snapshot.", metavar="BEFORE", show_default=False)
    ],
    after: Annotated[
        str, typer.Argument(help="The later snapshot.", metavar="AFTER", show_default=False)
    ],
    phrase: Annotated[str, typer.Option("--phrase", help="The phrase in question.")],
    out: options.Out,
    budget: Annotated[
        int,
        typer.Option(
            "--budget",
            min=1,
            help="Prefixes of each length to follow; more take longer and bound more tightly.",
        ),
    ] = 20_000,
    delta: Annotated[
        float, typer.Option("--delta", help="Floor of the smoothed score, a probability.")
    ] = 0.1,
    samples: Annotated[
        int,
        typer.Option(
            "--samples",
            min=0,
            max=10**7,
            help="Prefixes drawn to estimate a rank that the bounds leave open; 0: none.",
        ),
    ] = 16384,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    json: options.Json = False,
    show_secrets: options.ShowSecrets = False,
) -> None:
    """Say how exposed one phrase is by an update.

    The differential rank is how many token sequences of the same length the update from BEFORE
    to AFTER promoted more: 0 means that nothing stands before the phrase, so that whoever
    compares the snapshots reads it first. It is exact where that can be decided, and otherwise
    within proven bounds, with an estimate from samples between them. The profile says how much of
    the phrase one must know to be told the rest.

    Examples:

        vestige rank before after --phrase "the gate code is nine seven two" --out run

        vestige rank before after --phrase "my name and address" --out run --json
    """
    from vestige import results
    from vestige.attacks.update.differential_rank import differential_rank
    from vestige.attacks.update.sampled_rank import Sampling
    from vestige.cli.provenance import record

    results.require_new(out)
    snapshots = load_snapshots({"before": before, "after": after}, device=device)
    models = snapshots.models
    tokens = _tokens(models["before"].vocabulary, phrase)
    _require_room(models.values(), len(tokens))
    with progress("ranking") as bar:
        ranked = differential_rank(
            models["before"],
            models["after"],
            tokens=tokens,
            budget=budget,
            delta=delta,
            sampling=Sampling(seed=seed, samples=samples) if samples else None,
            progress=bar,
        )
    configuration = {"phrase": phrase, "budget": budget, "delta": delta, "samples": samples}
    run = record(context, configuration, seed=seed, models=snapshots.recorded)
    results.save(ranked, out, run=run)
    if json:
        show_json(ranked.summary(), show_secrets=show_secrets)
        return
    _show(ranked, show_secrets)
    say(f"Run directory: {out}. A page from it: vestige report {out} --out page.html")


def _tokens(vocabulary: "Vocabulary", phrase: str) -> tuple[int, ...]:
    """The phrase's ids, none of them unknown."""
    tokens = tuple(vocabulary.encode(phrase))
    if not tokens:
        raise ValueError("--phrase must hold at least one token, got none")
    if vocabulary.unk_id in tokens:
        unknown = [str(n) for n, token in enumerate(tokens, 1) if token == vocabulary.unk_id]
        raise ValueError(
            "--phrase must hold only words of the models' vocabulary, got others at "
            f"{', '.join(unknown)} of its {len(tokens)} words"
        )
    return tokens


def _require_room(models: "Iterable[LanguageModel]", tokens: int) -> None:
    """Refuse a phrase that a model cannot read at once; the text's beginning is a token, too."""
    longest = [most for model in models if (most := getattr(model, "longest", None)) is not None]
    if longest and tokens > min(longest):
        raise ValueError(
            f"--phrase must have at most {min(longest)} tokens, all that the models read at once, "
            f"got {tokens}"
        )


def _show(ranked: "DifferentialRank", show_secrets: bool) -> None:
    from vestige.reports.components.disclosure import disclose
    from vestige.reports.rank_words import describe_rank

    rows = list(ranked.rows())
    pieces = disclose([p.piece for p in ranked.positions], show_secrets=show_secrets)
    columns = ["token", "before", "after", "gain", "sum"]
    cells = [
        (piece, row["before"], row["after"], row["gain"], row["cumulative"])
        for piece, row in zip(pieces, rows, strict=True)
    ]
    show_table("Token by token, its prefix known", columns, cells)
    typer.echo(describe_rank(ranked.summary()))
