"""Tables of canaries: in one dataset after another, in several kinds of update, and in RQ5.

RQ5 (section 4 of the paper): Penn Treebank and Penn Treebank with 50 copies of the all-low canary,
each learnt with sequence-level DP-SGD at epsilon 5 and 111. Differs from the paper: the canaries of
the other patterns are planted as well, as in Table 1, whose undefended pair is this table's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import altair as alt
import torch
import vl_convert

from reproduction.papers import Row, Rows, paper_numbers, table
from reproduction.stages import Call, Work
from reproduction.tables import cell
from reproduction.updates.exposures import DIFFERENTIAL, exposures, gains
from reproduction.updates.snapshots import (
    Material,
    Planting,
    Setting,
    load_pair,
    prepare,
    train,
)
from vestige.audits.update.pair import Pair
from vestige.data.canaries.phrases import frequency_canaries
from vestige.data.canaries.texts import Canary
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import Vocabulary
from vestige.defences.methods.private import DPSGD
from vestige.metrics.estimates import mean
from vestige.privacy.accounting import Mechanism, noise_for
from vestige.training.config import TrainingConfig
from vestige.training.sequences import SequenceBatches, Sequences

FIGURE1_PATTERNS = ("all-low", "high-to-low")
FREQUENCIES = ("1:1M", "1:100K")
"""How often a canary's tokens occur in the paper's updates of Table 2, rarer first."""
SEED_STEP = 1_000
"""Between the seeds of two trainings."""
RQ5_PATTERN = "all-low"
RQ5_COLUMNS = (
    *("copies", "phrase", "score", "control_score", "beam_rank", "in_beam"),
    *("prefix_rank_lower", "prefix_rank_upper", "rank_lower", "rank_upper"),
)


@table("updates", "table1", "table1-reddit-rnn", "table1-reddit-transformer", "table1-wikitext")
def table1(
    work: Work, planting: Planting, budget: int = 20_000, trainings: int = 1
) -> Iterator[Row]:
    """Table 1: a row per canary, with its ranks in the first training.

    The paper's numbers for WikiText-103 have the name of our text, WikiText-2. `budget` is that of
    the bounded search for the exact rank. Further `trainings` of each model have other seeds and
    the copies at other positions.
    """
    paper = paper_numbers("updates", "table1", key=4)
    material = prepare(planting.setting, work)
    pairs_by_copies = {
        copies: [train_pair(planting, material, copies, number) for number in range(trainings)]
        for copies in planting.copies
    }
    work.all(call for pairs in pairs_by_copies.values() for pair in pairs for call in pair)
    for copies, pairs in pairs_by_copies.items():
        _, canaries = material.with_copies(planting, copies, seed=copies)
        first, *repeats = [work.all(pair) for pair in pairs]
        quality = material.quality(*first)
        repeated_scores = [scores_of(*load_pair(*pair), canaries) for pair in repeats]
        for row in exposures(*load_pair(*first), canaries, budget=budget):
            key = (quality["dataset"], quality["model"], row["pattern"], row["copies"])
            yield {
                **quality,
                **row,
                **{name: rank_range(row, name) for name in ("rank", "prefix_rank")},
                **over_trainings(
                    [row["score"], *(scores[row["phrase"]] for scores in repeated_scores)]
                ),
                "paper_score": paper.get(key, {}).get("score"),
            }


def train_pair(
    planting: Planting, material: Material, copies: int, number: int = 0
) -> tuple[Call, Call]:
    """The trainings of a text without canaries, and with `copies` of each.

    The model before has seed 0, that of k copies 100 + k; the n-th repetition adds 1,000 n.
    """
    text, _ = material.with_copies(planting, copies, seed=copies + SEED_STEP * number)
    before = material.snapshot(material.original, seed=SEED_STEP * number)
    return before, material.snapshot(text, seed=100 + copies + SEED_STEP * number)


@torch.no_grad()
def scores_of(before: Any, after: Any, canaries: Sequence[Canary]) -> dict[str, float]:
    """The differential score of each phrase."""
    pair = Pair.of(before, after, DIFFERENTIAL)
    return {canary.phrase: sum(gains(pair, canary.ids)) for canary in canaries}


def over_trainings(scores: Sequence[float]) -> Row:
    """A phrase's scores in several trainings: their mean with Student's interval."""
    estimate = mean(scores)
    assert estimate is not None
    low, high = estimate.low, estimate.high
    return {
        "trainings": len(scores),
        "scores": list(scores),
        "mean_score": estimate.value,
        "interval": None if low is None else f"{cell(low)} to {cell(high)}",
    }


def rank_range(row: Row, name: str) -> str:
    """A rank, or its bounds."""
    lower, upper = row[f"{name}_lower"], row[f"{name}_upper"]
    return f"{lower:,}" if lower == upper else f"{lower:,} to {cell(upper)}"


def profile_chart(rows: Rows) -> str:
    """Figure 1 as SVG: gain by position, a line for each canary and number of copies; all-low
    canaries are dashed, as in the paper."""
    columns = ("pattern", "copies", "position", "gain")
    values = [{name: row[name] for name in columns} for row in rows]
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
    """Figure 1: a row per token of canaries of some patterns, from Table 1's snapshots."""
    material = prepare(planting.setting, work)
    for copies in planting.copies:
        _, canaries = material.with_copies(planting, copies, seed=copies)
        pair = Pair.of(*load_pair(*work.all(train_pair(planting, material, copies))), DIFFERENTIAL)
        for canary in canaries:
            if canary.planted and canary.pattern in FIGURE1_PATTERNS:
                for position, gain in enumerate(gains(pair, canary.ids)):
                    yield {
                        "dataset": planting.setting.dataset,
                        "pattern": canary.pattern,
                        "copies": canary.copies,
                        "position": position + 1,
                        "piece": material.vocabulary.piece(canary.ids[position]),
                        "gain": gain,
                    }


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
    """Table 2: a row per update and number of copies.

    The `words` of the setting are those of D_orig. `copies` are the paper's two frequencies; for
    each, that many mixed `phrases` are planted. The kinds of update are given by their extra text
    in percent of D_orig.
    """
    paper = paper_numbers("updates", "table2", key=3)
    material = prepare(setting, work, percents=(*retrained, *continued))
    canaries = mixed_canaries(material, copies, phrases)
    original = material.snapshot(material.original, seed=0)
    updates: dict[tuple[str, int], tuple[Call, tuple[Canary, ...]]] = {}
    for percent in retrained:
        everything = Corpus.concatenate([material.original, *material.extra(percent)])
        text, planted = material.planted(everything, canaries, seed=percent)
        updates["re-training", percent] = material.retrained(percent, text), planted
    for percent in continued:
        extra = Corpus.concatenate(material.extra(percent))
        text, planted = material.planted(extra, canaries, seed=percent)
        updates["continued", percent] = material.continued(percent, text, original), planted
    if two_stage is not None:
        first, planted = updates["continued", two_stage]
        second = material.snapshot(material.extras[-1], seed=500 + two_stage, start=first)
        updates["two-stage", two_stage] = second, planted
    before, *finished = work.all([original, *(call for call, _ in updates.values())])
    for ((update, percent), (_, planted)), after in zip(updates.items(), finished, strict=True):
        rows = list(exposures(*load_pair(before, after), planted, budget=None))
        for number, frequency in zip(copies, FREQUENCIES, strict=True):
            yield {
                "update": update,
                "extra_percent": percent,
                "copies": number,
                **over_phrases([row for row in rows if row["copies"] == number]),
                "paper_score": paper.get((update, percent, frequency), {}).get("score"),
                **material.quality(before, after),
            }


