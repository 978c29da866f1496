"""`vestige diff`: which phrases did an update promote most?"""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vestige.cli import options
from vestige.cli.models import load_snapshots
from vestige.cli.terminal import progress, say, show_json, show_table

if TYPE_CHECKING:
    from vestige.attacks.update_diff import UpdateDiff

SHOWN = 20
"""Phrases on the terminal; the run directory holds them all."""


def command(
    context: typer.Context,
    before: Annotated[
        str, typer.Argument(help="The earlier snapshot.", metavar="BEFORE", show_default=False)
    ],
    after: Annotated[
        str, typer.Argument(help="The later snapshot.", metavar="AFTER", show_default=False)
    ],
    out: options.Out,
    null: Annotated[
        str | None,
        typer.Option(
            "--null",
            help="A second training of BEFORE (the same data, another seed). What the search "
            "reports for the pair BEFORE and MODEL is chance; its best score is the threshold "
            "above which a phrase counts as found.",
            metavar="MODEL",
        ),
    ] = None,
    removed: Annotated[
        bool,
        typer.Option("--removed", help="What a deletion reveals: the roles are swapped."),
    ] = False,
    search: Annotated[
        Literal["seed-and-extend", "halving-beam", "beam", "group-beam"],
        typer.Option("--search", help="How phrases are looked for; `halving-beam` is the paper's."),
    ] = "seed-and-extend",
    score: Annotated[
        Literal["smoothed", "differential", "relative"],
        typer.Option(
            "--score",
            help="What a token's promotion counts: the `smoothed` log-ratio, or the paper's two.",
        ),
    ] = "smoothed",
    length: Annotated[
        int | None,
        typer.Option(
            "--length",
            min=1,
            help="Tokens in a phrase: at most for seed-and-extend, exactly for the beams.",
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Phrases to keep.")] = 50,
    device: options.Device = "auto",
    json: options.Json = False,
    show_secrets: options.ShowSecrets = False,
) -> None:
    """Find the phrases that the update from BEFORE to AFTER promoted most.

    Both snapshots are only asked what comes next; neither training set is seen. A snapshot is a
    directory of `vestige train`, a Hugging Face causal language model (folder or hub name) or a
    PEFT adapter folder.

    Without `--null` the list is ranked but nothing says where chance begins. Train a null model
    when the question is whether anything leaked at all.

    Examples:

        vestige diff before after --out run

        vestige diff base-model my-lora-adapter --null base-again --out run --show-secrets

        vestige diff with-my-data without-it --removed --out run
    """
    from vestige import results
    from vestige.attacks.update_diff import update_diff
    from vestige.cli.provenance import record

    results.require_new(out)
    roles = {"before": before, "after": after} | ({"null": null} if null else {})
    snapshots = load_snapshots(roles, device=device)
    models = snapshots.models
    earlier, later = ("after", "before") if removed else ("before", "after")
    with progress("searching") as bar:
        found = update_diff(
            models[earlier],
            models[later],
            null=models.get("null"),
            search=search,
            score=score,
            length=length,
            top=top,
            progress=bar,
        )
    configuration = {
        "search": search,
        "score": score,
        "length": length,
        "top": top,
        "removed": removed,
    }
    run = record(context, configuration, models=snapshots.recorded)
    results.save(found, out, run=run)
    if json:
        show_json(found.summary())
        return
    _show(found, show_secrets)
    say(f"Run directory: {out}. A page from it: vestige report {out} --out page.html")


def _show(found: "UpdateDiff", show_secrets: bool) -> None:
    from vestige.reports.disclosure import disclose, join

    rows = [row for row in found.rows() if row["kind"] != "run"]
    verdicts = {True: "found", False: "below", None: "–"}
    cells = [
        (
            row["rank"],
            row["score"],
            verdicts[row["found"]],
            join(disclose(row["pieces"], show_secrets=show_secrets)),
        )
        for row in rows[:SHOWN]
    ]
    show_table("Promoted phrases", ["rank", "score", "null", "phrase"], cells)
    if len(rows) > SHOWN:
        say(f"… and {len(rows) - SHOWN} more in the run directory.")
    if not show_secrets:
        say("Letters are withheld; --show-secrets shows them.")
