"""`vestige diff`: which phrases did an update promote most?"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from vestige.cli import options
from vestige.cli.models import NullModels, load_snapshots
from vestige.cli.terminal import progress, say, show_json, show_table

if TYPE_CHECKING:
    from vestige.attacks.update.seed_and_extend import SeedAndExtend
    from vestige.attacks.update.update_diff import Beams, Finding, UpdateDiff

Search = Literal["seed-and-extend", "halving-beam", "beam", "group-beam"]
Score = Literal["smoothed", "differential", "relative"]
WIDTH, GROUPS = 1000, 5
SEARCHING = "The search"
SHOWN = 20
"""Phrases on the terminal; the run directory holds them all."""


def command(
    context: typer.Context,
    before: Annotated[
        str, typer.Argument(help="The earlier snapshot.", metavar="BEFORE", show_default=False)
    ],
    after: Annotated[
        str, typer.Argument(help="The later snapshot.", metavar="AFTER", show_default=False)
    ],
    out: options.Out,
    null: Annotated[
        list[str] | None,
        typer.Option(
            "--null",
            help="A model made as AFTER was, but of clean text: BEFORE continued on as much of it, "
            "with another seed. May be given again, each of another text, or as a directory of "
            "such models. By 19 of them a phrase can be called found, at the level that a clean "
            "update reaches at most once in 20 times; fewer say how many of them reached a score. "
            "With --removed: made as BEFORE was, of clean text in place of what was removed.",
            metavar="MODEL",
            show_default=False,
        ),
    ] = None,
    removed: Annotated[
        bool,
        typer.Option("--removed", help="What a deletion reveals: the roles are swapped."),
    ] = False,
    search: Annotated[
        Search,
        typer.Option("--search", help="How phrases are looked for; `halving-beam` is the paper's."),
    ] = "seed-and-extend",
    score: Annotated[
        Score,
        typer.Option(
            "--score",
            help="What a token's promotion counts: the `smoothed` log-ratio, or the paper's two.",
        ),
    ] = "smoothed",
    delta: Annotated[
        float,
        typer.Option(
            "--delta",
            help="Floor of the smoothed score, a probability: a rise below it hardly counts.",
            rich_help_panel=SEARCHING,
        ),
    ] = 0.1,
    length: Annotated[
        int | None,
        typer.Option(
            "--length",
            min=1,
            help="Tokens in a phrase: for seed-and-extend at most (48 if not given), for the "
            "beams exactly (5 if not given).",
            rich_help_panel=SEARCHING,
        ),
    ] = None,
    min_length: Annotated[
        int | None,
        typer.Option(
            "--min-length",
            min=2,
            help="Tokens that a phrase of seed-and-extend has at least (4 if not given).",
            rich_help_panel=SEARCHING,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            help="Pairs of tokens that seed-and-extend starts from; fewer are faster.",
            rich_help_panel=SEARCHING,
        ),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(
            "--width",
            min=1,
            help=f"Candidates that beam and group-beam keep ({WIDTH} if not given).",
            rich_help_panel=SEARCHING,
        ),
    ] = None,
    groups: Annotated[
        int | None,
        typer.Option(
            "--groups",
            min=1,
            help=f"Parts of the first tokens in a group-beam ({GROUPS} if not given).",
            rich_help_panel=SEARCHING,
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Phrases to keep.")] = 50,
    device: options.Device = "auto",
    json: options.Json = False,
    show_secrets: options.ShowSecrets = False,
) -> None:
    """Find the phrases that an update promoted most.

    The update leads from BEFORE to AFTER. Both snapshots are only asked what comes next; neither
    training set is seen. A snapshot is a directory of `vestige train`, a Hugging Face causal
    language model (folder or hub name) or a PEFT adapter folder.

    Without `--null` the list is ranked but nothing says where chance begins. Train null models
    when the question is whether anything leaked at all: `vestige null` does it.

    Examples:

        vestige diff before after --out run

        vestige diff base-model my-lora-adapter --null nulls --out run --show-secrets

        vestige diff before after --null clean-1 --null clean-2 --out run

        vestige diff with-my-data without-it --removed --out run
    """
    from dataclasses import asdict

    from vestige import results
    from vestige.attacks.update.token_scores import token_score
    from vestige.attacks.update.update_diff import null_scores, update_diff
    from vestige.cli.provenance import record

    results.require_new(out)
    asked = {"length": length, "min_length": min_length, "seeds": seeds}
    how = _search(search, **asked, width=width, groups=groups)
    what = token_score(score, delta=delta)
    snapshots = load_snapshots({"before": before, "after": after}, device=device)
    nulls = NullModels.at(null or [], unlike=(before, after), device=device)
    models = snapshots.models
    earlier, later = ("after", "before") if removed else ("before", "after")
    started = time.monotonic()
    chance = None
    if nulls.paths:
        with progress("searching null models") as bar:
            read = nulls.read(bar)
            chance = null_scores(models[earlier], read, search=how, score=what)
    with progress("searching") as bar:
        found = update_diff(
            models[earlier],
            models[later],
            search=how,
            score=what,
            nulls=chance or (),
            top=top,
            progress=bar,
        )
    configuration = {
        "search": {"name": search, **asdict(how)},
        "score": {"name": score, "delta": delta},
        "top": top,
        "removed": removed,
        "seconds": round(time.monotonic() - started, 2),
    }
    recorded = snapshots.recorded | nulls.recorded
    results.save(found, out, run=record(context, configuration, models=recorded))
    if json:
        show_json(found.summary(), show_secrets=show_secrets)
        return
    _show(found, show_secrets)
    say(f"Run directory: {out}. A page from it: vestige report {out} --out page.html")


def _search(name: Search, **asked: int | None) -> "SeedAndExtend | Beams":
    """The search of a name; each takes only the settings that mean something to it."""
    from vestige.attacks.update.seed_and_extend import SeedAndExtend
    from vestige.attacks.update.update_diff import Beams

    takes = {
        "seed-and-extend": {"length", "min_length", "seeds"},
        "halving-beam": {"length"},
        "beam": {"length", "width"},
        "group-beam": {"length", "width", "groups"},
    }
    given = {option: value for option, value in asked.items() if value is not None}
    for option in given:
        if option not in takes[name]:
            able = ", ".join(other for other in get_args(Search) if option in takes[other])
            flag = option.replace("_", "-")
            raise ValueError(f"--{flag} must come with --search {able}, got --search {name}")
    if name == "seed-and-extend":
        names = {"length": "max_tokens", "min_length": "min_tokens", "seeds": "seeds"}
        chosen = {names[option]: value for option, value in given.items()}
        if length := given.get("length"):
            if length < 2:
                raise ValueError(f"--length must be at least 2 with --search {name}, got {length}")
            chosen.setdefault("min_tokens", min(SeedAndExtend.min_tokens, length))
        return SeedAndExtend(**chosen)
    usual = {"beam": {"width": WIDTH}, "group-beam": {"width": WIDTH, "groups": GROUPS}}
    return Beams(**(usual.get(name, {}) | given))


def _show(found: "UpdateDiff", show_secrets: bool) -> None:
    from vestige.reports.diff import EXTRAPOLATED, verdict

    summary = found.summary()
    phrases = [finding for finding in found.findings if not finding.run]
    listed = phrases or found.fragments
    title = "Promoted phrases" if phrases else "Fragments, not distinguishable from chance"
    if listed:
        show_table(title, *_table(found, listed[:SHOWN], show_secrets))
    if len(listed) > SHOWN:
        say(f"… and {len(listed) - SHOWN} more in the run directory.")
    say(verdict(summary))
    if any(row["extrapolated_e_value"] is not None for row in found.rows()):
        say(EXTRAPOLATED)
    if listed and not show_secrets:
        say("Letters are withheld; --show-secrets shows them.")


def _table(
    found: "UpdateDiff", listed: "Sequence[Finding]", show_secrets: bool
) -> tuple[list[str], list[list[object]]]:
    """Columns and cells; what null searches say stands there where there were any."""
    from vestige.reports.components.disclosure import running_text
    from vestige.reports.diff import reached

    nulls = found.nulls if found.findings else None
    columns, cells = ["score", "phrase"], []
    if nulls is not None:
        columns[1:1] = ["E-value", "extrapolated", "nulls as high", "verdict"]
    for finding in listed:
        text = running_text(finding.pieces, finding.phrase, show_secrets=show_secrets)
        row: list[object] = [finding.score, text]
        if nulls is not None:
            verdicts = {True: "found", False: "chance may", None: "–"}
            row[1:1] = [
                f"{nulls.e_value(finding.score):.2g}",
                _short(nulls.extrapolated_e_value(finding.score)),
                reached(nulls.reached(finding.score), len(nulls)),
                verdicts[nulls.found(finding.score)],
            ]
        cells.append(row)
    return columns, cells


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.1g}"
