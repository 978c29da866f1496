"""`vestige anatomy`: in which words, and in which units, does a model's memory sit?"""

from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli import audit_options, options
from vestige.cli.audit_target import load_target
from vestige.cli.terminal import progress, say, show_json, show_table
from vestige.workflows.sources import read_source

if TYPE_CHECKING:
    from vestige.attacks.anatomy.memorization_result import Anatomy
    from vestige.data.corpus import Corpus

ABLATION = "Silencing hidden units"


def command(
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(help="The model in question.", metavar="MODEL", show_default=False)
    ],
    seen: Annotated[
        str, typer.Option("--seen", help="Text that the model was trained on.", metavar="DATA")
    ],
    unseen: Annotated[
        str,
        typer.Option(
            "--unseen", help="Text like it that the model was not trained on.", metavar="DATA"
        ),
    ],
    out: options.Out,
    frequencies: Annotated[
        str | None,
        typer.Option(
            "--frequencies",
            help="Text that says how frequent words are; --seen, as in the paper, if not given.",
            metavar="DATA",
        ),
    ] = None,
    frequent: Annotated[
        float, typer.Option("--frequent", help="The share of words that counts as frequent.")
    ] = 0.2,
    bins: Annotated[
        int, typer.Option("--bins", min=1, help="Parts of the words by frequency.")
    ] = 10,
    orders: Annotated[
        int,
        typer.Option(
            "--orders",
            min=0,
            help="Random orders in which hidden units are silenced; 0 leaves this out.",
            rich_help_panel=ABLATION,
        ),
    ] = 5,
    ablation_words: Annotated[
        int,
        typer.Option(
            "--ablation-words",
            min=1,
            help="Words of --seen and of --unseen that it asks about, in whole texts.",
            rich_help_panel=ABLATION,
        ),
    ] = 10_000,
    format: options.DataFormat = "auto",
    text: options.TextColumn = "text",
    user: options.UserColumn = None,
    source: audit_options.SourceColumn = None,
    limit: options.Limit = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Show where in its words and units a model's memory sits.

    Three figures compare text that MODEL was trained on with text like it that it never saw: how
    likely it finds the true words, for frequent words and for the rest; at which rank it lists
    them, by their frequency; and how fast accuracy falls as hidden units are silenced at random.
    Memory shows as a difference between the two texts, and sits mostly in words that are rare.

    Intervals draw whole users anew where --user names them, else whole texts. Beside every
    difference stands a null: the same difference between two random halves of --unseen. The two
    texts should differ in nothing but training: same source, same time, other people. No text
    and no user's name is written to DIR.

    Examples:

        vestige anatomy trained --seen members.jsonl --unseen others.jsonl --user author --out run

        vestige anatomy gpt2-tuned --seen letters.txt --unseen held-out.txt --orders 0 --out run

        vestige report run --out page.html
    """
    from vestige import results
    from vestige.attacks.anatomy.memorization import AnatomyPlan, anatomy
    from vestige.cli.provenance import of_corpus, record

    results.require_new(out)
    plan = AnatomyPlan(frequent=frequent, bins=bins, orders=orders, ablation_words=ablation_words)
    target = load_target(model, device=device)

    def read(data: str) -> "Corpus":
        return read_source(
            data, format=format, text=text, user=user, source_column=source, limit=limit
        )

    names = {"seen": seen, "unseen": unseen} | ({"frequencies": frequencies} if frequencies else {})
    corpora = {name: read(data) for name, data in names.items()}
    with progress("reading words") as bar:
        found = anatomy(
            target.model,
            corpora["seen"],
            unseen=corpora["unseen"],
            counted=corpora.get("frequencies"),
            plan=plan,
            seed=seed,
            progress=bar,
        )
    asked = record(
        context,
        {"frequent": frequent, "bins": bins, "orders": orders, "ablation_words": ablation_words},
        seed=seed,
        models={"model": target.recorded},
        data={name: of_corpus(data, corpora[name]) for name, data in names.items()},
    )
    results.save(found, out, run=asked)
    if json:
        show_json(found.summary())
        return
    _show(found)
    say(f"Run directory: {out}. A page from it: vestige report {out} --out page.html")


def _show(found: "Anatomy") -> None:
    from vestige.reports.anatomy.words import describe_anatomy, listings

    for listing in listings(list(found.rows()), found.summary()):
        show_table(listing.title, listing.columns, listing.rows)
    typer.echo(" ".join(describe_anatomy(found.summary())))
