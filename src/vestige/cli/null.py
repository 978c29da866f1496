"""`vestige null`: models made as an update was, of clean text."""

from pathlib import Path
from typing import Annotated

import typer

from vestige.cli import options
from vestige.cli.terminal import progress, say, show_json
from vestige.cli.trainings_directory import claimed
from vestige.workflows.sources import read_source

COUNT, MOST = 19, 10_000


def command(
    context: typer.Context,
    before: Annotated[str, typer.Argument(help="The model before the update.", metavar="BEFORE")],
    after: Annotated[
        Path,
        typer.Argument(help="The directory of `vestige train --from BEFORE`.", metavar="AFTER"),
    ],
    data: Annotated[
        str,
        typer.Argument(
            help="Clean text of the update's kind: a file, folder or hub data set.", metavar="DATA"
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", help="A directory for the null models; again, to go on.", metavar="DIR"
        ),
    ],
    count: Annotated[
        int,
        typer.Option(
            "--count", min=1, max=MOST, help="Null models; 19 carry a verdict of `vestige diff`."
        ),
    ] = COUNT,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    json: options.Json = False,
    format: options.DataFormat = "auto",
    text: options.TextColumn = "text",
    limit: options.Limit = None,
) -> None:
    """Train null models: BEFORE continued as AFTER was, on other text and with other seeds.

    Each reads a random part of DATA of its own, as many tokens as AFTER read, with the settings
    that AFTER's directory tells: all weights, or a low-rank adapter of the same shape. DATA should
    be text of the kind that AFTER read, without what may have leaked, and with its repeated
    documents if AFTER read such: nothing is dropped here. `vestige diff --null DIR` then says which
    phrases such trainings reach by chance.

    What is trained already is found again. An update under a defence is not repeated here: train
    its null models by `vestige train` with the options of its own.

    Examples:

        vestige null before after clean.jsonl --out nulls

        vestige diff before after --null nulls --out run
    """
    from vestige.models.checkpoints import check_compatible, load_model
    from vestige.training.null_models import Recipe, null_texts
    from vestige.training.snapshot import snapshot

    recipe = Recipe.of(after)
    context.with_resource(claimed(out))
    model = load_model(before, device=device)
    check_compatible(model, load_model(after, device=device))
    corpus = read_source(data, format=format, text=text, limit=limit)
    sizes = [recipe.validation, *[recipe.tokens] * count]
    held, *parts = null_texts(corpus, model.vocabulary, sizes, seed=seed)
    places = [out / f"null-{number:02}" for number in range(count)]
    for number, (place, part) in enumerate(zip(places, parts, strict=True)):
        # AFTER's own seed is one of few that people take: stay clear of it
        own = recipe.config.seed + 1 + 1000 * seed + number
        with progress(f"null model {number + 1} of {count}") as bar:
            snapshot(
                place,
                part,
                start=recipe.started(model, own),
                vocabulary=model.vocabulary,
                config=recipe.seeded(own),
                validation=held if len(held) else None,
                progress=lambda step, steps, *_, bar=bar: bar(step, steps),
            )
    if json:
        show_json({"models": [str(place) for place in places], "tokens": recipe.tokens})
        return
    say(f"{count} null models, each of {recipe.tokens:,} tokens.")
    typer.echo(out)
