"""Planting of canaries in a copy of a corpus: `vestige plant`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt

from vestige.data.sources import CORPUS, MANIFEST, TEST, TRAIN, VALIDATION, read_source
from vestige.monitor import SILENT, Monitor, Step
from vestige.result import Result
from vestige.workflows.arguments import Call
from vestige.workflows.canary_plan import CanaryPlan, repetitions_of
from vestige.workflows.inputs import Several, TextLike, VocabularyLike, open_corpus, several
from vestige.workflows.options import (
    DataFormat,
    Device,
    Directory,
    Group,
    IntentColumn,
    Limit,
    Metavar,
    ModelLike,
    Seed,
    TagsColumn,
    TextColumn,
    TokensColumn,
    UserColumn,
)
from vestige.workflows.secret_options import planned_secrets
from vestige.workflows.task_options import Only, refuse_others
from vestige.workflows.utterance_sources import Sources, read, read_parts

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.manifest import Manifest
    from vestige.data.secret_manifest import SecretManifest
    from vestige.data.utterances import Utterances
    from vestige.data.vocabulary import Vocabulary

LABELLED = Group("With --task nlu")
SAMPLING = Group("With --canary-kind sampled")
TEXT, NLU = Only("text"), Only("nlu")
PLANNED = ("copies", "controls", "per_user", "coin_flip", "canary_kind", "seed")
"""Arguments that are settings of a `CanaryPlan` as they stand."""


@dataclass(frozen=True, kw_only=True)
class Planting(Result):
    """A corpus with canaries, and the sealed record of them.

    Attributes:
        manifest: what was planted where; its `sha256` is the seal.
        parts: the copy by file name: one `Corpus`, or the parts of labelled utterances.
        directory: where both lie; None where they were not written.
        verified: whether a copy from before was checked against its manifest.
    """

    manifest: "Manifest | SecretManifest"
    parts: "Mapping[str, Corpus | Utterances]"
    directory: Path | None = None
    verified: bool = False

    @property
    def labelled(self) -> bool:
        """Whether secrets were planted in labelled utterances."""
        return CORPUS not in self.parts

    @property
    def corpus(self) -> "Corpus | Utterances":
        """The copy to train on."""
        return self.parts[TRAIN if self.labelled else CORPUS]

    def summary(self) -> dict[str, object]:
        """Numbers of canaries, of controls and of copies, and the seal."""
        manifest: Any = self.manifest
        planted = [canary for canary in manifest.canaries if canary.planted]
        shared = {
            "canaries": len(planted),
            "controls": len(manifest.canaries) - len(planted),
            "copies": sum(canary.copies for canary in planted),
        }
        if self.labelled:
            names = (TRAIN, VALIDATION, TEST)
            sizes = {Path(name).stem: len(self.parts.get(name, ())) for name in names}
            kind = {"task": "nlu", "patterns": len(manifest.patterns), **shared, **sizes}
        else:
            users = {canary.user for canary in planted if canary.user}
            kind = {**shared, "users": len(users)}
        where = {} if self.directory is None else {"directory": str(self.directory)}
        checked = {"verified": True} if self.verified else {}
        return {**where, **kind, "seed": manifest.seed, "sha256": manifest.sha256, **checked}

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a canary or control, in the manifest's order."""
        manifest: Any = self.manifest
        for number, canary in enumerate(manifest.canaries):
            row = {"pattern": canary.pattern, "copies": canary.copies}
            if self.labelled:
                validated = len(manifest.validation_positions[number])
                secret = list(canary.secret)
                row |= {"intent": canary.intent, "secret": secret, "validation": validated}
            else:
                row |= {"phrase": canary.phrase, "user": canary.user}
            yield row


