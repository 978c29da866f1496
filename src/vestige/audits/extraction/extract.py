"""`vestige extract`: which texts can be extracted from a model?

Completion follows Mireshghallah et al. (NAACL 2021), passages Carlini et al. (2021) and Hayes et
al. (2024), unknown words of utterances Parikh, Dupuy and Gupta (ACL 2022).
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Annotated, TypeAlias, Unpack

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
from vestige.audits.extraction.recognition import ReadAs, recognize, reject_other_options
from vestige.models.remote.options import RemoteOptions
from vestige.results import Result
from vestige.session import Session, verb

if TYPE_CHECKING:
    from vestige.data.canaries.texts import Manifest
    from vestige.data.canaries.utterances import SecretManifest
    from vestige.data.corpus import Corpus
    from vestige.models.protocols import LanguageModel
    from vestige.models.white_box import IntentSlotNetwork

    AnyModel: TypeAlias = str | PathLike[str] | LanguageModel | IntentSlotNetwork
    What: TypeAlias = str | PathLike[str] | Manifest | SecretManifest | Corpus | Sequence[str]
    Candidates: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]
else:
    AnyModel = What = str
    Candidates = Sequence[str]

COMPLETION = group("Completion")
PASSAGES = group("Passages")
WORDS = group("Unknown words of an utterance")
TEXT = Parameter(metavar="TEXT")


@verb
def extract(
    run: Session,
    model: AnyModel,
    what: What | None = None,
    *,
    as_: ReadAs = "auto",
    prefix: Annotated[Width | None, COMPLETION] = None,
    beam: Annotated[Width, COMPLETION] = 10,
    question: Annotated[str | None, COMPLETION, TEXT] = None,
    reference: Annotated[CorpusLike | None, PASSAGES, Parameter(metavar="DATA")] = None,
    suffix: Annotated[Width, PASSAGES] = 50,
    samples: Annotated[Draws, PASSAGES] = 100,
    probability: Annotated[Probability, PASSAGES] = 0.5,
    top_k: Annotated[Width, PASSAGES] = 20,
    temperature: Annotated[Positive, PASSAGES] = 1.0,
    statistics: Annotated[PathTo | None, PASSAGES, Parameter(metavar="DIR")] = None,
    pattern: Annotated[str | None, WORDS, TEXT] = None,
    intent: Annotated[str | None, WORDS] = None,
    slot: Annotated[str | None, WORDS] = None,
    candidates: Annotated[Candidates, WORDS, Parameter(metavar="SET")] = (),
    truth: Annotated[str | None, WORDS, TEXT] = None,
    controls: Annotated[Natural, WORDS] = 1999,
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
        statistics: Folder for cached model outputs. Default: OUT.statistics.
        pattern: Text with its unknown words in braces, such as "my pin is {digit:4}"; or pin:4,
            call:4, color:4.
        intent: Intent of the utterance. Not needed for pin:4 and its like.
        slot: Slot of the unknown words. Default: canary.
        candidates: Words that an unknown word may be: name=word,word or name=@file. Repeatable.
        truth: The true words, which get a rank.
        controls: Secrets that were never planted, to compare with.
        search_budget: Try every secret if there are at most this many; else coordinate descent.
        rank_sample: Otherwise estimate ranks from this many random secrets. 0: no rank.

    Raises:
        ValueError: an option does not go with WHAT.
        VestigeError: a model or file cannot be read, or nothing in it can be extracted.
    """
    if (what is None) == (pattern is None):
        if what is None:
            raise ValueError("Pass `what`, or `pattern` for an intent-and-slot model")
        raise ValueError("Pass `what` or `pattern`, not both")
    kind = "pattern" if what is None else recognize(what, as_)
    reject_other_options(kind, run.arguments, run.defaults)
    if kind == "canaries":
        from vestige.audits.extraction.canaries import complete_canaries

        return Result.of(complete_canaries(run, model, what, prefix=prefix, beam=beam))
    if kind == "secrets":
        from vestige.audits.extraction.user_secrets import complete_user_secrets

        return complete_user_secrets(run, model, what)
    if kind == "texts":
        from vestige.audits.extraction.passages import extract_passages

        return extract_passages(run, model, what)
    from vestige.audits.extraction.utterances import extract_utterances

    return extract_utterances(run, model, what)
