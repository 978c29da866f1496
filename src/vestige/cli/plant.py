"""`vestige plant`: put canaries into a copy of a corpus, and keep a sealed record of them."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli import options, planned_canaries
from vestige.cli.planned_canaries import Wanted
from vestige.cli.planted_listing import LISTED, show_canaries
from vestige.cli.tasks import Task, refuse_others
from vestige.cli.terminal import progress, say, show_json
from vestige.cli.training_plan import borrow
from vestige.workflows.sources import CORPUS, MANIFEST, read_source

if TYPE_CHECKING:
    from vestige.data.canary import Canary
    from vestige.data.corpus import Corpus
    from vestige.data.manifest import Manifest
    from vestige.data.vocabulary import Vocabulary

PATTERNS = ("all-low", "low-to-high", "mixed", "high-to-low", "random")
"""Which words make a canary of text."""


BELONGS_TO = {
    **dict.fromkeys(("phrase", "per_user", "repetitions", "coin_flip", "length"), Task.text),
    **dict.fromkeys(("vocabulary", "text", "user"), Task.text),
    **dict.fromkeys(("intent", "slot", "candidates", "number"), Task.nlu),
    **dict.fromkeys(("validation", "hold_out"), Task.nlu),
    **dict.fromkeys(("tokens_column", "tags_column", "intent_column"), Task.nlu),
}
"""Parameters that only one task has."""

LABELLED = "With --task nlu"


def command(
    context: typer.Context,
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
    task: Annotated[
        Task, typer.Option("--task", help="What DATA holds: running text, or labelled utterances.")
    ] = Task.text,
    phrase: Annotated[
        list[str] | None,
        typer.Option("--phrase", help="Plant this phrase; may be given several times."),
    ] = None,
    pattern: Annotated[
        list[str] | None,
        typer.Option(
            "--pattern",
            help="Make canaries of this pattern. Text: `all-low`, `low-to-high`, `mixed`, "
            "`high-to-low` (default: these) or `random`; utterances: see above.",
        ),
    ] = None,
    intent: Annotated[
        list[str] | None,
        typer.Option(
            "--intent",
            help="The intent of a pattern of your own; one for each of them, in order.",
            rich_help_panel=LABELLED,
        ),
    ] = None,
    slot: Annotated[
        str | None,
        typer.Option(
            "--slot",
            help="The slot that a secret fills; default: canary.",
            rich_help_panel=LABELLED,
        ),
    ] = None,
    candidates: Annotated[
        list[str] | None,
        typer.Option(
            "--candidates",
            help="Words that a pattern may name: name=word,word or name=@file with a word a line.",
            metavar="SET",
            rich_help_panel=LABELLED,
        ),
    ] = None,
    number: Annotated[
        int | None,
        typer.Option(
            "--number",
            min=1,
            help="How many secrets of each pattern to plant; default: 1.",
            rich_help_panel=LABELLED,
        ),
    ] = None,
    validation: Annotated[
        Path | None,
        typer.Option(
            "--validation",
            help="Utterances to validate on, where DATA has none for that.",
            metavar="FILE",
            rich_help_panel=LABELLED,
        ),
    ] = None,
    hold_out: Annotated[
        float | None,
        typer.Option(
            "--hold-out",
            help="The share of DATA to validate on, where there is no other; default: 0.1.",
            rich_help_panel=LABELLED,
        ),
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
            help="Controls per canary (with --task nlu per pattern), never planted; default: 1, "
            "or 100 in all with --per-user.",
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
    tokens_column: options.TokensColumn = "tokens",
    tags_column: options.TagsColumn = "tags",
    intent_column: options.IntentColumn = "intent",
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

    With `--task nlu`, DATA holds utterances with intents and slots, and a canary is one with a
    secret in it: `--pattern "my pin code is {digit:4}" --intent PinIntent`. There, {name:n}
    stands for n words of a set: `digit`, `color`, or one that `--candidates` gives. `pin:4`,
    `call:4` and `color:4` stand for the paper's three, intent included. Of R copies, R / 10
    rounded down go to `validation.jsonl` and the rest to `train.jsonl`; the manifest holds all
    that `vestige extract-nlu` needs to know.

    Examples:

        vestige plant corpus.txt --out planted --copies 50

        vestige plant mail.jsonl --text body --phrase "the gate code is 4917" --out planted

        vestige plant mail.jsonl --user sender --per-user --repetitions 1,5,20 --out planted

        vestige plant corpus.txt --coin-flip 1000 --out planted

        vestige plant snips --task nlu --pattern pin:4 --copies 100 --out planted

        vestige plant planted --verify
    """
    if verify:
        _verify(Path(data), as_json=json)
        return
    refuse_others(context, task, BELONGS_TO)
    if out is None:
        raise ValueError("--out must be given: the directory for the planted copy and its manifest")
    if task is Task.nlu:
        from vestige.cli import plant_secrets
        from vestige.workflows import utterance_sources

        plant_secrets.run(
            utterance_sources.Sources(
                data=data,
                format=format,
                columns=(tokens_column, tags_column, intent_column),
                limit=limit,
                validation=validation,
                hold_out=hold_out,
            ),
            plant_secrets.WantedSecrets(
                patterns=pattern or (),
                intents=intent or (),
                slot=slot,
                candidates=candidates or (),
                copies=copies,
                controls=controls,
                number=number,
                seed=seed,
            ),
            out,
            as_json=json,
            show_secrets=show_secrets,
        )
        return
    from vestige import results

    results.require_new(out)
    wanted = Wanted(
        phrases=phrase or (),
        patterns=_known(pattern or ()),
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


def _known(patterns: Sequence[str]) -> Sequence[str]:
    for number, pattern in enumerate(patterns, 1):
        if pattern not in PATTERNS:
            names = ", ".join(map(repr, PATTERNS))
            raise typer.BadParameter(
                f"number {number} is not one of {names}; a phrase of your own is a --phrase.",
                param_hint="'--pattern'",
            )
    return patterns


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
    from vestige.data.checksum import format_of
    from vestige.data.manifest import Manifest
    from vestige.data.secret_manifest import FORMAT

    if format_of(directory / MANIFEST) == FORMAT:
        from vestige.cli import plant_secrets

        plant_secrets.verify(directory, as_json=as_json)
        return
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
        with path.open("rb") if path.is_file() else BytesIO() as file:
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
    from vestige.reports.components.disclosure import disclose

    listed = manifest.canaries[:LISTED]
    shown = disclose([c.phrase for c in listed], show_secrets=show_secrets)
    rows = [
        (phrase, canary.pattern, canary.copies if canary.planted else "control")
        for phrase, canary in zip(shown, listed, strict=True)
    ]
    show_canaries(["phrase", "pattern", "copies"], rows, [c.copies for c in manifest.canaries])
