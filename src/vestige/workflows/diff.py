"""Phrases that an update promoted, ranked, beside what clean updates promote: `vestige diff`."""

from typing import TYPE_CHECKING, Annotated, Literal, get_args

from annotated_types import Ge

from vestige._markers import Choices
from vestige.monitor import SILENT, Monitor
from vestige.workflows.arguments import Call
from vestige.workflows.options import Device, Group, Metavar, ModelLike, ModelsLike
from vestige.workflows.snapshots import ComparedNulls, load_snapshots

if TYPE_CHECKING:
    from vestige.attacks.update.seed_and_extend import SeedAndExtend
    from vestige.attacks.update.update_diff import Beams, UpdateDiff

SEARCH = Group("The search")
Search = Literal["seed-and-extend", "halving-beam", "beam", "group-beam"]
TAKES = {
    "seed-and-extend": {"length", "min_length", "seeds"},
    "halving-beam": {"length"},
    "beam": {"length", "width"},
    "group-beam": {"length", "width", "groups"},
}
"""Settings that mean something to each search."""
WIDTH, GROUPS = 1000, 5


def _scores() -> tuple[str, ...]:
    from vestige.attacks.update.token_scores import SCORES

    return SCORES.names()


def diff(
    before: ModelLike,
    after: ModelLike,
    *,
    null: Annotated[ModelsLike, Metavar("MODEL")] = (),
    removed: bool = False,
    search: Search = "seed-and-extend",
    score: Annotated[str, Choices(_scores)] = "smoothed",
    top: Annotated[int, Ge(1)] = 50,
    delta: Annotated[float, SEARCH] = 0.1,
    length: Annotated[int | None, Ge(1), SEARCH] = None,
    min_length: Annotated[int | None, Ge(2), SEARCH] = None,
    seeds: Annotated[int | None, Ge(1), SEARCH] = None,
    width: Annotated[int | None, Ge(1), SEARCH] = None,
    groups: Annotated[int | None, Ge(1), SEARCH] = None,
    device: Device = "auto",
    monitor: Monitor = SILENT,
) -> "UpdateDiff":
    """Find the phrases that an update promoted most.

    The update leads from `before` to `after`. Both snapshots are only asked what comes next;
    neither training set is seen. A snapshot is a directory of `vestige train`, a Hugging Face
    causal language model (folder or hub name) or a PEFT adapter folder.

    Without `null` the list is ranked but nothing says where chance begins. Train null models
    when the question is whether anything leaked at all: `vestige null` does it.

    Args:
        before: The earlier snapshot.
        after: The later snapshot.
        null: A model made as `after` was, but of clean text: `before` continued on as much of it,
            with another seed. May be given again, each of another text, or as a directory of such
            models. By 19 of them a phrase can be called found, at the level that a clean update
            reaches at most once in 20 times; fewer say how many of them reached a score. With
            `removed`: made as `before` was, of clean text in place of what was removed.
        removed: What a deletion reveals: the roles are swapped.
        search: How phrases are looked for; `halving-beam` is the paper's.
        score: What a token's promotion counts: the `smoothed` log-ratio, or the paper's two.
        top: Phrases to keep.
        delta: Floor of the smoothed score, a probability: a rise below it hardly counts.
        length: Tokens in a phrase: for seed-and-extend at most (48 if not given), for the beams
            exactly (5 if not given).
        min_length: Tokens that a phrase of seed-and-extend has at least (4 if not given).
        seeds: Pairs of tokens that seed-and-extend starts from; fewer are faster.
        width: Candidates that beam and group-beam keep (1000 if not given).
        groups: Parts of the first tokens in a group-beam (5 if not given).

    Raises:
        ValueError: a setting is out of range or belongs to another search, or a null model is
            given twice or is one of the snapshots.
        VestigeError: a model cannot be read, or two do not share a vocabulary.

    Examples:
        vestige diff before after --out run

        vestige diff base-model my-lora-adapter --null nulls --out run --show-secrets

        vestige diff before after --null clean-1 --null clean-2 --out run

        vestige diff with-my-data without-it --removed --out run
    """
    from dataclasses import asdict

    from vestige.attacks.update.seed_and_extend import Effort
    from vestige.attacks.update.token_scores import token_score
    from vestige.attacks.update.update_diff import null_scores, update_diff

    call = Call.of(diff, locals())
    sizes = {"length": length, "min_length": min_length, "seeds": seeds}
    how = _search(search, **sizes, width=width, groups=groups)
    what = token_score(score, delta=delta)
    snapshots = load_snapshots({"before": before, "after": after}, device=device, monitor=monitor)
    nulls = ComparedNulls.at(null, unlike=(before, after), device=device)
    earlier, later = ("after", "before") if removed else ("before", "after")
    start, end = snapshots.models[earlier], snapshots.models[later]
    chance = None
    if nulls.given:
        with monitor.progress("searching null models") as step:
            each = nulls.read(step, shared=snapshots.shared)
            chance = null_scores(start, each, search=how, score=what)
    with monitor.progress("searching") as step:
        found = update_diff(
            start,
            end,
            search=how,
            score=what,
            nulls=chance or (),
            top=top,
            effort=Effort(progress=step),
        )
    configuration = {
        "search": {"name": search, **asdict(how)},
        "score": {"name": score, "delta": delta},
        "top": top,
        "removed": removed,
        "seconds": call.seconds,
    }
    recorded = snapshots.recorded | nulls.recorded
    return call.record(found, configuration=configuration, models=recorded)


def _search(name: Search, **asked: int | None) -> "SeedAndExtend | Beams":
    """The search of a name; each takes only the settings that mean something to it."""
    from vestige import _validate
    from vestige.attacks.update.update_diff import Beams

    _validate.one_of(get_args(Search), search=name)
    given = {setting: value for setting, value in asked.items() if value is not None}
    for setting in given:
        if setting not in TAKES[name]:
            able = ", ".join(other for other, takes in TAKES.items() if setting in takes)
            raise ValueError(f"`{setting}` must come with `search` {able}, got `search` {name}")
    if name == "seed-and-extend":
        return _seed_and_extend(given)
    usual = {"beam": {"width": WIDTH}, "group-beam": {"width": WIDTH, "groups": GROUPS}}
    return Beams(**(usual.get(name, {}) | given))


def _seed_and_extend(given: dict[str, int]) -> "SeedAndExtend":
    from vestige.attacks.update.proposals.pairs import Pairs
    from vestige.attacks.update.seed_and_extend import SeedAndExtend

    names = {"length": "max_tokens", "min_length": "min_tokens", "seeds": "seeds"}
    chosen = {names[setting]: value for setting, value in given.items()}
    if length := given.get("length"):
        if length < 2:
            raise ValueError(
                f"`length` must be at least 2 with `search` seed-and-extend, got {length}"
            )
        chosen.setdefault("min_tokens", min(SeedAndExtend.min_tokens, length))
    seeds = chosen.pop("seeds", None)
    added = () if seeds is None else (Pairs(seeds=seeds),)
    return SeedAndExtend(proposals=(*SeedAndExtend.proposals, *added), **chosen)