def mixed_canaries(material: Material, copies: Sequence[int], phrases: int) -> tuple[Canary, ...]:
    """`phrases` mixed canaries for each number of copies, and their controls."""
    number = phrases * len(copies)
    canaries = frequency_canaries(
        material.original, material.vocabulary, patterns=["mixed"] * number, copies=1, seed=0
    )
    planted = [replace(c, copies=copies[n // phrases]) for n, c in enumerate(canaries[:number])]
    return (*planted, *canaries[number:])


def over_phrases(rows: Sequence[Mapping[str, float]]) -> Row:
    """One row for several canaries of one frequency: the mean, with the range."""
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


@table("updates", "rq5")
def rq5(
    work: Work,
    planting: Planting,
    private: TrainingConfig,
    budget: int = 20_000,
    epsilons: tuple[float, ...] = (5.0, 111.0),
    delta: float = 1e-5,
    max_grad_norm: float = 0.25,
    copies: int = 50,
) -> Iterator[Row]:
    """RQ5: a row per epsilon; None (undefended) first.

    `private` configures the private trainings, with Poisson sampling; its seed is not used. Epsilon
    and delta are of each private training by itself.
    """
    paper = paper_numbers("updates", "rq5", key=1)
    material = prepare(planting.setting, work)
    _, canaries = material.with_copies(planting, copies, seed=copies)
    undefended = train_pair(planting, material, copies)
    pairs: dict[float | None, tuple[Call, ...]] = {None: undefended}
    guarantees: dict[float | None, Row] = {None: {}}
    for epsilon in epsilons:
        calls, mechanisms = zip(
            *(private_training(c, private, epsilon, delta, max_grad_norm) for c in undefended),
            strict=True,
        )
        pairs[epsilon] = calls
        guarantees[epsilon] = {
            "epsilon": mechanisms[1].epsilon(delta),
            "delta": delta,
            "noise_multiplier": mechanisms[1].noise_multiplier,
            "steps": mechanisms[1].steps,
        }
    work.all(call for pair in pairs.values() for call in pair)
    for requested, pair in pairs.items():
        before, after = work.all(pair)
        rows = exposures(*load_pair(before, after), canaries, budget=budget)
        row = next(row for row in rows if row["pattern"] == RQ5_PATTERN)
        yield {
            "defence": "none" if requested is None else "dp-sgd",
            "asked_epsilon": requested,
            **guarantees[requested],
            **{name: after.value[name] for name in ("accuracy", "perplexity", "epoch")},
            **{name: row[name] for name in RQ5_COLUMNS},
            **{f"paper_{name}": value for name, value in paper.get((requested,), {}).items()},
        }


def private_training(
    undefended: Call, private: TrainingConfig, epsilon: float, delta: float, max_grad_norm: float
) -> tuple[Call, Mechanism]:
    """The private training on the text of an undefended one, and its privacy mechanism."""
    arguments = undefended.arguments
    batches = private_batches(private, arguments["corpus"], arguments["vocabulary"])
    rate, steps = batches.sample_rate, private.epochs * len(batches)
    noise = noise_for(epsilon=epsilon, delta=delta, sample_rate=rate, steps=steps)
    config = replace(private, seed=arguments["config"].seed)
    defence = DPSGD(noise_multiplier=noise, max_grad_norm=max_grad_norm)
    call = train(**{**arguments, "config": config, "defence": defence})
    return call, Mechanism(noise_multiplier=noise, sample_rate=rate, steps=steps)


def private_batches(
    private: TrainingConfig, text: Corpus, vocabulary: Vocabulary
) -> SequenceBatches:
    """The sampled batches of a private training of a text."""
    config = DPSGD(noise_multiplier=1.0).suited(private)
    sequences = Sequences.of(encode(text, vocabulary), length=config.sequence_length)
    batching: Any = config.batching
    return SequenceBatches(sequences, config.batch_size, batching, 0, torch.device("cpu"))
