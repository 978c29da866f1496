"""`vestige plant`: put canaries into a copy of a corpus, and keep a sealed record of them."""

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli import options, planned_canaries
from vestige.cli.planned_canaries import Wanted
from vestige.cli.sources import CORPUS, MANIFEST, read_source
from vestige.cli.terminal import progress, say, show_json, show_table
from vestige.cli.training_plan import borrow

if TYPE_CHECKING:
    from vestige.data.canary import Canary
    from vestige.data.corpus import Corpus
    from vestige.data.manifest import Manifest
    from vestige.data.vocabulary import Vocabulary

LISTED = 40
"""Canaries that the terminal names one by one; the manifest has them all."""


class Pattern(StrEnum):
    """Which words make a canary."""

    all_low = "all-low"
    low_to_high = "low-to-high"
    mixed = "mixed"
    high_to_low = "high-to-low"
    random = "random"


def command(
    data: Annotated[
        str,
        typer.Argument(
            help="A file, folder or hub data set; with --verify a DIR from before.", metavar="DATA"
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="A directory to make; it must not exist.", metavar="DIR"),
    ] = None,
    phrase: Annotated[
        list[str] | None,
        typer.Option("--phrase", help="Plant this phrase; may be given several times."),
    ] = None,
    pattern: Annotated[
        list[Pattern] | None,
        typer.Option("--pattern", help="Make canaries of this pattern; default: all but random."),
    ] = None,
    copies: Annotated[
        int | None,
        typer.Option(
            "--copies", min=1, help="Copies of each canary; default: 10, or 1 with --coin-flip."
        ),
    ] = None,
    controls: Annotated[
        int | None,
        typer.Option(
            "--controls",
            min=1,
            help="Controls per canary, never planted; default: 1, or 100 in all with --per-user.",
        ),
    ] = None,
    per_user: Annotated[
        bool, typer.Option("--per-user", help="Random canaries of their own for every user.")
    ] = False,
    repetitions: Annotated[
        str | None,
        typer.Option(
            "--repetitions",
            help="How often each canary of a user is planted; default: 1,2,5,6,20.",
            metavar="N,N,…",
        ),
    ] = None,
    coin_flip: Annotated[
        int | None,
        typer.Option(
            "--coin-flip",
            min=2,
            help="Make so many random canaries, each planted by a fair coin, for an audit.",
        ),
    ] = None,
    length: Annotated[int, typer.Option("--length", min=1, help="Words in a made canary.")] = 5,
    vocabulary: Annotated[
        Path | None,
        typer.Option("--vocabulary", help="A model whose words to choose from.", metavar="MODEL"),
    ] = None,
    seed: options.Seed = 0,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check DIR against its manifest; change nothing.")
    ] = False,
    json: options.Json = False,
    show_secrets: options.ShowSecrets = False,
    format: options.DataFormat = "auto",
    text: options.TextColumn = "text",
    user: options.UserColumn = None,
    limit: options.Limit = None,
) -> None:
    """Plant canaries in a copy of DATA.

    A canary is a phrase that a model has no reason to know unless it was trained on it. Train
    one model on DATA and one on the copy, and `vestige diff` and `vestige rank` say how well
    the second gives the canaries away; of that one alone, `vestige complete` does.

    DIR will hold `corpus.jsonl` and the sealed `manifest.json`. Without `--phrase` the canaries
    are made: grammatical phrases whose words follow a frequency pattern of the corpus at hand.
    Every set has controls, made alike and never planted. With `--per-user` every user has
    canaries of five random words, one for each number of repetitions; with `--coin-flip` the
    controls are those whose coin fell on tails.

    Examples:

        vestige plant corpus.txt --out planted --copies 50

        vestige plant mail.jsonl --text body --phrase "the gate code is 4917" --out planted

        vestige plant mail.jsonl --user sender --per-user --repetitions 1,5,20 --out planted

        vestige plant corpus.txt --coin-flip 1000 --out planted

        vestige plant planted --verify
    """
    if verify:
        _verify(Path(data), as_json=json)
        return
    if out is None:
        raise ValueError("--out must be given: the directory for the planted copy and its manifest")
    from vestige import results

    results.require_new(out)
    wanted = Wanted(
        phrases=phrase or (),
        patterns=pattern or (),
        copies=copies,
        controls=controls,
        length=length,
        per_user=per_user,
        repetitions=planned_canaries.repetitions(repetitions),
        coin_flip=coin_flip,
        seed=seed,
    )
    corpus = read_source(data, format=format, text=text, user=user, limit=limit)
    known = None if vocabulary is None else borrow(vocabulary)
    canaries = planned_canaries.make(corpus, known, wanted)
    manifest = _write(corpus, canaries, known, seed, out)
    if json:
        show_json(_summary(manifest, out))
        return
    _show(manifest, show_secrets)
    say(f"Planted copy and sealed manifest: {out} (SHA-256 {manifest.sha256[:12]}…)")


def _write(
    corpus: "Corpus",
    canaries: tuple["Canary", ...],
    vocabulary: "Vocabulary | None",
    seed: int,
    out: Path,
) -> "Manifest":
    from vestige import results
    from vestige.data.corpus_file import write_corpus
    from vestige.data.manifest import plant

    planted, manifest = plant(corpus, canaries, seed=seed, vocabulary=vocabulary)
    with results.new_directory(out) as partial, progress("writing the planted copy") as bar:
        write_corpus(planted, partial / CORPUS, progress=lambda done: bar(done, len(planted)))
        manifest.save(partial / MANIFEST)
    return manifest


def _verify(directory: Path, *, as_json: bool) -> None:
    from vestige.data.manifest import Manifest

    manifest = Manifest.load(directory / MANIFEST)
    users = "user" if _has_users(directory / CORPUS) else None
    corpus = read_source(str(directory / CORPUS), user=users)
    manifest.verify(corpus)
    if as_json:
        show_json(_summary(manifest, directory) | {"verified": True})
    else:
        say(f"{directory} is as it was sealed: SHA-256 {manifest.sha256}")


def _has_users(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b'"user":' in file.readline()
    except OSError:
        return False  # the reader says what is wrong with it


def _summary(manifest: "Manifest", directory: Path) -> dict[str, object]:
    planted = [canary for canary in manifest.canaries if canary.planted]
    return {
        "directory": str(directory),
        "canaries": len(planted),
        "controls": len(manifest.canaries) - len(planted),
        "copies": sum(canary.copies for canary in planted),
        "users": len({canary.user for canary in planted if canary.user}),
        "seed": manifest.seed,
        "sha256": manifest.sha256,
    }


def _show(manifest: "Manifest", show_secrets: bool) -> None:
    from vestige.reports.disclosure import disclose

    listed = manifest.canaries[:LISTED]
    shown = disclose([c.phrase for c in listed], show_secrets=show_secrets)
    rows = [
        (phrase, canary.pattern, canary.copies if canary.planted else "control")
        for phrase, canary in zip(shown, listed, strict=True)
    ]
    show_table("Canaries", ["phrase", "pattern", "copies"], rows)
    if len(manifest.canaries) > LISTED:
        number = Counter(canary.copies for canary in manifest.canaries)
        counts = [(copies or "control", number[copies]) for copies in sorted(number)]
        show_table(f"All {len(manifest.canaries):,}", ["copies", "canaries"], counts)
