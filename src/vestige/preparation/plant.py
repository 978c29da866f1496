"""`vestige plant`: canaries in a copy of a corpus.

The manifest says what was planted where, and is sealed with a checksum.
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
from vestige.preparation.options import reject_others
from vestige.preparation.planting import Planting, verify_planting, write_planting
from vestige.session import COMMAND, Session, verb

if TYPE_CHECKING:
    from vestige.data.canaries.patterns import Candidates
    from vestige.data.vocabulary import Vocabulary

    Repetitions: TypeAlias = str | Sequence[int]
else:
    Candidates, Repetitions = Sequence[str], str

CANARIES = group("Canaries", place=1)
UTTERANCES = group("Utterances (--task nlu)", place=2)

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
"""Options that only one task has."""


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
    reject_others(run, task, ONLY)
    if out is not None:
        from vestige.new_files import require_new

        out = require_new(fspath(out))
    elif COMMAND.get():
        raise ValueError("Missing `out`, the folder to make; see vestige plant --help")
    lists = {name: run.arguments[name] for name in ("phrase", "pattern", "intent")}
    several = {n: (one,) if isinstance(one, str) else tuple(one) for n, one in lists.items()}
    planting = (_in_utterances if task == "nlu" else _in_text)(run, run.arguments | several)
    return planting if out is None else write_planting(planting, out, run.monitor)


def _in_utterances(run: Session, given: Mapping[str, Any]) -> Planting:
    """Secrets in labelled utterances."""
    from vestige.data.canaries.utterances import plant_secrets
    from vestige.data.sources import TEST, TRAIN, VALIDATION, utterance_parts
    from vestige.preparation.canaries import utterance_canaries

    canaries = utterance_canaries(given, run.seed)
    reading = ("format", "limit", "tokens_column", "tags_column", "intent_column")
    train, validation, test = utterance_parts(
        given["data"], seed=run.seed, **_some(given, "validation", "hold_out", *reading)
    )
    train, validation, manifest = plant_secrets(train, validation, canaries, seed=run.seed)
    tested = {} if test is None else {TEST: test}
    return Planting.made(manifest, {TRAIN: train, VALIDATION: validation, **tested})


def _in_text(run: Session, given: Mapping[str, Any]) -> Planting:
    """Canaries in running text."""
    from vestige.data.canaries.texts import plant as plant_in
    from vestige.data.sources import CORPUS
    from vestige.preparation.canaries import check_canaries, text_canaries

    check_canaries(given)
    corpus = run.corpus("data", given["data"], **_some(given, "format", "text", "user", "limit"))
    known = _vocabulary(given["vocabulary"])
    canaries = text_canaries(given, corpus, known, run.seed)
    planted, manifest = plant_in(corpus, canaries, seed=run.seed, vocabulary=known)
    return Planting.made(manifest, {CORPUS: planted})


def _vocabulary(model: Any) -> "Vocabulary | None":
    """The vocabulary of a model folder or of a loaded model, or itself."""
    from vestige.data.vocabulary import load_vocabulary
    from vestige.models.folders import model_folder

    if isinstance(model, str | PathLike):
        return load_vocabulary(model_folder(fspath(model)))
    return getattr(model, "vocabulary", model)  # type: ignore[no-any-return]


def _some(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: given[name] for name in names}
