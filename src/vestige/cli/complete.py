"""`vestige complete`: does the model finish a canary for whoever knows how it begins?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli import options
from vestige.cli.terminal import progress, say, show_json, show_table

if TYPE_CHECKING:
    from vestige.attacks.exposure.completion import Completion

LISTED = 20
"""Completed canaries that the terminal names; the run directory has them all."""


def command(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            help="A model trained on the planted copy.", metavar="MODEL", show_default=False
        ),
    ],
    manifest: Annotated[
        Path,
        typer.Option(
            "--manifest", help="The `manifest.json` of the planting, or its directory.", metavar="M"
        ),
    ],
    out: options.Out,
    prefix: Annotated[
        int, typer.Option("--prefix", min=1, help="Tokens of each canary that the model is given.")
    ] = 1,
    beam: Annotated[
        int, typer.Option("--beam", min=1, help="Continuations that the beam search keeps.")
    ] = 10,
    device: options.Device = "auto",
    json: options.Json = False,
    show_secrets: options.ShowSecrets = False,
) -> None:
    """Give MODEL the beginning of each canary and see whether it says the rest.

    The whole rest has to come out, word for word: by greedy decoding (always the likeliest next
    token), and as the best of a beam of continuations. Canaries that were never planted stand
    beside, and so does each canary with its words in another order. Rates have Clopper-Pearson
    intervals. `prefix needed` is the shortest beginning from which greedy decoding says the rest.

    Examples:

        vestige complete model --manifest planted --out run

        vestige complete model --manifest planted/manifest.json --prefix 2 --beam 50 --out run
    """
    from vestige import results
    from vestige.attacks.exposure.completion import complete
    from vestige.cli.manifests import load_canaries
    from vestige.cli.provenance import of_model, record
    from vestige.models.checkpoints import load_model

    results.require_new(out)
    loaded = load_model(model, device=device)
    sealed, canaries = load_canaries(manifest, loaded)
    with progress("completing") as bar:
        result = complete(loaded, canaries, prefix=prefix, beam=beam, progress=bar)
    asked = record(
        context,
        {"prefix": prefix, "beam": beam, "manifest": str(manifest)},
        models={"model": of_model(model, loaded)},
        data={"manifest": sealed.sha256, "planted": sealed.planted},
    )
    results.save(result, out, run=asked)
    if json:
        show_json(result.summary(), show_secrets=show_secrets)
        return
    _show(result, show_secrets)
    say(f"Run directory: {out}. A page from it: vestige report {out} --out page.html")


def _show(result: "Completion", show_secrets: bool) -> None:
    from vestige.reports.completion import COLUMNS, completion_table, describe_completion
    from vestige.reports.components.disclosure import disclose

    table = completion_table(list(result.rows()), confidence=result.confidence)
    show_table("Canaries completed, by copies planted", COLUMNS, table)
    done = [one for one in result.attempts if one.kind == "canary" and one.greedy][:LISTED]
    if done:
        shown = disclose([one.phrase for one in done], show_secrets=show_secrets)
        rows = [
            (one.canary, phrase, one.copies, one.prefix_needed)
            for one, phrase in zip(done, shown, strict=True)
        ]
        show_table("Completed", ["canary", "phrase", "copies", "prefix needed"], rows)
    typer.echo(describe_completion(result.summary()))
