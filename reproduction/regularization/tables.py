"""Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
Language Models", arXiv:2103.07567: Figures 2 to 4 and Table 1, its numbers beside ours.

A defence that learns less also remembers less. Exposure is therefore compared at equal test
perplexity, together with the number of steps and of presentations of a canary: fewer presentations
alone can explain a lower exposure.

Differs from the paper: Reddit's college comments replace its Reddit and Avocado, which is licensed;
every method has an undefended control in the same kind of batches and a dropout control, every
canary its words in another order, every number five seeds; test perplexities are equal, not similar
to each other; the goldfish loss is compared with the paper's defences.
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
from reproduction.regularization.measured_training import at_level, level_folder, measured_training
from reproduction.regularization.methods import METHODS, PLAIN, Method
from reproduction.regularization.user_texts import Users, UserText, natural_canaries, read_users
from reproduction.stages import Call, Finished, Work
from vestige.audits.extraction.canaries import complete
from vestige.data.encoded import encode
from vestige.metrics.comparison import rate_of_trainings, subgroup_gap
from vestige.metrics.estimates import columns, mean
from vestige.models.checkpoints import load_model
from vestige.models.protocols import LanguageModel
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
    """A finished `measured_training` of a method, with a seed."""

    seed: int
    result: Finished

    def at(self, level: float) -> Mapping[str, Any] | None:
        """The measurements at a level; None if it was never reached."""
        measured: Mapping[str, Any] | None = self.result.value["levels"].get(f"{level:g}")
        return measured

    def exposure(self, level: float) -> Mapping[str, Any] | None:
        """Exposures when it passed the level."""
        return at_level(self.result.value["watched"], level)

    def model(self, level: float) -> LanguageModel:
        """The model that reached a level."""
        return load_model(level_folder(self.result.folder, level))


Trainings = Mapping[str, Sequence[Training]]
"""By method, in the order of the seeds."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Compared trainings: every method with every seed.

    Attributes:
        text: of the users.
        shape: of the model.
        training: its configuration; the method decides batches and step.
        levels: test perplexities at which they are compared, falling.
        seeds: of weights and order; all methods share them.
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
        """The training of a method with a seed."""
        default = self.training
        config = replace(
            default,
            seed=seed,
            batching=method.batching,
            optimizer=method.optimizer or default.optimizer,
            learning_rate=method.learning_rate or default.learning_rate,
        )
        shape = replace(self.shape, dropout_in=method.dropout, dropout_out=method.dropout)
        return measured_training(users, config, shape, method.defence, self.levels)

    def trainings(self, work: Work) -> Trainings:
        """Every method with every seed, finished."""
        users, runs = self.users(work), list(product(METHODS, self.seeds))
        finished = work.all(self.call(users, method, seed) for method, seed in runs)
        trainings: dict[str, list[Training]] = {method.name: [] for method in METHODS}
        for (method, seed), result in zip(runs, finished, strict=True):
            trainings[method.name].append(Training(seed, result))
        return trainings


def exposure_chart(rows: Rows) -> str:
    """Exposure by copies, a line for each training, a panel for each level; SVG."""
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
    """A row per level, method and number of copies; differences to the control are by seed."""
    for level, method in product(levels, METHODS):
        by_seed, control = (
            {t.seed: seen for t in trainings[name] if (seen := t.exposure(level))}
            for name in (method.name, method.control)
        )
        if not by_seed:
            yield {"level": level, "training": method.name, "seeds": 0}
            continue
        measured = list(by_seed.values())
        for copies in sorted(measured[0]["exposure"]["canary"], key=int):
            exposures = {seed: seen["exposure"]["canary"][copies] for seed, seen in by_seed.items()}
            differences = [
                exposure - control[seed]["exposure"]["canary"][copies]
                for seed, exposure in exposures.items()
                if seed in control and method.name != method.control
            ]
            yield {
                "level": level,
                "training": method.name,
                "copies": int(copies),
                "seeds": len(measured),
                **columns("exposure", mean(list(exposures.values()))),
                **{
                    name: fmean(seen["exposure"][name][copies] for seen in measured)
                    for name in ("shuffled", "at_ceiling")
                },
                **columns("against_control", mean(differences)),
                "steps": fmean(seen["step"] for seen in measured),
                "presentations": fmean(seen["epoch"] for seen in measured) * int(copies),
            }


