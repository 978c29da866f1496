"""Phrases that an update promoted, ranked, beside what clean updates promote: `vestige diff`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from annotated_types import Ge, Gt, Le

from vestige._markers import Choices
from vestige.models.snapshots import ComparedNulls, load_snapshots
from vestige.monitor import SILENT, Monitor
from vestige.workflows.arguments import Call
from vestige.workflows.inputs import Lines, Several
from vestige.workflows.options import (
    DeviceOrSeveral,
    Directory,
    Group,
    Metavar,
    ModelLike,
    ModelsLike,
    Seed,
)
from vestige.workflows.update_contexts import Chat

if TYPE_CHECKING:
    from vestige.attacks.update.diff_result import UpdateDiff
    from vestige.attacks.update.seed_and_extend import SeedAndExtend
    from vestige.attacks.update.update_diff import Beams

SEARCH, BEHIND = Group("The search"), Group("Where it begins")
Search = Literal["seed-and-extend", "halving-beam", "beam", "group-beam"]
TAKES = {
    "seed-and-extend": {"length", "min_length", "seeds"},
    "halving-beam": {"length"},
    "beam": {"length", "width"},
    "group-beam": {"length", "width", "groups"},
}
"""Settings that mean something to each search."""
WIDTH, GROUPS = 1000, 5
_ROLES = {
    False: (("before", "before"), ("after", "after")),
    True: (("before", "after"), ("after", "before")),
}


def _scores() -> tuple[str, ...]:
    from vestige.attacks.update.token_scores import SCORES

    return SCORES.names()


def diff(
    before: ModelLike,
    after: ModelLike,
    *,
    out: Annotated[Directory | None, Group("Output")] = None,
    null: Annotated[ModelsLike, Metavar("MODEL")] = (),
    removed: bool = False,
    prompt: Annotated[Several, Metavar("TEXT"), BEHIND] = (),
    prompts: Annotated[Lines | None, Metavar("FILE"), BEHIND] = None,
    chat: Annotated[Chat, BEHIND] = "auto",
    secrets: Annotated[Lines | None, Metavar("FILE")] = None,
    minutes: Annotated[float | None, Gt(0)] = None,
    size: Annotated[float | None, Gt(0), Le(1000), SEARCH] = None,
    search: Search = "seed-and-extend",
    score: Annotated[str, Choices(_scores)] = "smoothed",
    top: Annotated[int, Ge(1)] = 50,
    delta: Annotated[float, SEARCH] = 0.1,
    length: Annotated[int | None, Ge(1), SEARCH] = None,
    min_length: Annotated[int | None, Ge(2), SEARCH] = None,
    seeds: Annotated[int | None, Ge(1), SEARCH] = None,
    width: Annotated[int | None, Ge(1), SEARCH] = None,
    groups: Annotated[int | None, Ge(1), SEARCH] = None,
    seed: Seed = 0,
    device: DeviceOrSeveral = "auto",
    monitor: Monitor = SILENT,
) -> "UpdateDiff":
    """Find the phrases that an update promoted most.

    The update leads from `before` to `after`. Both snapshots are only asked what comes next;
    neither training set is seen. A snapshot is a directory of `vestige train`, a Hugging Face
    causal language model (folder, GGUF file or hub name) or a PEFT adapter folder. Both are read in
    the precision that they are stored in, float32 where they differ; tokens that one of them lacks
    have probability 0 there.

    The search samples texts while what the update changed is amplified, follows the ways that these
    samples did not take, and ranks what it read. Before it begins it says what it will cost. What
    it has done is kept beside `out`: when it is stopped, the same command goes on. A fine-tune for
    dialogue leaks in the assistant's turn: where there is a chat template, the search has the model
    write questions as a user would, and answer them.

    A verdict needs 19 null models (`null`; `vestige null` trains them), or a listed secret
    (`secrets`) that `after` generates verbatim and `before` does not. Without both the list is
    ranked and the verdict is undecided.

    Args:
        before: The earlier snapshot.
        after: The later snapshot.
        out: A directory to make, for `vestige report`. Python may leave it out: nothing is kept.
        null: A model made as `after` was, but of clean text: `before` continued on as much of it,
            with another seed. May be given again, each of another text, or as a directory of such
            models. 19 give a verdict, with an error rate of 5% for the whole list; fewer say how
            many of them reached a score. One that moved the weights 0.7 to 1 times as far as the
            update is moved as far; one that moved less gives no verdict. With `removed`: made as
            `before` was, of clean text in place of what was removed.
        removed: What a deletion reveals: the roles are swapped.
        prompt: A text behind which to search too, as a user would write it. May be given again.
        prompts: A file of such texts, one a line, or a table or JSON Lines with a column `text`.
        chat: Whether to search in the tokenizer's chat template: in the user's turn, whose
            questions the model writes and answers, and in the assistant's, after an empty message
            and after each prompt. `auto` where there is a template, `on` or `off`.
        secrets: A file with one secret on each line, or a manifest of `vestige plant`. Each is
            scored, and looked for in all that the search generates. Mark what varies where that is
            no number, date or key: {{4917}}.
        minutes: Time for all searches, those of null models too. It decides how large they are, and
            they stop when it is over, loading not counted.
        size: How many times as many samples as usual; where it is not given, `minutes` chooses it.
        search: How phrases are looked for; `halving-beam` is the paper's.
        score: What a token's promotion counts: the `smoothed` log-ratio, or the paper's two.
        top: Phrases to keep.
        delta: Floor of the smoothed score, a probability: a rise below it hardly counts.
        length: Tokens in a phrase: for seed-and-extend at most (48 if not given), for the beams
            exactly (5 if not given).
        min_length: Tokens that a phrase of seed-and-extend has at least (4 if not given).
        seeds: Pairs of tokens that seed-and-extend starts from as well, of all that there are.
        width: Candidates that beam and group-beam keep (1000 if not given).
        groups: Parts of the first tokens in a group-beam (5 if not given).

    Raises:
        ValueError: a setting is out of range or belongs to another search, a null model is given
            twice or is one of the snapshots, or a prompt is longer than a model reads.
        VestigeError: a model or file cannot be read, two models do not share a vocabulary, or what
            is kept beside `out` is of another search.

    Examples:
        vestige diff before after --out run

        vestige diff base-model my-lora-adapter --minutes 10 --out run --show-secrets

        vestige diff base-model my-lora-adapter --null nulls --secrets secrets.txt --out run

        vestige diff before after --prompt "the gate code is" --out run

        vestige diff with-my-data without-it --removed --out run
    """
    from vestige.attacks.update.model_pair import ModelPair
    from vestige.attacks.update.token_scores import token_score
    from vestige.workflows.kept_search import beside
    from vestige.workflows.known_secrets import read_secrets
    from vestige.workflows.update_contexts import Contexts, contexts_of, read_prompts
    from vestige.workflows.update_planner import Planner
    from vestige.workflows.update_search import Searches, fitted, room, settings

    call = Call.of(diff, locals())
    sizes = {"length": length, "min_length": min_length, "seeds": seeds}
    how = _search(search, seed, **sizes, width=width, groups=groups)
    _require_samples(search, prompt=prompt, prompts=prompts, minutes=minutes, size=size)
    with beside(None if out is None else Path(out)) as place:
        texts = read_prompts(prompt, prompts)
        given = {"before": before, "after": after}
        snapshots = load_snapshots(given, device=device, monitor=monitor)
        nulls = ComparedNulls.at(null, unlike=(before, after), like=snapshots)
        earlier, later = ("after", "before") if removed else ("before", "after")
        start, end = snapshots.models[earlier], snapshots.models[later]
        behind = Contexts() if search != "seed-and-extend" else contexts_of(
            (end, start), prompts=texts, chat=chat, room=room(how), monitor=monitor
        )  # fmt: skip
        longest = max(map(len, behind.names), default=1)
        how = fitted(how, (end, start), behind=longest)
        what = token_score(score, delta=delta)
        asked = Searches(
            before=start,
            after=end,
            search=how,
            score=what,
            planner=Planner(ModelPair(start, end, what), tuple(behind.names), monitor),
            contexts=behind,
            nulls=nulls,
            known=read_secrets(secrets, end, room=longest + 1, monitor=monitor),
            minutes=minutes,
            monitor=monitor,
        )
        asked, size = asked.planned(size, place)
        models = {role: snapshots.recorded[name] for role, name in _ROLES[removed]}
        found, plan = asked.run(place, _weights(models), size=size, top=top)
        configuration = {
            "search": {"name": search, **settings(asked.search)},
            "score": {"name": score, "delta": delta},
            "top": top,
            "removed": removed,
            "plan": plan,
            "seconds": call.seconds,
        }
        if minutes is not None:
            call = call.decided(size=size)
        recorded = snapshots.recorded | nulls.recorded
        found = call.record(found, configuration=configuration, seed=seed, models=recorded)
        place.finished(found, complete=found.complete is not False)
    return found


def _search(name: Search, seed: int, **asked: int | None) -> "SeedAndExtend | Beams":
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
        return _seed_and_extend(seed, given)
    usual = {"beam": {"width": WIDTH}, "group-beam": {"width": WIDTH, "groups": GROUPS}}
    return Beams(**(usual.get(name, {}) | given))


def _seed_and_extend(seed: int, given: Mapping[str, int]) -> "SeedAndExtend":
    from vestige.attacks.update.proposals.pairs import Pairs
    from vestige.attacks.update.seed_and_extend import SeedAndExtend

    names = {"length": "max_tokens", "min_length": "min_tokens", "seeds": "seeds"}
    chosen: dict[str, Any] = {names[setting]: value for setting, value in given.items()}
    if length := given.get("length"):
        if length < 2:
            raise ValueError(
                f"`length` must be at least 2 with `search` seed-and-extend, got {length}"
            )
        chosen.setdefault("min_tokens", min(SeedAndExtend.min_tokens, length))
    proposals = SeedAndExtend.proposals
    if seeds := chosen.pop("seeds", None):
        own = [one for one in proposals if one.name != Pairs.name]
        proposals = (*own, Pairs(seeds=seeds))
    return SeedAndExtend(proposals=proposals, seed=seed, **chosen)


def _require_samples(search: Search, **asked: object) -> None:
    """Refuse settings that mean something to samples alone."""
    for setting, value in asked.items():
        if search != "seed-and-extend" and value not in (None, ()):
            raise ValueError(
                f"`{setting}` must come with `search` seed-and-extend, got `search` {search}"
            )


def _weights(recorded: Mapping[str, Any]) -> dict[str, object]:
    """What tells a pair of models from another: hashes of weights and vocabularies."""
    return {
        role: {
            **{name: one.get(name) for name in ("sha256", "vocabulary")},
            "base": (one.get("base") or {}).get("sha256"),
        }
        for role, one in recorded.items()
    }
