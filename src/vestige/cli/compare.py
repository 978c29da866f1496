"""`vestige compare`: which defence should I take?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli import options
from vestige.cli.terminal import progress, say, show_json, show_table
from vestige.cli.trainings import (
    Training,
    labelled,
    load_trainings,
    shared_text,
    undefended,
    user_samples,
)

if TYPE_CHECKING:
    from vestige.data.canary import Canary
    from vestige.defences.comparison import DefenceComparison

PAGE = "page.html"


def command(
    context: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Directories of `vestige train`, of `vestige train --seeds`, or models; NAME=RUN "
            "names one, and given several times has several trainings.",
            metavar="RUN",
            show_default=False,
        ),
    ],
    out: options.Out,
    manifest: Annotated[
        Path | None,
        typer.Option(
            "--manifest",
            help="The `manifest.json` of the planting, or its directory: measures leakage.",
            metavar="M",
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            "--test",
            help="Text that no training has seen: measures utility and, with --user, fairness. "
            "Without it the text that all trainings held out is taken.",
            metavar="DATA",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            help="Name of the undefended training; if not given, the one without a defence.",
            metavar="NAME",
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance",
            help="Share by which the test perplexities of equally useful models may differ.",
        ),
    ] = 0.05,
    group: Annotated[
        int,
        typer.Option(
            "--group", min=1, help="Users with most and with fewest documents, of each so many."
        ),
    ] = 5,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    json: options.Json = False,
    format: options.DataFormat = "auto",
    text: options.TextColumn = "text",
    user: options.UserColumn = None,
    limit: options.Limit = None,
) -> None:
    """Set trainings under several defences side by side, and say which to take.

    Every model is asked the same canaries and the same test text. What each leaks, predicts, does
    to users who wrote little, guarantees and costs stands in one table, every measure with its
    interval; `DIR/page.html` shows it at a glance. A defence is said to help only where it leaks
    less at the same test perplexity, and only where the intervals support it.

    Two trainings that differ in their seed alone differ by bits of exposure, so that a verdict
    takes three trainings of each, with different seeds (`vestige train --seeds 3`); with fewer
    there are numbers and no verdict. Trainings are compared by steps and tokens, not by seconds.

    The models must share a vocabulary: give the later trainings `--vocabulary` of the first.

    Examples:

        vestige train planted --vocabulary public --seeds 3 --out plain

        vestige compare plain goldfish dp --manifest planted --test test.jsonl --out comparison

        vestige compare a=runs/1 a=runs/2 a=runs/3 b=runs/4 b=runs/5 b=runs/6 --baseline a
        --manifest planted --test mail.jsonl --user author --out comparison
    """
    from vestige import results
    from vestige.cli import provenance
    from vestige.cli.measuring import measure
    from vestige.defences.comparison import compare_defences
    from vestige.workflows.sources import read_source

    results.require_new(out)
    if not 0 < tolerance < 1:
        raise ValueError(f"--tolerance must lie in (0, 1), got {tolerance}")
    trainings = load_trainings(runs, device=device)
    base = undefended(trainings, baseline)
    corpus = (
        None
        if test is None
        else read_source(test, format=format, text=text, user=user, limit=limit)
    )
    canaries, sealed, notes = _canaries(manifest, trainings[0])
    encoded, told = shared_text(trainings, corpus)
    samples, why = user_samples(trainings, base, encoded)
    if not canaries and encoded is None:
        raise ValueError("--manifest or --test must be given, got neither: nothing to measure")
    with progress("comparing") as bar:
        measured, more = measure(
            trainings, canaries=canaries, test=encoded, seed=seed, progress=bar
        )
    found = compare_defences(
        measured,
        baseline=base,
        users=None if encoded is None else encoded.users,
        samples=samples,
        k=group,
        tolerance=tolerance,
        notes=[*notes, *told, *why, *more],
    )
    configuration = {"baseline": base, "tolerance": tolerance, "group": group, "manifest": manifest}
    data = {
        **sealed,
        **({} if corpus is None else {"test": provenance.of_corpus(str(test), corpus)}),
    }
    models: dict[str, object] = {
        name: provenance.of_model(one.path, one.model) for name, one in labelled(trainings).items()
    }
    run = provenance.record(context, configuration, seed=seed, models=models, data=data)
    _save(found, out, run)
    if json:
        show_json({**found.summary(), "page": str(out / PAGE)})
        return
    _show(found)
    say(f"Run directory: {out / 'run'}. The page:")
    typer.echo(out / PAGE)


def _canaries(
    manifest: Path | None, first: Training
) -> "tuple[tuple[Canary, ...], dict[str, object], list[str]]":
    """The canaries as the models read them, what is recorded of them, and a note without any."""
    from vestige.cli.manifests import load_canaries

    if manifest is None:
        return (), {}, ["Leakage: give --manifest of the planted canaries."]
    sealed, canaries = load_canaries(manifest, first.model)
    return canaries, {"manifest": sealed.sha256, "planted": sealed.planted}, []


def _save(found: "DefenceComparison", out: Path, run: dict[str, object]) -> None:
    """The run directory and its page, both or neither."""
    from vestige import results
    from vestige.reports.page import write_page

    with results.new_directory(out) as partial:
        results.save(found, partial / "run", run=run)
        write_page([partial / "run"], partial / PAGE, show_secrets=False)


def _show(found: "DefenceComparison") -> None:
    from vestige.reports.comparison.section import terminal_table
    from vestige.reports.components.disclosure import printable

    show_table("Defences compared", *terminal_table(found.rows()))
    for note in found.notes:
        say(note)
    typer.echo(printable(" ".join(found.answer)))
