"""Defences compared where they predict equally well: one training each, many seeds, read at levels.

A defence that learns less also remembers less. Exposure is therefore read where the perplexity on
test text is the same, and beside it stands how many steps that took and how often a canary was
read: a gain may be fewer presentations and nothing else.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Protocol

import altair as alt
import numpy as np
import vl_convert

from vestige.attacks.exposure.completion import complete
from vestige.attacks.exposure.natural_canaries import real_canaries
from vestige.data.encoded import encode
from vestige.defences.registry import Defence, NoDefence
from vestige.experiments.regularization.exposure_callback import at_level, level_folder, watched
from vestige.experiments.regularization.user_texts import Users, UserText, read_users
from vestige.experiments.settings import Plan
from vestige.experiments.snapshots import Training, is_finished
from vestige.metrics.clustered import rate_of_trainings
from vestige.metrics.intervals import Interval, mean_interval
from vestige.metrics.subgroup import subgroup_gap
from vestige.models.checkpoints import load_model
from vestige.models.lstm import LSTMConfig
from vestige.training.config import Batching, TrainingConfig
from vestige.training.evaluate import score_documents

Row = dict[str, Any]
PLAIN = "unmitigated"


@dataclass(frozen=True, kw_only=True)
class Method:
    """A training that is compared.

    Attributes:
        name: of it.
        batching: how sequences come together.
        defence: under which it learns.
        dropout: on what the layers and the head read.
        optimizer: in place of the training's; Adam moves what has no gradient as far as noise
            tells it to, however little noise that is.
        learning_rate: in place of the training's.
        control: the undefended method whose batches are of the same kind.
    """

    name: str
    batching: Batching
    defence: Defence = NoDefence()  # noqa: RUF009 - it is frozen
    dropout: float = 0.0
    optimizer: Literal["adam", "sgd"] | None = None
    learning_rate: float | None = None
    control: str = PLAIN


class Config(Protocol):
    """What is compared, at which scale; see `regularization.Config`."""

    @property
    def text(self) -> UserText: ...
    @property
    def shape(self) -> LSTMConfig: ...
    @property
    def training(self) -> TrainingConfig: ...
    @property
    def methods(self) -> tuple[Method, ...]: ...
    @property
    def levels(self) -> tuple[float, ...]: ...
    @property
    def seeds(self) -> tuple[int, ...]: ...


class Fill(Protocol):
    """Turns finished trainings into the rows of a table."""

    def __call__(self, trained: "Trained") -> Iterator[Row]: ...


@dataclass(frozen=True)
class Trained:
    """The trainings of a comparison.

    Attributes:
        config: what they are.
        users: whose texts.
        directory: each method and seed has a folder in it.
    """

    config: Config
    users: Users
    directory: Path

    def folder(self, method: Method, seed: int) -> Path:
        """Where a training lies."""
        return self.directory / method.name.replace(",", "").replace(" ", "-") / str(seed)

    def measures(self, method: Method, seed: int, level: float) -> Row | None:
        """What was measured when a training reached a level; None where it never did."""
        file = level_folder(self.folder(method, seed), level) / "measures.json"
        return json.loads(file.read_text("utf-8")) if file.is_file() else None

    def at(self, method: Method, seed: int, level: float) -> Row | None:
        """Exposures interpolated at a level; None where the training never reached it."""
        return at_level(watched(self.folder(method, seed)), level)

    def method(self, name: str) -> Method:
        """The method of a name."""
        return next(method for method in self.config.methods if method.name == name)


def plan_of(config: Config, directory: Path, data: Path | None, *, fill: Fill) -> Plan:
    """Every method with every seed, and what then fills a table."""
    trained = Trained(config, read_users(config.text, data), directory)
    trainings = [
        _training(trained, method, seed) for seed in config.seeds for method in config.methods
    ]
    return Plan(trainings=tuple(trainings), rows=partial(fill, trained))


def _training(trained: Trained, method: Method, seed: int) -> Training:
    config, users = trained.config, trained.users
    dropout, usual = method.dropout, config.training
    return Training(
        directory=trained.folder(method, seed),
        corpus=users.planted,
        vocabulary=users.vocabulary,
        config=replace(
            usual,
            seed=seed,
            batching=method.batching,
            optimizer=method.optimizer or usual.optimizer,
            learning_rate=method.learning_rate or usual.learning_rate,
        ),
        start=replace(config.shape, dropout_in=dropout, dropout_out=dropout),
        validation=users.test,
        defence=method.defence,
        levels=config.levels,
        canaries=users.canaries,
        probed=users.original,
    )


def exposure_rows(trained: Trained) -> Iterator[Row]:
    """A row for each level, method and number of copies: means over seeds, with intervals."""
    config = trained.config
    for level in config.levels:
        for method in config.methods:
            own = {seed: trained.at(method, seed, level) for seed in config.seeds}
            control = trained.method(method.control)
            plain = {seed: trained.at(control, seed, level) for seed in config.seeds}
            reached = [seed for seed in config.seeds if own[seed] is not None]
            if not reached:
                yield {"level": level, "training": method.name, "seeds": 0}
                continue
            found = {seed: own[seed] or {} for seed in reached}
            for copies in sorted(found[reached[0]]["exposure"]["canary"], key=int):
                means = {s: f["exposure"]["canary"][copies] for s, f in found.items()}
                shuffled = [f["exposure"]["shuffled"][copies] for f in found.values()]
                against = [
                    means[s] - other["exposure"]["canary"][copies]
                    for s in reached
                    if (other := plain[s]) is not None and method.name != control.name
                ]
                yield {
                    "level": level,
                    "training": method.name,
                    "copies": int(copies),
                    "seeds": len(reached),
                    "exposure": fmean(means.values()),
                    **_ends("exposure", mean_interval(list(means.values()))),
                    "shuffled": fmean(shuffled),
                    "at_ceiling": fmean(
                        f["exposure"]["at_ceiling"][copies] for f in found.values()
                    ),
                    "against_control": fmean(against) if against else None,
                    **_ends("against_control", mean_interval(against)),
                    "steps": fmean(f["step"] for f in found.values()),
                    "presentations": fmean(f["epoch"] for f in found.values()) * int(copies),
                }


def completion_rows(trained: Trained) -> Iterator[Row]:
    """A row for each level and method: planted canaries and real texts, over seeds."""
    config, users = trained.config, trained.users
    most = str(max(config.text.repetitions))
    for level in config.levels:
        real = {seed: _real(trained, seed, level) for seed in config.seeds}
        for method in config.methods:
            found = [trained.measures(method, seed, level) for seed in config.seeds]
            planted = [one["completed"][most] for one in found if one is not None]
            every = [_together(one["completed"].values()) for one in found if one is not None]
            never = [one["completion"] for one in found if one is not None]
            texts = [
                _completed(level_folder(trained.folder(method, seed), level), real[seed])
                for seed, one in zip(config.seeds, found, strict=True)
                if one is not None and real[seed]
            ]
            yield {
                "level": level,
                "training": method.name,
                "seeds": len(planted),
                "canaries": len(users.canaries) - config.text.controls,
                **_share("synthetic", every),
                **_share(f"of_{most}_copies", planted),
                **_share("real", texts),
                "never_planted": fmean(n["control_rate"] for n in never) if never else None,
                "other_order": fmean(n["shuffled_rate"] for n in never) if never else None,
            }


def subgroup_rows(trained: Trained, *, paper: Mapping[str, float]) -> Iterator[Row]:
    """A row for each method: utility lost by the users with most and with fewest documents."""
    config, level = trained.config, trained.config.levels[-1]
    encoded = encode(trained.users.original, trained.users.vocabulary)
    test = encode(trained.users.test, trained.users.vocabulary)
    assert encoded.users is not None
    assert test.users is not None
    place = np.array([encoded.names.index(name) for name in test.names])[test.users]
    samples = np.bincount(encoded.users, minlength=len(encoded.names))
    for method in config.methods:
        if method.name == PLAIN:
            continue
        gaps = []
        for seed in config.seeds:
            own = trained.measures(method, seed, level)
            plain = trained.measures(trained.method(PLAIN), seed, level)
            if own is not None and plain is not None:
                gaps.append(
                    subgroup_gap(
                        plain["loss"],
                        own["loss"],
                        tokens=own["tokens"],
                        users=place,
                        samples=samples,
                        k=5 if config.text.users >= 20 else 2,
                    )
                )
        row: Row = {"level": level, "training": method.name, "seeds": len(gaps)}
        if gaps:
            for name in ("top", "low", "gap"):
                values = [float(getattr(gap, name)) for gap in gaps]
                row |= {name: fmean(values), **_ends(name, mean_interval(values))}
            known = [gap.correlation for gap in gaps if gap.correlation is not None]
            row["rank_correlation"] = fmean(known) if known else None
        yield {**row, "paper_gap": paper.get(method.name)}


def training_rows(
    trained: Trained, *, paper: Mapping[tuple[str, str, str], tuple[float, float]]
) -> Iterator[Row]:
    """A row for each level and method: perplexities, steps, the fresh discriminator, seconds."""
    config = trained.config
    names = dict(zip(config.levels, ("high", "low"), strict=False))
    for level in config.levels:
        for method in config.methods:
            found = [trained.measures(method, seed, level) for seed in config.seeds]
            reached = [one for one in found if one is not None]
            figures = paper.get(("avocado", names.get(level, ""), method.name), (None, None))
            row: Row = {"level": level, "training": method.name, "seeds": len(reached)}
            columns = {
                "perplexity": "test_perplexity",
                "training_perplexity": "training_perplexity",
                "accuracy": "test_accuracy",
                "step": "steps",
                "epoch": "epochs",
                "probe_accuracy": "author_probe",
                "probe_chance": "chance",
                "probe_bag_of_words": "bag_of_words",
            }
            for name, column in columns.items():
                values = [one[name] for one in reached if one.get(name) is not None]
                row[column] = fmean(values) if values else None
            row["seconds"] = fmean(_seconds(trained, method))
            yield {**row, "paper_training": figures[0], "paper_test": figures[1]}


def exposure_chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """Exposure against copies, a line for each training, a panel for each level; SVG."""
    kept = [row for row in rows if row.get("exposure") is not None]
    values = [
        {name: row[name] for name in ("level", "training", "copies", "exposure", "shuffled")}
        | {"low": row["exposure_low"], "high": row["exposure_high"]}
        for row in kept
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


def _real(trained: Trained, seed: int, level: float) -> Sequence[Any]:
    """Each user's most perplexing training text under the undefended model of a seed."""
    folder = level_folder(trained.folder(trained.method(PLAIN), seed), level)
    if not (folder / "measures.json").is_file():
        return ()
    users = trained.users
    data = encode(users.original, users.vocabulary)
    scores = score_documents(
        load_model(folder), data, sequence_length=trained.config.training.sequence_length
    )
    return real_canaries(data, users.vocabulary, loss=scores.loss, tokens=scores.tokens)


