"""Tables of canaries: planted in one dataset after another, and in updates of several kinds."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from vestige.data.canaries import frequency_canaries
from vestige.data.canary import Canary
from vestige.data.corpus import Corpus
from vestige.experiments.exposures import exposures, token_profile
from vestige.experiments.settings import Material, Plan, Setting, chosen_canaries, prepare

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Canaries of each pattern in one dataset, a model for each number of copies.

    Attributes:
        setting: the dataset and the model.
        copies: of each canary.
        phrases: canaries by pattern; empty: made for the corpus.
        controls: never planted, by pattern; needed where phrases are given.
        budget: of the bounded search for the exact rank.
    """

    setting: Setting
    copies: tuple[int, ...]
    phrases: Mapping[str, str] = field(default_factory=dict)
    controls: Mapping[str, str] = field(default_factory=dict)
    budget: int = 20_000


@dataclass(frozen=True, kw_only=True)
class Extension:
    """Mixed canaries in updates of several kinds, with more or less extra text.

    Attributes:
        setting: its `words` are those of D_orig.
        copies: the paper's two frequencies, as numbers of copies.
        phrases: mixed canaries for each number of copies, planted together.
        retrained: extra text in percent of D_orig.
        continued: the same, for continued training.
        two_stage: extra text of each stage, or None for no such update.
    """

    setting: Setting
    copies: tuple[int, ...]
    phrases: int
    retrained: tuple[int, ...] = (0, 20, 50, 100)
    continued: tuple[int, ...] = (20, 50, 100)
    two_stage: int | None = 100


@dataclass(frozen=True)
class _Planted:
    """One updated model of a trial."""

    material: Material
    copies: int
    canaries: tuple[Canary, ...]
    budget: int

    @property
    def name(self) -> str:
        return f"copies-{self.copies}"


def trial_plan(
    trials: Iterable[Trial],
    directory: Path,
    data: Path | None,
    *,
    paper: Mapping[tuple[str, str, str, int], float],
) -> Plan:
    """Table 1: a row for each canary. The model before has seed 0, that of k copies 100 + k.

    Args:
        trials: the datasets.
        directory: where each keeps its snapshots.
        data: the folder of corpora.
        paper: its score of (dataset, model, pattern, copies).
    """
    trainings, updates = [], []
    for trial in trials:
        material = prepare(trial.setting, directory, data)
        trainings.append(material.training("copies-0", material.original, seed=0))
        for copies in trial.copies:
            made = chosen_canaries(material, trial.phrases, trial.controls, copies=copies)
            text, canaries = material.planted(material.original, made, seed=copies)
            update = _Planted(material, copies, canaries, trial.budget)
            trainings.append(material.training(update.name, text, seed=100 + copies))
            updates.append(update)

    def rows() -> Iterator[Row]:
        for update in updates:
            material, name = update.material, update.name
            before, after = material.model("copies-0"), material.model(name)
            learnt = material.learnt("copies-0", name)
            for row in exposures(before, after, update.canaries, budget=update.budget):
                key = (learnt["dataset"], learnt["model"], row["pattern"], row["copies"])
                ranks = {"rank": _span(row, "rank"), "prefix_rank": _span(row, "prefix_rank")}
                yield {**learnt, **row, **ranks, "paper_score": paper.get(key)}

    return Plan(trainings=tuple(trainings), rows=rows)


def profile_plan(
    trial: Trial, directory: Path, data: Path | None, *, patterns: tuple[str, ...]
) -> Plan:
    """Figure 1: a row for each token of some canaries of a trial, whose snapshots it shares."""
    material = prepare(trial.setting, directory, data)
    trainings = trial_plan([trial], directory, data, paper={}).trainings
    before = "copies-0"

    def rows() -> Iterator[Row]:
        for copies in trial.copies:
            made = chosen_canaries(material, trial.phrases, trial.controls, copies=copies)
            _, canaries = material.planted(material.original, made, seed=copies)
            pair = material.model(before), material.model(f"copies-{copies}")
            for canary in canaries:
                if canary.planted and canary.pattern in patterns:
                    for row in token_profile(*pair, canary):
                        yield {"dataset": trial.setting.dataset, **row}

    return Plan(trainings=trainings, rows=rows)


