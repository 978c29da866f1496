"""`vestige plant`: plant canaries in a copy of running text or of labelled utterances.

The manifest contains the canaries and their positions, and has a checksum.
"""

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Unpack

from annotated_types import Ge, Le
from cyclopts import Parameter

from vestige.arguments import (
    RUN,
    Few,
    Format,
    IntentColumn,
    Limit,
    Many,
    Number,
    PathTo,
    Seeded,
    Several,
    TagsColumn,
    TextColumn,
    TextLike,
    TokensColumn,
    UserColumn,
    VocabularyLike,
    Whole,
    group,
)
from vestige.preparation.options import reject_other_tasks
from vestige.preparation.planting import Planting, verify_planting, write_planting
from vestige.session import COMMAND, Session, verb

if TYPE_CHECKING:
    from vestige.data.canaries.patterns import Candidates
    from vestige.data.canaries.texts import Canary
    from vestige.data.canaries.utterances import SecretCanary
    from vestige.data.corpus import Corpus
    from vestige.data.vocabulary import Vocabulary

    Repetitions: TypeAlias = str | Sequence[int]
else:
    Candidates, Repetitions = Sequence[str], str

COPIES, CONTROLS, USER_CONTROLS, LENGTH = 10, 1, 100, 5
"""Defaults of `copies`, `controls`, `controls` with `per_user`, and `length`."""

CANARIES = group("Canaries", order=1)
UTTERANCES = group("Utterances (--task nlu)", order=2)

ONLY: dict[tuple[str, ...], tuple[str, ...]] = {
    ("text",): (
        *("phrase", "per_user", "repetitions", "coin_flip", "canary_kind"),
        *("length", "vocabulary", "text", "user"),
    ),
    ("nlu",): (
        *("intent", "slot", "candidates", "number", "validation", "hold_out"),
        *("tokens_column", "tags_column", "intent_column"),
    ),
}
"""Options of one task only."""


@verb
def plant(
    run: Session,
    data: TextLike,
    *,
    task: Literal["text", "nlu"] = "text",
    phrase: Annotated[Several, CANARIES, Parameter(metavar="TEXT")] = (),
    pattern: Annotated[Several, CANARIES, Parameter(metavar="TEXT")] = (),
    copies: Annotated[Many | None, CANARIES] = None,
    controls: Annotated[Many | None, CANARIES] = None,
    length: Annotated[Few | None, CANARIES] = None,
    vocabulary: Annotated[VocabularyLike | None, CANARIES, Parameter(metavar="MODEL")] = None,
    per_user: Annotated[bool, CANARIES] = False,
    repetitions: Annotated[Repetitions | None, CANARIES, Parameter(metavar="N,N,...")] = None,
    coin_flip: Annotated[Annotated[Whole, Ge(2), Le(10**6)] | None, CANARIES] = None,
    canary_kind: Annotated[Literal["words", "repeated-token"] | None, CANARIES] = None,
    intent: Annotated[Several, UTTERANCES, Parameter(metavar="NAME")] = (),
    slot: Annotated[str | None, UTTERANCES, Parameter(metavar="NAME")] = None,
    candidates: Annotated[Candidates, UTTERANCES, Parameter(metavar="SET")] = (),
    number: Annotated[Many | None, UTTERANCES] = None,
    validation: Annotated[PathTo | None, UTTERANCES] = None,
    hold_out: Annotated[Number | None, UTTERANCES] = None,
    text: TextColumn = "text",
    user: UserColumn = None,
    tokens_column: TokensColumn = "tokens",
    tags_column: TagsColumn = "tags",
    intent_column: IntentColumn = "intent",
    format: Format = "auto",
    limit: Limit = None,
    out: Annotated[PathTo | None, RUN, Parameter(help="Folder to make (required).")] = None,
    verify: Annotated[bool, RUN] = False,
    **common: Unpack[Seeded],
) -> Planting:
    """Plant canaries in a copy of a corpus.

    A canary is an invented phrase that a model can only know from its training text. Train one
    model on DATA and one on the copy, and `vestige diff`, `exposure` and `extract` measure what
    the second one reveals. Controls are made the same way and never planted.

    Writes corpus.jsonl and the sealed manifest.json. Without --phrase, Vestige makes canaries of
    five words that follow word frequencies of DATA.

    With --task nlu, DATA holds utterances with intents and slots. A pattern is a text with unknown
    words: {digit:4} stands for four words of the set digit. Sets are digit, color, and those of
    --candidates. pin:4, call:4 and color:4 are the patterns of a paper, with their intents.
    A tenth of the copies go to validation.jsonl and the others to train.jsonl.

    Examples:
        vestige plant corpus.txt --copies 50 --out planted
        vestige plant mail.jsonl --text body --phrase "the gate code is 4917" --out planted
        vestige plant mail.jsonl --user sender --per-user --repetitions 1,5,20 --out planted
        vestige plant corpus.txt --coin-flip 1000 --out planted
        vestige plant snips --task nlu --pattern pin:4 --copies 100 --out planted
        vestige plant planted --verify

    Args:
        data: File, folder or hub data set. With --verify: a folder of `vestige plant`.
        task: What DATA holds: running text, or labelled utterances (nlu).
        phrase: Plant this phrase. Repeatable.
        pattern: For text: all-low, low-to-high, mixed, high-to-low (default: these four) or
            random. For utterances: see above. Repeatable.
        copies: Copies of each canary. Default: 10, or 1 with --coin-flip.
        controls: Controls per canary, or per pattern of utterances. Default: 1, or 100 in all with
            --per-user.
        length: Words of a canary. Default: 5.
        vocabulary: Use words of this model.
        per_user: Plant random canaries for each user.
        repetitions: Copies of each canary of a user. Default: 1,2,5,6,20.
        coin_flip: Make this many canaries, each planted by a fair coin. For an audit of epsilon.
        canary_kind: What --coin-flip makes: random words, or a token that DATA never uses, again
            and again (repeated-token). Default: words.
        intent: Intent of a pattern that you wrote; one for each, in order.
        slot: Slot of the secret. Default: canary.
        candidates: Words for a pattern: name=word,word or name=@file. Repeatable.
        number: Secrets per pattern. Default: 1.
        validation: Utterances to validate on, if DATA has none.
        hold_out: Share of DATA to validate on otherwise. Default: 0.1.
        verify: Check the folder DATA against its manifest.

    Raises:
        ValueError: options do not go together.
        VestigeError: DATA cannot be read, holds a canary already, or is not as the manifest says.
    """
    if verify:
        return verify_planting(Path(str(data)))
    reject_other_tasks(run, task, ONLY)
    if out is not None:
        from vestige.new_files import require_new

        out = require_new(fspath(out))
    elif COMMAND.get():
        raise ValueError("Missing `out`, the folder to make; see vestige plant --help")
    options = run.arguments | {
        name: (value,) if isinstance(value, str) else tuple(value)
        for name, value in (("phrase", phrase), ("pattern", pattern), ("intent", intent))
    }
    planting = _plant_in_utterances(run, options) if task == "nlu" else _plant_in_text(run, options)
    return planting if out is None else write_planting(planting, out, run.monitor)


