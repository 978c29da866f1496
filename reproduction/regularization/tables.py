"""Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
Language Models", arXiv:2103.07567: Figures 2 to 4 and Table 1, its numbers beside ours.

A defence that learns less also remembers less. Exposure is therefore read where the perplexity on
test text is the same, beside how many steps that took and how often a canary was read: a gain may
be fewer presentations and nothing else.

Differs from the paper: Reddit's college comments stand in for its Reddit and for Avocado, which is
licensed; every method has an undefended control in the same kind of batches and a dropout control,
every canary its words in another order, every number five seeds; exposure is read where the test
perplexities are equal, not near each other; the goldfish loss is compared with the paper's
defences.

"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean
from typing import Any

import altair as alt
import numpy as np
import vl_convert

from reproduction.papers import Row, Rows, paper_numbers, table
from reproduction.regularization.measured_training import (
    at_level,
    level_folder,
    measured_training,
)
from reproduction.regularization.methods import METHODS, PLAIN, Method
from reproduction.regularization.natural_canaries import real_canaries
from reproduction.regularization.user_texts import Users, UserText, read_users
from reproduction.stages import Call, Finished, Work
from vestige.audits.extraction.canaries import complete
from vestige.data.encoded import encode
from vestige.metrics.comparison import rate_of_trainings, subgroup_gap
from vestige.metrics.estimates import columns, mean
from vestige.models.checkpoints import load_model
from vestige.models.recurrent_network import LSTMConfig
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import score_documents

MEASURED = {
    "perplexity": "test_perplexity",
    "training_perplexity": "training_perplexity",
    "accuracy": "test_accuracy",
    "step": "steps",
    "epoch": "epochs",
    "probe_accuracy": "author_probe",
    "probe_chance": "chance",
    "probe_bag_of_words": "bag_of_words",
}
"""Columns of Table 1 by the names of measures."""


@dataclass(frozen=True)
class Training:
    """A finished `measured_training` of a method, under a seed."""

    seed: int
    done: Finished

    def at(self, level: float) -> Mapping[str, Any] | None:
        """What was measured when it reached a level; None where it never did."""
        found: Mapping[str, Any] | None = self.done.value["levels"].get(f"{level:g}")
        return found

    def exposure(self, level: float) -> Mapping[str, Any] | None:
        """Exposures as they were when it passed the level."""
        return at_level(self.done.value["watched"], level)


Trainings = Mapping[str, Sequence[Training]]
"""By method, in the order of the seeds."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Trainings that are compared: every method with every seed.

    Attributes:
        text: whose.
        shape: of the model.
        training: how it learns; the method decides batches and step.
        levels: test perplexities at which they are compared, falling.
        seeds: of weights and order; each seed is shared by all methods.
    """

    text: UserText
    shape: LSTMConfig
    training: TrainingConfig
    levels: tuple[float, ...]
    seeds: tuple[int, ...]

    def users(self, work: Work) -> Users:
        """The texts."""
        return read_users(self.text, work.data)

    def call(self, users: Users, method: Method, seed: int) -> Call:
        """The training of a method under a seed."""
        usual = self.training
        config = replace(
            usual,
            seed=seed,
            batching=method.batching,
            optimizer=method.optimizer or usual.optimizer,
            learning_rate=method.learning_rate or usual.learning_rate,
        )
        shape = replace(self.shape, dropout_in=method.dropout, dropout_out=method.dropout)
        return measured_training(users, config, shape, method.defence, self.levels)

    def trainings(self, work: Work) -> Trainings:
        """Every method with every seed, finished."""
        every, users = list(product(METHODS, self.seeds)), self.users(work)
        done = work.all(self.call(users, method, seed) for method, seed in every)
        found: dict[str, list[Training]] = {method.name: [] for method in METHODS}
        for (method, seed), one in zip(every, done, strict=True):
            found[method.name].append(Training(seed, one))
        return found


def exposure_chart(rows: Rows) -> str:
    """Exposure against copies, a line for each training, a panel for each level; SVG."""
    values = [
        {name: row[name] for name in ("level", "training", "copies", "exposure", "shuffled")}
        | {"low": row["exposure_low"], "high": row["exposure_high"]}
        for row in rows
        if row.get("exposure") is not None
    ]
    base = alt.Chart(alt.InlineData(values=values))
    x = alt.X("copies:Q", title="copies", scale=alt.Scale(type="symlog"))
    color = alt.Color("training:N", title=None, legend=alt.Legend(labelLimit=300))
    lines = base.mark_line(point=True).encode(
        x=x, y=alt.Y("exposure:Q", title="exposure in bits"), color=color
    )
    bars = base.mark_rule(opacity=0.5).encode(x=x, y="low:Q", y2="high:Q", color=color)
    dotted = base.mark_line(strokeDash=[2, 3], opacity=0.6).encode(x=x, y="shuffled:Q", color=color)
    panels = alt.layer(lines, bars, dotted).properties(width=330, height=260)
    title = alt.Header(title="test perplexity (dotted: the words in another order)")
    svg: str = vl_convert.vegalite_to_svg(
        panels.facet(column=alt.Column("level:N", sort="descending", header=title)).to_dict()
    )
    return svg


@table("regularization", "figure2", chart=exposure_chart)
def figure2(work: Work, comparison: Comparison) -> Iterator[Row]:
    """Exposure by level, method and number of copies: means over seeds, with intervals."""
    yield from exposure_rows(comparison.trainings(work), comparison.levels)


def exposure_rows(trainings: Trainings, levels: Sequence[float]) -> Iterator[Row]:
    """A row for each level, method and number of copies; a control is paired by seed."""
    for level, method in product(levels, METHODS):
        own, control = (
            {one.seed: found for one in trainings[name] if (found := one.exposure(level))}
            for name in (method.name, method.control)
        )
        if not own:
            yield {"level": level, "training": method.name, "seeds": 0}
            continue
        every = list(own.values())
        for copies in sorted(every[0]["exposure"]["canary"], key=int):
            exposures = {seed: one["exposure"]["canary"][copies] for seed, one in own.items()}
            against = [
                exposure - control[seed]["exposure"]["canary"][copies]
                for seed, exposure in exposures.items()
                if seed in control and method.name != method.control
            ]
            yield {
                "level": level,
                "training": method.name,
                "copies": int(copies),
                "seeds": len(own),
                **columns("exposure", mean(list(exposures.values()))),
                "shuffled": fmean(one["exposure"]["shuffled"][copies] for one in every),
                "at_ceiling": fmean(one["exposure"]["at_ceiling"][copies] for one in every),
                **columns("against_control", mean(against)),
                "steps": fmean(one["step"] for one in every),
                "presentations": fmean(one["epoch"] for one in every) * int(copies),
            }


@table("regularization", "figure3ab")
def figure3ab(work: Work, comparison: Comparison) -> Iterator[Row]:
    """The tab attack, by level and method: planted canaries and real texts, over seeds."""
    text, length = comparison.text, comparison.training.sequence_length
    users, trainings = comparison.users(work), comparison.trainings(work)
    canaries = len(users.canaries) - text.controls
    for level in comparison.levels:
        real = {
            one.seed: most_perplexing(users, one, level, length)
            for one in trainings[PLAIN]
            if one.at(level)
        }
        for method in METHODS:
            reached = [one for one in trainings[method.name] if one.at(level)]
            completed = [
                completed_by(one, level, real[one.seed]) for one in reached if one.seed in real
            ]
            names = {"level": level, "training": method.name, "seeds": len(reached)}
            row = completion_row([one.at(level) for one in reached], completed, text)
            yield {**names, "canaries": canaries, **row}


def completion_row(found: Sequence[Any], real: Sequence[tuple[int, int]], text: UserText) -> Row:
    """Shares that trainings complete: of all canaries, of the most copied, of real texts."""
    most = str(max(text.repetitions))
    totals = [
        [sum(column) for column in zip(*one["completed"].values(), strict=True)] for one in found
    ]
    return {
        **_share("synthetic", totals),
        **_share(f"of_{most}_copies", [one["completed"][most] for one in found]),
        **_share("real", real),
        "never_planted": _mean(one["completion"]["control_rate"] for one in found),
        "other_order": _mean(one["completion"]["shuffled_rate"] for one in found),
    }


@table("regularization", "figure3c")
def figure3c(work: Work, comparison: Comparison) -> Iterator[Row]:
    """What a defence costs the users with most and with fewest documents, at the last level."""
    users = comparison.users(work)
    encoded, test = (encode(part, users.vocabulary) for part in (users.original, users.test))
    assert encoded.users is not None
    assert test.users is not None
    index = np.array([encoded.names.index(name) for name in test.names])
    yield from subgroup_rows(
        comparison.trainings(work),
        comparison.levels[-1],
        users=index[test.users],
        samples=np.bincount(encoded.users, minlength=len(encoded.names)),
        k=5 if comparison.text.users >= 20 else 2,
    )


def subgroup_rows(trainings: Trainings, level: float, **groups: Any) -> Iterator[Row]:
    """A row for each method: its gaps to the undefended trainings of the same seeds."""
    paper = paper_numbers("regularization", "figure3c", key=1)
    for method in METHODS:
        if method.name == PLAIN:
            continue
        gaps = [
            subgroup_gap(plain["loss"], own["loss"], tokens=own["tokens"], **groups)
            for one, undefended in zip(trainings[method.name], trainings[PLAIN], strict=True)
            if (own := one.at(level)) and (plain := undefended.at(level))
        ]
        row: Row = {"level": level, "training": method.name, "seeds": len(gaps)}
        if gaps:
            for name in ("top", "low", "gap"):
                row |= columns(name, mean([getattr(gap, name).value for gap in gaps]))
            correlations = [gap.correlation for gap in gaps if gap.correlation is not None]
            row["rank_correlation"] = _mean(one.value for one in correlations)
        yield {**row, "paper_gap": paper.get((method.name,), {}).get("gap")}


@table("regularization", "table1")
def table1(work: Work, comparison: Comparison) -> Iterator[Row]:
    """Perplexities, steps, the fresh discriminator and seconds, by level and method."""
    yield from training_rows(comparison.trainings(work), comparison.levels)


def training_rows(trainings: Trainings, levels: Sequence[float]) -> Iterator[Row]:
    """A row for each level and method: means over the seeds that reached the level."""
    paper = paper_numbers("regularization", "table1", key=3)
    names = dict(zip(levels, ("high", "low"), strict=False))
    for level, method in product(levels, METHODS):
        reached = [found for one in trainings[method.name] if (found := one.at(level))]
        known = paper.get(("avocado", names.get(level), method.name), {})
        yield {
            "level": level,
            "training": method.name,
            "seeds": len(reached),
            **{
                column: _mean(one[name] for one in reached if one.get(name) is not None)
                for name, column in MEASURED.items()
            },
            "seconds": fmean(one.done.value["seconds"] for one in trainings[method.name]),
            "paper_training": known.get("paper_training"),
            "paper_test": known.get("paper_test"),
        }


def most_perplexing(users: Users, undefended: Training, level: float, length: int) -> Sequence[Any]:
    """Each user's most perplexing training text under an undefended model."""
    data = encode(users.original, users.vocabulary)
    model = load_model(level_folder(undefended.done.folder, level))
    scores = score_documents(model, data, sequence_length=length)
    return real_canaries(data, users.vocabulary, loss=scores.loss, tokens=scores.tokens)


def completed_by(training: Training, level: float, canaries: Sequence[Any]) -> tuple[int, int]:
    """How many of some texts the model of a level completes, and of how many."""
    model = load_model(level_folder(training.done.folder, level))
    rate = complete(model, canaries, beam=1).rate("canary")
    return (0, 0) if rate is None else (rate.count, rate.n)


def _share(name: str, counts: Sequence[Sequence[int]]) -> Row:
    """A share over trainings, each of which has completed so many of so many."""
    successes, trials = ([pair[i] for pair in counts] for i in (0, 1))
    if not sum(trials):
        return dict(columns(name, None))
    share = columns(name, rate_of_trainings(successes, trials))
    return {**share, f"{name}_by_seed": " ".join(map(str, successes))}


def _mean(values: Iterable[float]) -> float | None:
    """The mean; None of no values."""
    values = list(values)
    return fmean(values) if values else None
