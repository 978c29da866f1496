"""`vestige diff`: what did this update reveal?"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, Unpack

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
from vestige.audits.update.contexts import Chat, find_contexts, read_prompts
from vestige.audits.update.null_recipe import NullOptions
from vestige.results import Result
from vestige.session import Session, verb

if TYPE_CHECKING:
    from vestige.attacks.update.diff_result import UpdateDiff
    from vestige.attacks.update.seed_and_extend import SeedAndExtend
    from vestige.attacks.update.token_scores import TokenScore

VERDICT, CONTEXT = group("Verdict", place=1), group("Context", place=2)
SEARCH, TRAINING = group("Search", place=3), group("Null models", place=4)

NULLS, BUDGET = 19, 20_000
_ROLES, _SWAPPED = ("before", "after"), ("after", "before")
Tokens = Annotated[Whole, Ge(2)]


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

    BEFORE and AFTER are only queried for the next token. The search samples texts while the change
    is amplified, follows tokens that these samples did not take, and ranks the phrases that it
    reads.

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
    if phrase is not None:
        _reject("cannot be given with `phrase`", clean=clean, nulls=nulls, null=null or None,
                secrets=secrets, prompt=prompt or None, prompts=prompts, minutes=minutes,
                size=size, length=length, min_length=min_length)  # fmt: skip
        return _rank(run, before, after, phrase, budget=budget, delta=delta, removed=removed)
    _reject("needs `phrase`", budget=budget)
    if clean is None:
        _reject("needs `clean`", nulls=nulls, tokens=training.tokens, **training.given)
    else:
        _reject("cannot be given with `clean`", null=null or None, removed=removed or None)
    search, token_score = _search_of(run.seed, length, min_length), _score(score, delta)
    texts = read_prompts(run, prompt, prompts)
    with ExitStack() as stack:
        if clean is not None:
            from vestige.audits.update.null_training import null_models

            number = run.chosen(nulls=nulls or NULLS)
            columns = {"format": format, "text": text, "limit": limit}
            null = stack.enter_context(
                null_models(run, before, after, clean, number, options=training, columns=columns)
            )
        found = _search(
            run, before, after, null, search=search, score=token_score, texts=texts, chat=chat,
            secrets=secrets, minutes=minutes, size=size, top=top, removed=removed,
        )  # fmt: skip
    run.configuration |= {
        "score": {"name": score, "delta": delta}, "top": top, "removed": removed,
        "seconds": run.seconds,
    }  # fmt: skip
    return Result.of(found)


def _search(
    run: Session,
    before: ModelLike,
    after: ModelLike,
    null: ModelsLike,
    *,
    search: "SeedAndExtend",
    score: "TokenScore",
    texts: Sequence[str],
    chat: Chat,
    secrets: Lines | None,
    minutes: float | None,
    size: float | None,
    top: int,
    removed: bool,
) -> "UpdateDiff":
    """Search the update and the null models."""
    from vestige.audits.update.nulls import NullModels
    from vestige.audits.update.search import UpdateSearch, fitted, recorded, room
    from vestige.audits.update.secrets import read_secrets

    snapshots = run.snapshots(before=before, after=after)
    nulls = NullModels.of(null, unlike=(before, after), snapshots=snapshots)
    run.models |= nulls.recorded
    roles = _SWAPPED if removed else _ROLES
    start, end = (snapshots.models[role] for role in roles)
    contexts = find_contexts(
        (end, start), prompts=texts, chat=chat, room=room(search), monitor=run.monitor
    )
    listed = read_secrets(secrets, end, room=contexts.longest + 1, monitor=run.monitor)
    searches, size = UpdateSearch(
        run=run,
        before=start,
        after=end,
        settings=fitted(search, (end, start), behind=contexts.longest),
        score=score,
        contexts=contexts,
        nulls=nulls,
        secrets=listed,
        minutes=minutes,
    ).sized(size)
    if minutes is not None:
        run.chosen(size=size)
    run.configuration |= {"search": {"name": "seed-and-extend", **recorded(searches.settings)}}
    weights = {
        role: _weights(snapshots.recorded[given]) for role, given in zip(_ROLES, roles, strict=True)
    }
    return searches.result(weights, size=size, top=top)


def _rank(
    run: Session,
    before: ModelLike,
    after: ModelLike,
    phrase: str,
    *,
    budget: int | None,
    delta: float,
    removed: bool,
) -> Result:
    """Rank one phrase."""
    from vestige.audits.update.rank import phrase_rank

    models = run.snapshots(before=before, after=after).models
    start, end = (models[role] for role in (_SWAPPED if removed else _ROLES))
    number = run.chosen(budget=budget or BUDGET)
    return phrase_rank(run, start, end, phrase, budget=number, delta=delta)


def _reject(reason: str, **options: object) -> None:
    """Raise ValueError for an option that was given and does not go with others."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"`{name}` {reason}")


def _score(name: str, delta: float) -> "TokenScore":
    from vestige.attacks.update.token_scores import SCORES, token_score

    if name not in SCORES.names():
        raise ValueError(f"`score` must be one of {', '.join(SCORES.names())}")
    return token_score(name, delta=delta)


def _search_of(seed: int, length: int | None, min_length: int | None) -> "SeedAndExtend":
    """The settings of the search; a short longest phrase shortens the shortest one."""
    from vestige.attacks.update.seed_and_extend import SeedAndExtend

    longest = SeedAndExtend.max_tokens if length is None else length
    shortest = min(SeedAndExtend.min_tokens, longest) if min_length is None else min_length
    if shortest > longest:
        raise ValueError(f"`length` must be at least `min_length`, got {longest} and {shortest}")
    return SeedAndExtend(seed=seed, max_tokens=longest, min_tokens=shortest)


def _weights(recorded: Any) -> dict[str, object]:
    """What identifies a model: hashes of its weights, vocabulary and base."""
    return {
        **{name: recorded.get(name) for name in ("sha256", "vocabulary")},
        "base": (recorded.get("base") or {}).get("sha256"),
    }
