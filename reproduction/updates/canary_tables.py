"""Tables of canaries: planted in one dataset after another, and in updates of several kinds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import altair as alt
import vl_convert

from reproduction.papers import Row, Rows, paper_numbers, table
from reproduction.stages import Call, Work
from reproduction.tables import cell
from reproduction.updates.exposures import exposures, scores_of, token_profile
from reproduction.updates.snapshots import (
    Material,
    Planting,
    Setting,
    extended,
    models_of,
    prepare,
)
from vestige.data.canaries.phrases import frequency_canaries
from vestige.data.canaries.texts import Canary
from vestige.data.corpus import Corpus
from vestige.metrics.estimates import mean

DRAWN = ("all-low", "high-to-low")
"""Patterns of Figure 1."""
APART = 1_000
"""Between the seeds of two trainings."""
FREQUENCIES = ("1:1M", "1:100K")
"""How often a canary's tokens occur in the paper's updates of Table 2, rarer first."""


@table("updates", "table1", "table1-reddit-rnn", "table1-reddit-transformer", "table1-wikitext")
def table1(
    work: Work, planting: Planting, budget: int = 20_000, trainings: int = 1
) -> Iterator[Row]:
    """Table 1: a row for each canary, with its ranks in the first training.

    The paper's WikiText-103 is under the name of our text, WikiText-2. `budget` is that of the
    bounded search for the exact rank; several `trainings` of each model have other seeds and the
    copies at other positions.
    """
    paper = paper_numbers("updates", "table1", key=4)
    material = prepare(planting.setting, work)
    updates = {
        copies: [pair_of(planting, material, copies, number) for number in range(trainings)]
        for copies in planting.copies
    }
    work.all(call for pairs in updates.values() for pair in pairs for call in pair)
    for copies, pairs in updates.items():
        _, canaries = material.with_copies(planting, copies, seed=copies)
        first, *later = [work.all(pair) for pair in pairs]
        learnt = material.learnt(*first)
        scores = [scores_of(*models_of(pair), canaries) for pair in later]
        for row in exposures(*models_of(first), canaries, budget=budget):
            key = (learnt["dataset"], learnt["model"], row["pattern"], row["copies"])
            yield {
                **learnt,
                **row,
                **{name: span(row, name) for name in ("rank", "prefix_rank")},
                **over_trainings([row["score"], *(one[row["phrase"]] for one in scores)]),
                "paper_score": paper.get(key, {}).get("score"),
            }


def pair_of(planting: Planting, material: Material, copies: int, number: int = 0) -> list[Call]:
    """The trainings of a text without canaries, and with so many copies.

    The model before has seed 0, that of k copies 100 + k, a later training 1,000 more each.
    """
    text, _ = material.with_copies(planting, copies, seed=copies + APART * number)
    before = material.snapshot(material.original, seed=APART * number)
    return [before, material.snapshot(text, seed=100 + copies + APART * number)]


def profile_chart(rows: Rows) -> str:
    """Figure 1 as SVG: gain by position, a line for each canary and number of copies; all-low
    canaries are dashed, as in the paper."""
    kept = ("pattern", "copies", "position", "gain")
    values = [{name: row[name] for name in kept} for row in rows]
    patterns = list(dict.fromkeys(row["pattern"] for row in values))
    dashes = [[6, 4] if pattern == "all-low" else [1, 0] for pattern in patterns]
    dash = alt.Scale(domain=patterns, range=dashes)
    chart = alt.Chart(alt.InlineData(values=values)).mark_line(point=True)
    chart = chart.encode(
        x=alt.X("position:O", title="token", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("gain:Q", title="differential score given the prefix"),
        color=alt.Color("copies:O", title="copies"),
        strokeDash=alt.StrokeDash("pattern:N", title="pattern", scale=dash),
    )
    spec = chart.properties(width=420, height=280).to_dict()
    svg: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return svg


@table("updates", "figure1", chart=profile_chart)
def figure1(work: Work, planting: Planting) -> Iterator[Row]:
    """Figure 1: a row for each token of canaries of some patterns, from Table 1's snapshots."""
    material = prepare(planting.setting, work)
    for copies in planting.copies:
        _, canaries = material.with_copies(planting, copies, seed=copies)
        before, after = models_of(work.all(pair_of(planting, material, copies)))
        for canary in canaries:
            if canary.planted and canary.pattern in DRAWN:
                for row in token_profile(before, after, canary):
                    yield {"dataset": planting.setting.dataset, **row}