@table("regularization", "figure3ab")
def figure3ab(work: Work, comparison: Comparison) -> Iterator[Row]:
    """The tab attack, by level and method: planted canaries and real texts, over seeds."""
    text, length = comparison.text, comparison.training.sequence_length
    users, trainings = comparison.users(work), comparison.trainings(work)
    original = encode(users.original, users.vocabulary)
    for level in comparison.levels:
        real = {}
        for plain in trainings[PLAIN]:
            if plain.at(level):
                scores = score_documents(plain.model(level), original, sequence_length=length)
                real[plain.seed] = natural_canaries(
                    original, users.vocabulary, loss=scores.loss, tokens=scores.tokens
                )
        for method in METHODS:
            reached = [t for t in trainings[method.name] if t.at(level)]
            completed = [
                complete(t.model(level), real[t.seed], beam=1).rate("canary")
                for t in reached
                if t.seed in real
            ]
            yield {
                "level": level,
                "training": method.name,
                "seeds": len(reached),
                "canaries": len(users.canaries) - text.controls,
                **completion_row(
                    [t.at(level) for t in reached],
                    [(rate.count, rate.n) if rate else (0, 0) for rate in completed],
                    str(max(text.repetitions)),
                ),
            }


def completion_row(
    measured: Sequence[Any], real: Sequence[tuple[int, int]], most_copies: str
) -> Row:
    """Shares that trainings complete: of all canaries, of the most copied, of real texts.

    `real` are the completed texts of each training, and all its texts.
    """
    totals = [
        [sum(column) for column in zip(*seen["completed"].values(), strict=True)]
        for seen in measured
    ]
    return {
        **_share("synthetic", totals),
        **_share(f"of_{most_copies}_copies", [seen["completed"][most_copies] for seen in measured]),
        **_share("real", real),
        "never_planted": _mean(seen["completion"]["control_rate"] for seen in measured),
        "other_order": _mean(seen["completion"]["shuffled_rate"] for seen in measured),
    }


def _share(name: str, counts: Sequence[Sequence[int]]) -> Row:
    """A share over trainings, from (successes, trials) of each."""
    successes, trials = ([pair[i] for pair in counts] for i in (0, 1))
    if not sum(trials):
        return dict(columns(name, None))
    share = columns(name, rate_of_trainings(successes, trials))
    return {**share, f"{name}_by_seed": " ".join(map(str, successes))}


@table("regularization", "figure3c")
def figure3c(work: Work, comparison: Comparison) -> Iterator[Row]:
    """The cost of a defence for users with most and with fewest documents, at the last level."""
    users = comparison.users(work)
    training, test = (encode(part, users.vocabulary) for part in (users.original, users.test))
    assert training.users is not None
    assert test.users is not None
    index = np.array([training.names.index(name) for name in test.names])
    yield from subgroup_rows(
        comparison.trainings(work),
        comparison.levels[-1],
        users=index[test.users],
        samples=np.bincount(training.users, minlength=len(training.names)),
        k=5 if comparison.text.users >= 20 else 2,
    )


def subgroup_rows(trainings: Trainings, level: float, **groups: Any) -> Iterator[Row]:
    """A row per method: its gaps to the undefended trainings of the same seeds."""
    paper = paper_numbers("regularization", "figure3c", key=1)
    for method in METHODS:
        if method.name == PLAIN:
            continue
        gaps = [
            subgroup_gap(plain["loss"], defended["loss"], tokens=defended["tokens"], **groups)
            for t, undefended in zip(trainings[method.name], trainings[PLAIN], strict=True)
            if (defended := t.at(level)) and (plain := undefended.at(level))
        ]
        row: Row = {"level": level, "training": method.name, "seeds": len(gaps)}
        if gaps:
            for name in ("top", "low", "gap"):
                row |= columns(name, mean([getattr(gap, name).value for gap in gaps]))
            row["rank_correlation"] = _mean(g.correlation.value for g in gaps if g.correlation)
        yield {**row, "paper_gap": paper.get((method.name,), {}).get("gap")}


@table("regularization", "table1")
def table1(work: Work, comparison: Comparison) -> Iterator[Row]:
    """Perplexities, steps, the fresh discriminator and seconds, by level and method."""
    yield from training_rows(comparison.trainings(work), comparison.levels)


def training_rows(trainings: Trainings, levels: Sequence[float]) -> Iterator[Row]:
    """A row per level and method: means over the seeds that reached the level."""
    paper = paper_numbers("regularization", "table1", key=3)
    names = dict(zip(levels, ("high", "low"), strict=False))
    for level, method in product(levels, METHODS):
        measured = [seen for t in trainings[method.name] if (seen := t.at(level))]
        numbers = paper.get(("avocado", names.get(level), method.name), {})
        yield {
            "level": level,
            "training": method.name,
            "seeds": len(measured),
            **{
                column: _mean(seen[name] for seen in measured if seen.get(name) is not None)
                for name, column in MEASURED.items()
            },
            "seconds": fmean(t.result.value["seconds"] for t in trainings[method.name]),
            "paper_training": numbers.get("paper_training"),
            "paper_test": numbers.get("paper_test"),
        }


def _mean(values: Iterable[float]) -> float | None:
    """The mean; None of no values."""
    values = list(values)
    return fmean(values) if values else None
