"""`vestige extract`: which texts can be extracted from a model?

Completion follows Mireshghallah et al. (NAACL 2021), passages Carlini et al. (2021) and Hayes et
al. (2024), unknown words of utterances Parikh, Dupuy and Gupta (ACL 2022).
"""

from collections.abc import Mapping, Sequence
from inspect import signature
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Unpack

from cyclopts import Parameter

from vestige.arguments import (
    AuthorColumn,
    Common,
    CorpusLike,
    Count,
    Draws,
    Format,
    Limit,
    Natural,
    PathTo,
    Positive,
    Probability,
    TextColumn,
    Width,
    group,
)
from vestige.audits.extraction.recognition import KINDS, Kind, ReadAs, recognized
from vestige.models.remote_options import RemoteOptions
from vestige.results import Result
from vestige.session import Session, verb

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.manifest import Manifest
    from vestige.data.secret_manifest import SecretManifest
    from vestige.models.protocols import LanguageModel
    from vestige.models.white_box import IntentSlotNetwork

    AnyModel: TypeAlias = str | PathLike[str] | LanguageModel | IntentSlotNetwork
    What: TypeAlias = str | PathLike[str] | Manifest | SecretManifest | Corpus | Sequence[str]
    Candidates: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]
else:
    AnyModel = What = str
    Candidates = Sequence[str]

Attack = Literal["auto", "exact", "coordinate", "beam", "gradient", "paper", "embedding", "random"]
Objective = Literal["joint", "tags", "intent", "calibrated"]

GIVEN = group("Completion")
PASSAGES = group("Passages")
WORDS = group("Unknown words of an utterance")
TEXT = Parameter(metavar="TEXT")
MODEL = Parameter(metavar="MODEL")

_DATA = ("format", "text", "author", "limit")
_SEARCH = ("attack", "objective", "reference_model", "search_budget", "rank_sample")
APPLIES: dict[Kind, tuple[str, ...]] = {
    "canaries": ("prefix", "beam"),
    "secrets": ("question", "beam"),
    "texts": (
        *("prefix", "suffix", "reference", "samples", "probability", "top_k", "temperature"),
        *("continued", "statistics", "remote"),
        *_DATA,
    ),
    "utterances": ("also", "controls", *_SEARCH),
    "pattern": ("pattern", "intent", "slot", "candidates", "truth", *_SEARCH),
}
"""Options of each kind of WHAT."""


@verb
def extract(
    run: Session,
    model: AnyModel,
    what: What | None = None,
    *,
    as_: ReadAs = "auto",
    prefix: Annotated[Width | None, GIVEN] = None,
    beam: Annotated[Width, GIVEN] = 10,
    question: Annotated[str | None, GIVEN, TEXT] = None,
    reference: Annotated[CorpusLike | None, PASSAGES, Parameter(metavar="DATA")] = None,
    suffix: Annotated[Width, PASSAGES] = 50,
    samples: Annotated[Draws, PASSAGES] = 100,
    probability: Annotated[Probability, PASSAGES] = 0.5,
    top_k: Annotated[Width, PASSAGES] = 20,
    temperature: Annotated[Positive, PASSAGES] = 1.0,
    continued: Annotated[Natural, PASSAGES] = 200,
    statistics: Annotated[PathTo | None, PASSAGES, Parameter(metavar="DIR")] = None,
    pattern: Annotated[str | None, WORDS, TEXT] = None,
    intent: Annotated[str | None, WORDS] = None,
    slot: Annotated[str | None, WORDS] = None,
    candidates: Annotated[Candidates, WORDS, Parameter(metavar="SET")] = (),
    truth: Annotated[str | None, WORDS, TEXT] = None,
    also: Annotated[Sequence[AnyModel], WORDS, MODEL] = (),
    controls: Annotated[Natural, WORDS] = 1999,
    attack: Annotated[Attack, WORDS] = "auto",
    objective: Annotated[Objective, WORDS] = "joint",
    reference_model: Annotated[Sequence[AnyModel], WORDS, MODEL] = (),
    search_budget: Annotated[Count, WORDS] = 10**6,
    rank_sample: Annotated[Natural, WORDS] = 20_000,
    format: Format = "auto",
    text: TextColumn = "text",
    author: AuthorColumn = None,
    limit: Limit = None,
    remote: RemoteOptions = RemoteOptions(),
    **common: Unpack[Common],
) -> Result:
    """Measure which canaries, secrets or passages a model generates verbatim.

    WHAT is recognized by its content. A folder or manifest of `vestige plant` gives canaries, or
    secrets in utterances. A .txt file holds one secret per line, as for `vestige exposure`. Any
    other file or folder holds texts of the training data. Pass --as texts if a .txt file does, too.

    Canaries and secrets: the model reads the beginning and must generate the whole rest, by greedy
    decoding or as the best continuation of a beam.

    Texts: the model reads all text before a passage. The passage is extracted if one of --samples
    samples is the passage with --probability or more ((n, p)-discoverable extraction). Any model
    generates common phrases, so a verdict needs --reference: texts of the same kind that are not
    in the training data. Model outputs are cached: the same command resumes.

    Utterances: an intent-and-slot model is searched for unknown words, those of the manifest or of
    --pattern.

    Examples:
        vestige extract trained planted --out run
        vestige extract tuned secrets.txt --out run
        vestige extract tuned mine.jsonl --reference never.jsonl --out run
        vestige extract nlu planted-nlu --out run
        vestige extract nlu --pattern pin:4 --truth "4 0 7 1" --out run

    Args:
        model: Model folder, GGUF file, hub name or adapter; for texts also openai:URL#MODEL.
        what: Manifest, file with one secret per line, or texts.
        as_: Read WHAT as secrets or as texts.
        prefix: Tokens that the model is given. Default: 1 of a canary, 50 of a text.
        beam: Continuations that the beam search keeps.
        question: Ask for the secrets in the chat turn after this user message.
        reference: Texts of the same kind that are not in the training data.
        suffix: Tokens of a passage.
        samples: Samples of each passage.
        probability: Least probability that one of them is the passage.
        top_k: Sample from this many most probable tokens.
        temperature: Temperature of the samples.
        continued: Random texts to continue greedily, for edit similarity and BLEU. 0: none.
        statistics: Folder for cached model outputs. Default: OUT.statistics.
        pattern: Text with its unknown words in braces, such as "my pin is {digit:4}"; or pin:4,
            call:4, color:4.
        intent: Intent of the utterance. Not needed for pin:4 and its like.
        slot: Slot of the unknown words. Default: canary.
        candidates: Words that an unknown word may be: name=word,word or name=@file. Repeatable.
        truth: The true words, which get a rank.
        also: Another model of the same training with another seed. Repeatable.
        controls: Secrets that were never planted, to compare with.
        attack: Search method. auto tries every secret up to --search-budget, else coordinate.
        objective: Loss that is minimized; calibrated subtracts the loss of --reference-model.
        reference_model: Model that never saw the secret. Repeatable.
        search_budget: Try every secret if there are at most this many.
        rank_sample: Otherwise estimate ranks from this many random secrets. 0: no rank.

    Raises:
        ValueError: an option does not go with WHAT.
        VestigeError: a model or file cannot be read, or nothing in it can be extracted.
    """
    kind = _kind(what, pattern, as_)
    _reject_others(kind, run.arguments)
    if kind == "canaries":
        from vestige.audits.extraction.completion import complete_canaries

        return Result.of(complete_canaries(run, model, what, prefix=prefix, beam=beam))
    if kind == "secrets":
        from vestige.audits.extraction.completion import complete_own_secrets

        return complete_own_secrets(run, model, what, question=question, beam=beam)
    if kind == "texts":
        return _of_texts(run, model, what)
    return _of_utterances(run, model, what)