@table("updates", "table2")
def table2(
    work: Work,
    setting: Setting,
    copies: tuple[int, ...],
    phrases: int,
    retrained: tuple[int, ...] = (0, 20, 50, 100),
    continued: tuple[int, ...] = (20, 50, 100),
    two_stage: int | None = 100,
) -> Iterator[Row]:
    """Table 2: a row for each update and number of copies.

    The `words` of the setting are those of D_orig; `copies` are the paper's two frequencies, and so
    many mixed `phrases` are planted for each. The kinds of update are given by their extra text in
    percent of D_orig.
    """
    paper = paper_numbers("updates", "table2", key=3)
    material = extended(setting, work, (*retrained, *continued))
    made = mixed_canaries(material, copies, phrases)
    original = material.snapshot(material.original, seed=0)
    updates: dict[tuple[str, int], tuple[Call, tuple[Canary, ...]]] = {}
    for percent in retrained:
        whole = Corpus.concatenate([material.original, *material.extra(percent)])
        text, canaries = material.planted(whole, made, seed=percent)
        updates["re-training", percent] = material.retrained(percent, text), canaries
    for percent in continued:
        part = Corpus.concatenate(material.extra(percent))
        text, canaries = material.planted(part, made, seed=percent)
        updates["continued", percent] = material.continued(percent, text, original), canaries
    if two_stage is not None:
        first, canaries = updates["continued", two_stage]
        second = material.snapshot(material.extras[-1], seed=500 + two_stage, start=first)
        updates["two-stage", two_stage] = second, canaries
    before, *finished = work.all([original, *(call for call, _ in updates.values())])
    for ((update, percent), (_, canaries)), after in zip(updates.items(), finished, strict=True):
        found = list(exposures(*models_of([before, after]), canaries, budget=None))
        for number, frequency in zip(copies, FREQUENCIES, strict=True):
            yield {
                "update": update,
                "extra_percent": percent,
                "copies": number,
                **over_phrases([row for row in found if row["copies"] == number]),
                "paper_score": paper.get((update, percent, frequency), {}).get("score"),
                **material.learnt(before, after),
            }


def mixed_canaries(material: Material, copies: Sequence[int], phrases: int) -> tuple[Canary, ...]:
    """So many mixed canaries for each number of copies, and their controls."""
    number = phrases * len(copies)
    made = frequency_canaries(
        material.original, material.vocabulary, patterns=["mixed"] * number, copies=1, seed=0
    )
    each = [k for k in copies for _ in range(phrases)]
    planted = [replace(c, copies=k) for c, k in zip(made[:number], each, strict=True)]
    return (*planted, *made[number:])


def over_trainings(scores: Sequence[float]) -> Row:
    """A phrase's scores in several trainings: their mean with Student's interval."""
    found = mean(scores)
    assert found is not None
    return {
        "trainings": len(scores),
        "scores": list(scores),
        "mean_score": found.value,
        "interval": None if found.low is None else f"{cell(found.low)} to {cell(found.high)}",
    }


def over_phrases(rows: Sequence[Mapping[str, float]]) -> Row:
    """Several canaries of one frequency as one row: the mean, with the range."""
    scores = [row["score"] for row in rows]
    return {
        "phrases": len(rows),
        "score": fmean(scores),
        "score_low": min(scores),
        "score_high": max(scores),
        "scores": scores,
        "beam_ranks": ", ".join(str(row["beam_rank"]) for row in rows),
        "control_score": rows[0]["control_score"],
    }


def span(row: Row, name: str) -> str:
    """A rank, or its bounds."""
    lower, upper = row[f"{name}_lower"], row[f"{name}_upper"]
    most = f"{upper:,}" if upper < 10**7 else f"{upper:.1e}"
    return f"{lower:,}" if lower == upper else f"{lower:,} to {most}"