def plant(
    data: Annotated[TextLike, Metavar("DATA")],
    *,
    out: Directory | None = None,
    task: Literal["text", "nlu"] = "text",
    phrase: Annotated[Several, TEXT] = (),
    pattern: Several = (),
    intent: Annotated[Several, NLU, LABELLED] = (),
    slot: Annotated[str | None, NLU, LABELLED] = None,
    candidates: Annotated[Sequence[str], NLU, LABELLED, Metavar("SET")] = (),
    number: Annotated[int | None, Ge(1), NLU, LABELLED] = None,
    validation: Annotated[Path | None, NLU, LABELLED, Metavar("FILE")] = None,
    hold_out: Annotated[float | None, NLU, LABELLED] = None,
    copies: Annotated[int | None, Ge(1)] = None,
    controls: Annotated[int | None, Ge(1)] = None,
    per_user: Annotated[bool, TEXT] = False,
    repetitions: Annotated[str | None, TEXT, Metavar("N,N,…")] = None,
    coin_flip: Annotated[int | None, Ge(2), TEXT] = None,
    canary_kind: Annotated[
        Literal["words", "random", "new-token", "repeated-token", "sampled"] | None, TEXT
    ] = None,
    sampled_from: Annotated[ModelLike | None, TEXT, SAMPLING, Metavar("MODEL")] = None,
    temperature: Annotated[float | None, Gt(0), TEXT, SAMPLING] = None,
    prompt: Annotated[Several, TEXT, SAMPLING] = (),
    device: Annotated[Device, TEXT, SAMPLING] = "auto",
    length: Annotated[int | None, Ge(1), TEXT] = None,
    vocabulary: Annotated[VocabularyLike | None, TEXT, Metavar("MODEL")] = None,
    seed: Seed = 0,
    verify: bool = False,
    format: DataFormat = "auto",
    text: Annotated[TextColumn, TEXT] = "text",
    user: Annotated[UserColumn, TEXT] = None,
    tokens_column: Annotated[TokensColumn, NLU] = "tokens",
    tags_column: Annotated[TagsColumn, NLU] = "tags",
    intent_column: Annotated[IntentColumn, NLU] = "intent",
    limit: Limit = None,
    monitor: Monitor = SILENT,
) -> Planting:
    """Canaries planted in a copy of DATA.

    A canary is a phrase that a model has no reason to know unless it was trained on it. Train
    one model on DATA and one on the copy, and `vestige diff` and `vestige rank` say how well
    the second gives the canaries away; of that one alone, `vestige complete` does.

    DIR will hold `corpus.jsonl` and the sealed `manifest.json`. Without `phrase` the canaries
    are made: grammatical phrases whose words follow a frequency pattern of the corpus at hand.
    Every set has controls, made alike and never planted. With `per_user` every user has
    canaries of five random words, one for each number of repetitions; with `coin_flip` the
    controls are those whose coin fell on tails.

    With `--task nlu`, DATA holds utterances with intents and slots, and a canary is one with a
    secret in it: `--pattern "my pin code is {digit:4}" --intent PinIntent`. There, {name:n}
    stands for n words of a set: `digit`, `color`, or one that `candidates` gives. `pin:4`,
    `call:4` and `color:4` stand for the paper's three, intent included. Of R copies, R / 10
    rounded down go to `validation.jsonl` and the rest to `train.jsonl`; the manifest holds all
    that `vestige extract-nlu` needs to know.

    Args:
        data: A file, folder or hub data set; with `verify` a DIR from before.
        out: A directory to make; it must not exist.
        task: What DATA holds: running text, or labelled utterances.
        phrase: Plant this phrase; may be given several times.
        pattern: Make canaries of this pattern. Text: `all-low`, `low-to-high`, `mixed`,
            `high-to-low` (default: these) or `random`; utterances: see above.
        intent: The intent of a pattern of your own; one for each of them, in order.
        slot: The slot that a secret fills; default: canary.
        candidates: Words that a pattern may name: name=word,word or name=@file with a word a line.
        number: How many secrets of each pattern to plant; default: 1.
        validation: Utterances to validate on, where DATA has none for that.
        hold_out: The share of DATA to validate on, where there is no other; default: 0.1.
        copies: Copies of each canary; default: 10, or 1 with `coin_flip`.
        controls: Controls per canary (with --task nlu per pattern), never planted; default: 1, or
            100 in all with `per_user`.
        per_user: Random canaries of their own for every user.
        repetitions: How often each canary of a user is planted; default: 1,2,5,6,20.
        coin_flip: Make so many random canaries, each planted by a fair coin, for an audit.
        canary_kind: What `coin_flip` makes: `words` (the default), five of them at random; `random`
            tokens of the vocabulary; a `new-token` that DATA never uses, after words that all
            share; a `repeated-token`, nothing but a new one; or `sampled`, lines that a language
            model writes. The new ones are the hardest for a private training to hide, and need a
            `vocabulary` with unused tokens; sampled ones look like DATA.
        sampled_from: The language model that writes them; one that has not read DATA.
        temperature: How freely it writes: 0.8 or more makes outliers; default: 1.
        prompt: A line like those of DATA, which the model reads before it writes one; may be given
            several times. The manifest holds it, so give none that is private.
        length: Words in a made canary; default: 5. Of a sampled one tokens at most; default: 32.
        vocabulary: A model whose words to choose from.
        verify: Check DIR against its manifest; change nothing.

    Examples:
        vestige plant corpus.txt --out planted --copies 50

        vestige plant mail.jsonl --text body --phrase "the gate code is 4917" --out planted

        vestige plant mail.jsonl --user sender --per-user --repetitions 1,5,20 --out planted

        vestige plant corpus.txt --coin-flip 1000 --out planted

        vestige plant mail.jsonl --coin-flip 60 --canary-kind sampled --sampled-from base --out new

        vestige plant snips --task nlu --pattern pin:4 --copies 100 --out planted

        vestige plant planted --verify
    """
    call = Call.of(plant, locals())
    if verify:
        return call.record(_verified(data), configuration={})
    refuse_others(plant, call.arguments)
    out = None if out is None else Path(out)
    if out is not None:
        from vestige import results

        results.require_new(out)
    planting = _in_utterances if task == "nlu" else _in_corpus
    found = planting(call.arguments, monitor)
    if out is not None:
        write_planting(found, out, monitor)
        found = replace(found, directory=out)
    return call.record(found, configuration={}, seed=seed)


