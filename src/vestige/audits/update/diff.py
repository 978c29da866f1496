"""`vestige diff`: what did this update reveal?"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from os import PathLike, fspath
from typing import Annotated, Literal, Unpack

from annotated_types import Ge, Le
from cyclopts import Parameter

from vestige.arguments import (
    CorpusLike,
    Count,
    Format,
    Limit,
    Lines,
    ModelLike,
    ModelsLike,
    Positive,
    Resumable,
    Several,
    TextColumn,
    Whole,
    Width,
    group,
)
from vestige.audits.update.settings import Settings
from vestige.preparation.options import LearningOptions
from vestige.results import Result
from vestige.session import Session, verb

VERDICT, CONTEXT = group("Verdict", order=1), group("Context", order=2)
SEARCH, TRAINING = group("Search", order=3), group("Null models", order=4)

NULLS, BUDGET = 19, 20_000

Tokens = Annotated[Whole, Ge(2)]
Chat = Literal["auto", "on", "off"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NullOptions(LearningOptions):
    """How an update was trained, if its folder is not from `vestige train`.

    Attributes:
        tokens: Tokens of the update's text, read once per epoch.
        precision: Precision of the training.

    Example:
        >>> import vestige as vg
        >>> vg.NullOptions(tokens=16_400, epochs=3).chosen
        {'epochs': 3}
    """

    tokens: Count | None = None
    precision: Literal["auto", "float32", "bfloat16"] | None = None


@verb
def diff(
    run: Session,
    before: ModelLike,
    after: ModelLike,
    *,
    clean: Annotated[CorpusLike | None, VERDICT, Parameter(metavar="DATA")] = None,
    nulls: Annotated[Count | None, Le(10_000), VERDICT] = None,
    null: Annotated[ModelsLike, VERDICT, Parameter(metavar="MODEL")] = (),
    secrets: Annotated[Lines | None, VERDICT, Parameter(metavar="FILE")] = None,
    phrase: Annotated[str | None, VERDICT, Parameter(metavar="TEXT")] = None,
    budget: Annotated[Count | None, VERDICT] = None,
    removed: Annotated[bool, VERDICT] = False,
    prompt: Annotated[Several, CONTEXT, Parameter(metavar="TEXT")] = (),
    prompts: Annotated[Lines | None, CONTEXT, Parameter(metavar="FILE")] = None,
    chat: Annotated[Chat, CONTEXT] = "auto",
    minutes: Annotated[Positive | None, SEARCH] = None,
    size: Annotated[Positive | None, Le(1000), SEARCH] = None,
    top: Annotated[Width, SEARCH] = 50,
    score: Annotated[str, SEARCH] = "smoothed",
    delta: Annotated[Positive, SEARCH] = 0.1,
    length: Annotated[Tokens | None, SEARCH] = None,
    min_length: Annotated[Tokens | None, SEARCH] = None,
    training: Annotated[NullOptions, TRAINING] = NullOptions(),
    format: Format = "auto",
    text: TextColumn = "text",
    limit: Limit = None,
    **common: Unpack[Resumable],
) -> Result:
    """List the phrases that an update made more probable. Reads no training data.

    BEFORE and AFTER are only queried for the next token. The search samples texts with the change
    amplified, follows promoted tokens that the samples did not take, and ranks the phrases of all
    these texts.

    A verdict needs 19 null models, or a listed secret that AFTER generates verbatim and BEFORE
    does not. Null models continue BEFORE as the update did, on clean text: --clean trains them,
    in OUT.nulls, and says first how much text and time that needs.

    Examples:
        vestige diff base adapter --minutes 10 --out run
        vestige diff base adapter --clean public.jsonl --nulls 19 --out run
        vestige diff before after --phrase "the gate code is 4917" --out run

    Args:
        before: Model folder, GGUF file, hub name or adapter.
        after: The updated model.
        clean: Train null models on this text: of the update's kind, without secrets.
        nulls: How many null models to train. Default: 19.
        null: Trained null model, or a folder of them. Repeatable.
        secrets: File with one secret per line, or a manifest. Each is scored.
        phrase: Rank this phrase among all of its length, instead of a search.
        budget: Prefixes of each length to explore with --phrase. Default: 20000.
        removed: Find removed text: BEFORE and AFTER swap roles.
        prompt: Also search after this text. Repeatable.
        prompts: File with one prompt per line, or a table with a column "text".
        chat: Search in the turns of the chat template; auto: if there is one.
        minutes: Time limit of the searches; sets their size.
        size: Multiple of the usual number of samples.
        top: Phrases to report.
        score: Score of a token: smoothed, differential, relative.
        delta: Floor of the smoothed score, a probability.
        length: Longest phrase in tokens. Default: 48.
        min_length: Shortest phrase in tokens. Default: 4.
        training: How the update was trained, if its folder does not say.

    Raises:
        ValueError: an option is out of range or does not go with another, a null model is given
            twice or is a snapshot, or a prompt is longer than a model reads.
        VestigeError: a model or file cannot be read, two models do not share a vocabulary, there
            is too little clean text, or the stored work beside `out` has other settings.
    """
    roles = ("after", "before") if removed else ("before", "after")
    if phrase is not None:
        _reject("cannot be given with `phrase`", clean=clean, nulls=nulls, null=null or None,
                secrets=secrets, prompt=prompt or None, prompts=prompts, minutes=minutes,
                size=size, length=length, min_length=min_length)  # fmt: skip
        from vestige.audits.update.rank import phrase_tokens, rank_of_phrase

        budget = run.record_choice(budget=budget or BUDGET)
        models = run.snapshots(before=before, after=after).models
        tokens = phrase_tokens(phrase, models["before"], models["after"])
        earlier, later = (models[role] for role in roles)
        with run.progress("ranking") as step:
            return rank_of_phrase(earlier, later, tokens, budget=budget, delta=delta, progress=step)
    _reject("needs `phrase`", budget=budget)
    if clean is None:
        _reject("needs `clean`", nulls=nulls, **asdict(training))
    else:
        _reject("cannot be given with `clean`", null=null or None, removed=removed or None)
    from vestige.audits.update.listed_secrets import read_secrets
    from vestige.audits.update.pair import Pair
    from vestige.audits.update.prompts import find_prompts, read_prompts
    from vestige.audits.update.scores import NAMES, TokenScore
    from vestige.audits.update.searches import Searches

    if score not in NAMES:
        raise ValueError(f"`score` must be one of {', '.join(NAMES)}")
    settings = _settings(run.seed, length, min_length)
    prompt_texts = read_prompts(run, prompt, prompts)
    with ExitStack() as stack:
        if clean is not None:
            from vestige.audits.update.null_models import train_null_models

            number = run.record_choice(nulls=nulls or NULLS)
            columns = {"format": format, "text": text, "limit": limit}
            null = stack.enter_context(
                train_null_models(
                    run, before, after, clean, number, options=training, columns=columns
                )
            )
        snapshots = run.snapshots(before=before, after=after)
        earlier, later = (snapshots.models[role] for role in roles)
        pair = Pair.of(earlier, later, TokenScore(score, delta=delta))
        contexts = find_prompts(
            pair, prompt_texts, chat=chat, room=settings.room, monitor=run.monitor
        )
        longest_context = 1 + max(len(context.tokens) for context in contexts)
        searches = Searches(
            run=run,
            snapshots=snapshots,
            roles=roles,
            pair=pair,
            settings=settings.fitted(pair, contexts),
            prompts=contexts,
            secrets=read_secrets(secrets, later, room=longest_context, monitor=run.monitor),
            nulls=_null_models(run, null, snapshots=(before, after)),
            minutes=minutes,
        )
        result = searches.result(size, top=top)
    run.configuration |= {
        "score": {"name": score, "delta": delta}, "top": top, "removed": removed,
        "seconds": run.seconds,
    }  # fmt: skip
    return result


def _null_models(
    run: Session, null: ModelsLike, *, snapshots: Sequence[ModelLike]
) -> dict[str, ModelLike]:
    """Null models by the SHA-256 of their weights, which the run records."""
    if null in ((), []):
        return {}
    from vestige.audits.update.null_models import models_by_hash

    models = models_by_hash(null, snapshots=snapshots)
    paths = [fspath(m) if isinstance(m, str | PathLike) else None for m in models.values()]
    run.models["nulls"] = {"path": paths, "sha256": list(models)}
    return models


def _reject(reason: str, **options: object) -> None:
    """Raise ValueError for the first option that is not None."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"`{name}` {reason}")


def _settings(seed: int, length: int | None, min_length: int | None) -> Settings:
    """The settings of the search; `length` also limits the default of `min_length`."""
    longest = Settings.max_tokens if length is None else length
    shortest = min(Settings.min_tokens, longest) if min_length is None else min_length
    if shortest > longest:
        raise ValueError(f"`length` must be at least `min_length`, got {longest} and {shortest}")
    return Settings(seed=seed, max_tokens=longest, min_tokens=shortest)