def _of_texts(run: Session, model: Any, texts: Any) -> Result:
    """Passages of texts."""
    from vestige.attacks.texts.memorized_texts import Extraction
    from vestige.audits.extraction.passages import extract_passages

    given = run.arguments
    how = Extraction(
        prefix=run.chosen(prefix=given["prefix"] or 50),
        suffix=given["suffix"],
        tries=given["samples"],
        chance=given["probability"],
        top_k=given["top_k"],
        temperature=given["temperature"],
    )
    lists = {"texts": texts, "reference": given["reference"]}
    return extract_passages(
        run,
        model,
        {role: one for role, one in lists.items() if one is not None},
        how,
        continued=given["continued"],
        statistics=given["statistics"],
        columns={name: given[name] for name in _DATA},
        remote=given["remote"],
    )


def _of_utterances(run: Session, model: Any, manifest: Any) -> Result:
    """Unknown words of utterances."""
    from vestige.attacks.extraction.nlu_extraction import Ranking
    from vestige.audits.extraction.utterances import extract_pattern, extract_planted

    given = run.arguments
    search = {
        "attack": given["attack"],
        "objective": given["objective"],
        "reference_models": given["reference_model"],
        "ranking": Ranking(
            budget=given["search_budget"],
            sample=given["rank_sample"],
            controls=given["controls"],
        ),
    }
    if manifest is not None:
        return extract_planted(run, [model, *given["also"]], manifest, **search)
    words = {name: given[name] for name in ("pattern", "intent", "slot", "candidates", "truth")}
    return extract_pattern(run, model, **words, **search)


def _kind(what: Any, pattern: str | None, as_: ReadAs) -> Kind:
    """The kind of WHAT; a pattern stands in its place."""
    if what is None and pattern is None:
        raise ValueError("Pass `what`, or `pattern` for an intent-and-slot model")
    if what is not None and pattern is not None:
        raise ValueError("Pass `what` or `pattern`, not both")
    return "pattern" if what is None else recognized(what, as_)


def _reject_others(kind: Kind, given: Mapping[str, Any]) -> None:
    """Raise ValueError for an option that was given and does not go with WHAT."""
    own = {one.name: one.default for one in signature(extract).parameters.values()}
    for name, value in given.items():
        kinds = [one for one, names in APPLIES.items() if name in names]
        default = own[name]
        if not kinds or kind in kinds or value == default or not (value or default):
            continue
        if name == "remote":
            value.reject_for_local()
        needed = " or ".join(KINDS[one] for one in kinds)
        also = ". Pass `as_` texts if it is a corpus" if "texts" in kinds else ""
        also = also if kind == "secrets" else ""
        raise ValueError(f"`{name}` needs {needed}, and `what` is {KINDS[kind]}{also}")