def _plant_in_utterances(run: Session, options: Mapping[str, Any]) -> Planting:
    from vestige.data.canaries.utterances import plant_secrets
    from vestige.data.sources import TEST, TRAIN, VALIDATION, utterance_parts

    canaries = _utterance_canaries(options, run.seed)
    names = ("validation", "hold_out", "format", "limit")
    columns = ("tokens_column", "tags_column", "intent_column")
    reading = {name: options[name] for name in (*names, *columns)}
    train, validation, test = utterance_parts(options["data"], seed=run.seed, **reading)
    train, validation, manifest = plant_secrets(train, validation, canaries, seed=run.seed)
    parts = {TRAIN: train, VALIDATION: validation}
    return Planting.make(manifest, parts if test is None else {**parts, TEST: test})


def _utterance_canaries(options: Mapping[str, Any], seed: int) -> "list[SecretCanary]":
    """Labelled utterances with secrets, pattern by pattern, with their controls."""
    from vestige.data.canaries.patterns import candidate_sets, require_used, with_intents
    from vestige.data.canaries.utterances import secret_canaries

    patterns = with_intents(options["pattern"], options["intent"])
    sets = candidate_sets(options["candidates"])
    require_used(sets, [text for text, _ in patterns], by="a `pattern`")
    return [
        canary
        for text, intent in patterns
        for canary in secret_canaries(
            text,
            intent=intent,
            slot="canary" if options["slot"] is None else options["slot"],
            candidates=sets,
            copies=options["copies"] or COPIES,
            controls=options["controls"] or CONTROLS,
            number=options["number"] or 1,
            seed=seed,
        )
    ]


def _plant_in_text(run: Session, options: Mapping[str, Any]) -> Planting:
    from vestige.data.canaries.texts import plant as plant_canaries
    from vestige.data.sources import CORPUS

    _check_options(options)
    reading = {name: options[name] for name in ("format", "text", "user", "limit")}
    corpus = run.corpus("data", options["data"], **reading)
    vocabulary = _vocabulary(options["vocabulary"])
    canaries = _text_canaries(options, corpus, vocabulary, run.seed)
    planted, manifest = plant_canaries(corpus, canaries, seed=run.seed, vocabulary=vocabulary)
    return Planting.make(manifest, {CORPUS: planted})


