"""Defences compared at equal utility: one training each, many seeds, read at perplexities.

A defence that learns less also remembers less. Exposure is therefore read where the perplexity on
test text is the same, and beside it stands how many steps that took and how often a canary was
read: a gain may be fewer presentations and nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import altair as alt
import numpy as np
import vl_convert
from numpy.typing import NDArray

from reproduction.papers import Numbers, Plan, Row, Rows
from reproduction.regularization.measured_training import MeasuredTraining, at_level
from reproduction.regularization.methods import METHODS, PLAIN, Method
from reproduction.regularization.natural_canaries import real_canaries
from reproduction.regularization.user_texts import Users, UserText, read_users
from vestige.audits.extraction.canaries import complete
from vestige.data.encoded import encode
from vestige.metrics.comparison import SubgroupGap, rate_of_trainings, subgroup_gap
from vestige.metrics.estimates import columns, mean
from vestige.models.checkpoints import load_model
from vestige.models.recurrent_network import LSTMConfig
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import score_documents


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What is computed, at one scale.

    Attributes:
        text: whose.
        shape: of the model.
        training: how it learns; the method decides on batches and step.
        levels: test perplexities at which they are, falling.
        seeds: of weights and order; each seed is shared by all methods.
    """

    text: UserText
    shape: LSTMConfig
    training: TrainingConfig
    levels: tuple[float, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Comparison:
    """The trainings of a comparison: every method with every seed.

    Attributes:
        scale: what they are.
        users: whose texts.
        directory: each method and seed has a folder in it.
    """

    scale: Scale
    users: Users
    directory: Path

    @cached_property
    def trainings(self) -> dict[tuple[str, int], MeasuredTraining]:
        """By method and seed."""
        every = product(self.scale.seeds, METHODS)
        return {(method.name, seed): self._training(method, seed) for seed, method in every}

    @cached_property
    def test_users(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(d,) the user of each test document, and (u,) each user's training documents."""
        encoded = encode(self.users.original, self.users.vocabulary)
        test = encode(self.users.test, self.users.vocabulary)
        assert encoded.users is not None
        assert test.users is not None
        place = np.array([encoded.names.index(name) for name in test.names])
        return place[test.users], np.bincount(encoded.users, minlength=len(encoded.names))

    @property
    def plain(self) -> Method:
        """The undefended method."""
        return next(method for method in METHODS if method.name == PLAIN)

    def control(self, of: Method) -> Method:
        """The undefended method whose batches are of the same kind."""
        return next(method for method in METHODS if method.name == of.control)

    def of(self, method: Method) -> list[MeasuredTraining]:
        """The trainings of a method, in the order of the seeds."""
        return [self.trainings[method.name, seed] for seed in self.scale.seeds]

    def _training(self, method: Method, seed: int) -> MeasuredTraining:
        usual, users = self.scale.training, self.users
        folder = self.directory / method.name.replace(",", "").replace(" ", "-")
        return MeasuredTraining(
            directory=folder / str(seed),
            corpus=users.planted,
            vocabulary=users.vocabulary,
            config=replace(
                usual,
                seed=seed,
                batching=method.batching,
                optimizer=method.optimizer or usual.optimizer,
                learning_rate=method.learning_rate or usual.learning_rate,
            ),
            shape=replace(self.scale.shape, dropout_in=method.dropout, dropout_out=method.dropout),
            test=users.test,
            defence=method.defence,
            levels=self.scale.levels,
            canaries=users.canaries,
            original=users.original,
        )


def plan_of(
    scale: Scale,
    directory: Path,
    data: Path | None,
    fill: Callable[[Comparison], Iterator[Row]],
    chart: Callable[[Rows], str] | None = None,
) -> Plan:
    """Every method with every seed, and what then fills a table."""
    made = Comparison(scale, read_users(scale.text, data), directory)
    values = {
        "users": scale.text.users,
        "dataset": scale.text.dataset,
        "repetitions": ", ".join(map(str, scale.text.repetitions)),
        "seeds": ", ".join(map(str, scale.seeds)),
    }
    trials = list(made.trainings.values())
    return Plan(trials=trials, rows=partial(fill, made), values=values, chart=chart)


def exposure_rows(made: Comparison) -> Iterator[Row]:
    """A row for each level, method and number of copies: means over seeds, with intervals."""
    for level, method in product(made.scale.levels, METHODS):
        own = _at(made, method, level)
        if not own:
            yield {"level": level, "training": method.name, "seeds": 0}
            continue
        control = {} if method.name == method.control else _at(made, made.control(method), level)
        for copies in sorted(next(iter(own.values()))["exposure"]["canary"], key=int):
            row = {"level": level, "training": method.name, "copies": int(copies)}
            yield row | _exposures(own, control, copies)


def _at(made: Comparison, method: Method, level: float) -> dict[int, Row]:
    """Exposures at a level, by the seed of those trainings that reached it."""
    found = {one.config.seed: at_level(one.watched(), level) for one in made.of(method)}
    return {seed: one for seed, one in found.items() if one is not None}


def _exposures(own: Mapping[int, Row], control: Mapping[int, Row], copies: str) -> Row:
    """Exposure of the canaries of so many copies, and against the control of the same seed."""
    means = {seed: one["exposure"]["canary"][copies] for seed, one in own.items()}
    against = [
        mean - control[seed]["exposure"]["canary"][copies]
        for seed, mean in means.items()
        if seed in control
    ]
    return {
        "seeds": len(own),
        **_averaged("exposure", list(means.values())),
        "shuffled": fmean(one["exposure"]["shuffled"][copies] for one in own.values()),
        "at_ceiling": fmean(one["exposure"]["at_ceiling"][copies] for one in own.values()),
        **_averaged("against_control", against),
        "steps": fmean(one["step"] for one in own.values()),
        "presentations": fmean(one["epoch"] for one in own.values()) * int(copies),
    }


def completion_rows(made: Comparison) -> Iterator[Row]:
    """A row for each level and method: planted canaries and real texts, over seeds."""
    most = str(max(made.scale.text.repetitions))
    for level in made.scale.levels:
        real = {one.config.seed: _real(made, one, level) for one in made.of(made.plain)}
        for method in METHODS:
            reached = [(one, own) for one in made.of(method) if (own := one.measures(level))]
            found = [measured for _, measured in reached]
            counts = [zip(*one["completed"].values(), strict=True) for one in found]
            texts = [
                _completed(one.level_folder(level), real[one.config.seed])
                for one, _ in reached
                if real[one.config.seed]
            ]
            yield {
                "level": level,
                "training": method.name,
                "seeds": len(found),
                "canaries": len(made.users.canaries) - made.scale.text.controls,
                **_share("synthetic", [[sum(column) for column in of] for of in counts]),
                **_share(f"of_{most}_copies", [one["completed"][most] for one in found]),
                **_share("real", texts),
                "never_planted": _mean(one["completion"]["control_rate"] for one in found),
                "other_order": _mean(one["completion"]["shuffled_rate"] for one in found),
            }


def subgroup_rows(made: Comparison, *, paper: Numbers) -> Iterator[Row]:
    """A row for each method: utility lost by the users with most and with fewest documents."""
    level = made.scale.levels[-1]
    for method in METHODS:
        if method.name == PLAIN:
            continue
        gaps = [
            _gap(made, plain, own)
            for one, undefended in zip(made.of(method), made.of(made.plain), strict=True)
            if (own := one.measures(level)) and (plain := undefended.measures(level))
        ]
        row: Row = {"level": level, "training": method.name, "seeds": len(gaps)}
        if gaps:
            for name in ("top", "low", "gap"):
                row |= _averaged(name, [getattr(gap, name).value for gap in gaps])
            row["rank_correlation"] = _mean(
                gap.correlation.value for gap in gaps if gap.correlation is not None
            )
        yield {**row, "paper_gap": paper.get((method.name,), {}).get("gap")}


def _gap(made: Comparison, plain: Row, own: Row) -> SubgroupGap:
    users, samples = made.test_users
    return subgroup_gap(
        plain["loss"],
        own["loss"],
        tokens=own["tokens"],
        users=users,
        samples=samples,
        k=5 if made.scale.text.users >= 20 else 2,
    )


def training_rows(made: Comparison, *, paper: Numbers) -> Iterator[Row]:
    """A row for each level and method: perplexities, steps, the fresh discriminator, seconds."""
    measured = {
        "perplexity": "test_perplexity",
        "training_perplexity": "training_perplexity",
        "accuracy": "test_accuracy",
        "step": "steps",
        "epoch": "epochs",
        "probe_accuracy": "author_probe",
        "probe_chance": "chance",
        "probe_bag_of_words": "bag_of_words",
    }
    names = dict(zip(made.scale.levels, ("high", "low"), strict=False))
    for level, method in product(made.scale.levels, METHODS):
        reached = [found for one in made.of(method) if (found := one.measures(level))]
        known = paper.get(("avocado", names.get(level), method.name), {})
        yield {
            "level": level,
            "training": method.name,
            "seeds": len(reached),
            **{
                column: _mean(one[name] for one in reached if one.get(name) is not None)
                for name, column in measured.items()
            },
            "seconds": fmean(one.result()["seconds"] for one in made.of(method)),
            "paper_training": known.get("paper_training"),
            "paper_test": known.get("paper_test"),
        }


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


def _real(made: Comparison, undefended: MeasuredTraining, level: float) -> Sequence[Any]:
    """Each user's most perplexing training text under an undefended model."""
    if undefended.measures(level) is None:
        return ()
    users, length = made.users, undefended.config.sequence_length
    data = encode(users.original, users.vocabulary)
    model = load_model(undefended.level_folder(level))
    scores = score_documents(model, data, sequence_length=length)
    return real_canaries(data, users.vocabulary, loss=scores.loss, tokens=scores.tokens)


def _completed(folder: Path, canaries: Sequence[Any]) -> list[int]:
    rate = complete(load_model(folder), canaries, beam=1).rate("canary")
    return [0, 0] if rate is None else [rate.count, rate.n]


def _share(name: str, counts: Sequence[Sequence[int]]) -> Row:
    """A share over trainings, each of which has completed so many of so many."""
    successes, trials = ([pair[i] for pair in counts] for i in (0, 1))
    if not sum(trials):
        return dict(columns(name, None))
    share = columns(name, rate_of_trainings(successes, trials))
    return {**share, f"{name}_by_seed": " ".join(map(str, successes))}


def _averaged(name: str, values: Sequence[float]) -> Row:
    """The mean and its interval."""
    return dict(columns(name, mean(values)))


def _mean(values: Iterable[float]) -> float | None:
    """The mean; None of no values."""
    values = list(values)
    return fmean(values) if values else None