def extension_plan(
    extension: Extension,
    directory: Path,
    data: Path | None,
    *,
    paper: Mapping[tuple[str, int, int], float],
) -> Plan:
    """Table 2: a row for each update and number of copies.

    Args:
        extension: which updates.
        directory: where the setting keeps its snapshots.
        data: the folder of corpora.
        paper: its score of (update, extra percent, which of its two frequencies).
    """
    material, extra = extended(
        extension.setting, directory, data, (*extension.retrained, *extension.continued)
    )
    made = _mixed(material, extension)
    trainings = [material.training("original", material.original, seed=0)]
    updates: list[tuple[str, int, str, tuple[Canary, ...]]] = []
    for percent in extension.retrained:
        name = f"retrained-{percent}"
        whole = Corpus.concatenate([material.original, *extra(percent)])
        text, canaries = material.planted(whole, made, seed=percent)
        trainings.append(material.training(name, text, seed=100 + percent))
        updates.append(("re-training", percent, name, canaries))
    for percent in extension.continued:
        name = f"continued-{percent}"
        text, canaries = material.planted(Corpus.concatenate(extra(percent)), made, seed=percent)
        trainings.append(material.training(name, text, seed=300 + percent, start="original"))
        updates.append(("continued", percent, name, canaries))
    if extension.two_stage is not None:
        percent = extension.two_stage
        # The first stage is the continued training with as much text: the last row so far has
        # the ids of all canaries, which do not depend on where they are planted.
        canaries = updates[-1][3]
        first, name = f"continued-{percent}", f"two-stage-{percent}"
        later = material.training(name, material.extras[-1], seed=500 + percent, start=first)
        trainings.append(later)
        updates.append(("two-stage", percent, name, canaries))

    def rows() -> Iterator[Row]:
        before = material.model("original")
        for update, percent, name, canaries in updates:
            learnt = material.learnt("original", name)
            found = list(exposures(before, material.model(name), canaries, budget=None))
            for place, copies in enumerate(extension.copies):
                chosen = [row for row in found if row["copies"] == copies]
                yield {
                    "update": update,
                    "extra_percent": percent,
                    "copies": copies,
                    **_over_phrases(chosen),
                    "paper_score": paper.get((update, percent, place)),
                    **learnt,
                }

    return Plan(trainings=tuple(trainings), rows=rows)


def extended(
    setting: Setting,
    directory: Path,
    data: Path | None,
    percents: Iterable[int],
    *,
    read_too: tuple[Corpus, ...] = (),
) -> tuple[Material, "Extra"]:
    """A setting with extra texts, each holding the smaller ones, and as large a text for later.

    Returns:
        the material, whose last extra part is for later and as large as the largest extra,
        and the extra text of a percentage, as parts.
    """
    if setting.words is None:
        raise ValueError(f"words must be given where text is added, got {setting}")
    levels = sorted({0, *percents})
    steps = [b - a for a, b in itertools.pairwise(levels)]
    sizes = [round(setting.words * step / 100) for step in (*steps, levels[-1])]
    material = prepare(setting, directory, data, extra_words=sizes, read_too=read_too)
    return material, Extra(material, tuple(levels))


@dataclass(frozen=True)
class Extra:
    """Called with a percentage, gives the parts of the extra text of that size."""

    material: Material
    levels: tuple[int, ...]

    def __call__(self, percent: int) -> tuple[Corpus, ...]:
        return self.material.extras[: self.levels.index(percent)]


def _mixed(material: Material, extension: Extension) -> tuple[Canary, ...]:
    number = extension.phrases * len(extension.copies)
    made = frequency_canaries(
        material.original, material.vocabulary, patterns=["mixed"] * number, copies=1, seed=0
    )
    copies = [k for k in extension.copies for _ in range(extension.phrases)]
    planted = [replace(c, copies=k) for c, k in zip(made[:number], copies, strict=True)]
    return (*planted, *made[number:])


def _over_phrases(rows: list[Row]) -> Row:
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


def _span(row: Row, name: str) -> str:
    lower, upper = row[f"{name}_lower"], row[f"{name}_upper"]
    most = f"{upper:,}" if upper < 10**7 else f"{upper:.1e}"
    return f"{lower:,}" if lower == upper else f"{lower:,} to {most}"