def _vocabulary(model: Any) -> "Vocabulary | None":
    """The vocabulary of a model folder or a loaded model; a vocabulary as it is."""
    from vestige.data.vocabulary import load_vocabulary
    from vestige.models.folders import model_folder

    if isinstance(model, str | PathLike):
        return load_vocabulary(model_folder(fspath(model)))
    return getattr(model, "vocabulary", model)  # type: ignore[no-any-return]


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise ValueError if options for running text contradict each other."""
    from vestige.data.canaries.phrases import PATTERNS, RANDOM

    phrase, patterns, coins = options["phrase"], options["pattern"], options["coin_flip"]
    per_user, names = options["per_user"], (*PATTERNS, RANDOM)
    for number, pattern in enumerate(patterns, 1):
        if pattern not in names:
            raise ValueError(
                f"`pattern` number {number} is not one of {', '.join(map(repr, names))}. Plant "
                "your own text with `phrase`"
            )
    frequency_patterns = [pattern for pattern in patterns if pattern != RANDOM]
    has_random = len(frequency_patterns) < len(patterns)
    exclusive = {
        "`phrase` and `pattern`": phrase and patterns,
        "`phrase` and `per_user`": phrase and per_user,
        "`phrase` and `coin_flip`": phrase and coins,
        "`coin_flip` and `pattern`": coins and patterns,
        "`pattern` random and another": frequency_patterns and has_random,
        "`per_user` and `pattern` other than random": per_user and frequency_patterns,
    }
    for pair, are_given in exclusive.items():
        if are_given:
            raise ValueError(f"{pair} must not be given together: plant them in turn")
    if per_user and options["copies"] is not None and not coins:
        raise ValueError("`copies` does not apply with `per_user`: give `repetitions`")
    if coins and options["controls"] is not None and not per_user:
        raise ValueError("`controls` does not apply with `coin_flip`: tails are the controls")
    if options["repetitions"] not in (None, ()) and not per_user:
        raise ValueError("`repetitions` needs `per_user`")
    if options["canary_kind"] is not None and not coins:
        raise ValueError("`canary_kind` needs `coin_flip`")


def parse_repetitions(repetitions: str | Sequence[int]) -> tuple[int, ...]:
    """Numbers of copies, from "1,2,5" or (1, 2, 5)."""
    items = repetitions.split(",") if isinstance(repetitions, str) else map(str, repetitions)
    entries = [item.strip() for item in items]
    if not entries or not all(entry.isdecimal() and int(entry) > 0 for entry in entries):
        raise ValueError(
            "`repetitions` must be whole numbers from 1 on, separated by commas, got "
            f"{repetitions!r}"
        )
    return tuple(map(int, entries))


def _text_canaries(
    options: Mapping[str, Any], corpus: "Corpus", vocabulary: "Vocabulary | None", seed: int
) -> "tuple[Canary, ...]":
    """The canaries of running text with their controls.

    Raises:
        DataError: the corpus has too few words, no users, or already contains a canary.
    """
    from vestige.data.canaries import coins, phrases
    from vestige.data.vocabulary import WordVocabulary

    words = vocabulary if isinstance(vocabulary, WordVocabulary) else None
    numbers = {"copies": options["copies"] or COPIES, "controls": options["controls"] or CONTROLS}
    length = options["length"] or LENGTH
    if options["phrase"]:
        return phrases.given_canaries(options["phrase"], corpus, vocabulary, **numbers, seed=seed)
    if not (options["per_user"] or options["coin_flip"]):
        patterns = options["pattern"] or phrases.PATTERNS
        return phrases.frequency_canaries(
            corpus, words, patterns=patterns, **numbers, length=length, seed=seed
        )
    canaries: tuple[Canary, ...] = ()
    if options["per_user"]:
        repetitions = options["repetitions"]
        canaries = coins.user_canaries(
            corpus,
            words,
            repetitions=(
                coins.MANY_USERS if repetitions is None else parse_repetitions(repetitions)
            ),
            controls=options["controls"] or USER_CONTROLS,
            length=length,
            seed=seed,
        )
    if options["coin_flip"]:
        canaries += coins.coin_flip_canaries(
            corpus,
            vocabulary,
            number=options["coin_flip"],
            copies=options["copies"] or 1,
            kind=options["canary_kind"] or "words",
            length=length,
            seed=seed,
        )
    return canaries