def _in_utterances(given: Mapping[str, Any], monitor: Monitor) -> Planting:
    """Secrets in labelled utterances, by the arguments of `plant`."""
    from vestige.data.secret_manifest import plant_secrets

    seed: int = given["seed"]
    shared = {name: given[name] for name in ("slot", "candidates", "copies", "controls", "number")}
    canaries = planned_secrets(
        several(given["pattern"]), intents=several(given["intent"]), **shared, seed=seed
    )
    read_by = {name: given[name] for name in ("data", "format", "limit", "validation", "hold_out")}
    columns = (given["tokens_column"], given["tags_column"], given["intent_column"])
    train, validation, test = read_parts(Sources(**read_by, columns=columns), seed)
    train, validation, manifest = plant_secrets(train, validation, canaries, seed=seed)
    parts = {TRAIN: train, VALIDATION: validation} | ({} if test is None else {TEST: test})
    return Planting(manifest=manifest, parts=parts)


def _in_corpus(given: Mapping[str, Any], monitor: Monitor) -> Planting:
    """Canaries in running text, by the arguments of `plant`."""
    from vestige.data.manifest import plant as planted_in
    from vestige.workflows.sampled_canaries import requested

    shared = {name: given[name] for name in PLANNED}
    plan = CanaryPlan(
        phrase=several(given["phrase"]),
        pattern=several(given["pattern"]),
        repetitions=repetitions_of(given["repetitions"]),
        length=given["length"],
        **shared,
    )
    columns = {name: given[name] for name in ("format", "text", "user", "limit")}
    corpus = open_corpus(given["data"], **columns)
    known = None if given["vocabulary"] is None else _vocabulary(given["vocabulary"])
    sampler, sampling = requested(given)
    canaries = plan.make(corpus, known, sampler, monitor)
    planted, manifest = planted_in(corpus, canaries, seed=plan.seed, vocabulary=known)
    manifest = replace(manifest, sampling=sampling)
    return Planting(manifest=manifest, parts={CORPUS: planted})


def _vocabulary(model: "VocabularyLike") -> "Vocabulary":
    """The vocabulary of a model's folder or of a loaded model, or itself."""
    from vestige.data.vocabulary import load_vocabulary
    from vestige.models.folders import model_folder

    if isinstance(model, str | PathLike):
        return load_vocabulary(model_folder(fspath(model)))
    loaded: Any = model
    found: Vocabulary = getattr(loaded, "vocabulary", loaded)
    return found


def write_planting(planting: Planting, out: Path, monitor: Monitor) -> None:
    """Write the copy and its manifest, whole or not at all."""
    from vestige import results
    from vestige.data.corpus import Corpus
    from vestige.data.corpus_file import write_corpus
    from vestige.data.loaders.utterances import write_utterances

    writing = monitor.progress("writing the planted copy")
    with results.new_directory(out) as hidden, writing as step:
        for name, part in planting.parts.items():
            if isinstance(part, Corpus):
                write_corpus(part, hidden / name, progress=_of(len(part), step))
            elif len(part):
                write_utterances(part, hidden / name)
        planting.manifest.save(hidden / MANIFEST)


def _of(total: int, step: Step) -> Callable[[int], None]:
    return lambda done: step(done, total)


def _verified(data: object) -> Planting:
    """A planted directory that holds what its manifest says."""
    from vestige.data.checksum import format_of
    from vestige.data.manifest import Manifest
    from vestige.data.secret_manifest import FORMAT

    directory = Path(str(data))
    if format_of(directory / MANIFEST) == FORMAT:
        return _verified_secrets(directory)
    manifest = Manifest.load(directory / MANIFEST)
    users = "user" if _has_users(directory / CORPUS) else None
    corpus = read_source(str(directory / CORPUS), user=users)
    manifest.verify(corpus)
    return Planting(manifest=manifest, parts={CORPUS: corpus}, directory=directory, verified=True)


def _verified_secrets(directory: Path) -> Planting:
    from vestige.data.secret_manifest import SecretManifest
    from vestige.data.utterances import Utterances

    manifest = SecretManifest.load(directory / MANIFEST)
    names = [name for name in (TRAIN, VALIDATION, TEST) if (directory / name).exists()]
    parts = {name: read(directory / name).train for name in names}
    nothing = Utterances.of([])
    manifest.verify(parts.get(TRAIN, nothing), parts.get(VALIDATION, nothing))
    parts = {TRAIN: nothing} | parts
    return Planting(manifest=manifest, parts=parts, directory=directory, verified=True)


def _has_users(path: Path) -> bool:
    try:
        with path.open("rb") if path.is_file() else BytesIO() as file:
            return b'"user":' in file.readline()
    except OSError:
        return False  # the reader says what is wrong with it