def _completed(folder: Path, canaries: Sequence[Any]) -> list[int]:
    rate = complete(load_model(folder), canaries, beam=1).rate("canary")
    return [0, 0] if rate is None else [rate.successes, rate.trials]


def _together(pairs: Iterable[Sequence[int]]) -> list[int]:
    """Completed and asked, of all numbers of copies of one training."""
    return [sum(column) for column in zip(*pairs, strict=True)]


def _share(name: str, counts: Sequence[Sequence[int]]) -> Row:
    """A share over trainings, each of which has completed so many of so many."""
    successes, trials = ([pair[i] for pair in counts] for i in (0, 1))
    if not sum(trials):
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    interval = rate_of_trainings(successes, trials)
    return {
        name: sum(successes) / sum(trials),
        **_ends(name, interval),
        f"{name}_by_seed": " ".join(map(str, successes)),
    }


def _ends(name: str, interval: Interval | None) -> Row:
    low, high = interval or (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def _seconds(trained: Trained, method: Method) -> list[float]:
    """Of learning, for each finished training of a method."""
    folders = [trained.folder(method, seed) for seed in trained.config.seeds]
    histories = [
        json.loads((folder / "history.json").read_text("utf-8"))
        for folder in folders
        if is_finished(folder)
    ]
    return [sum(record["seconds"] for record in history) for history in histories]
