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
from vestige.experiments.settings import Material, Plan, Setting, chosen_canaries, prepare
from vestige.experiments.snapshots import Training
from vestige.experiments.tables import cell
from vestige.experiments.updates.exposures import exposures, scores_of, token_profile
from vestige.metrics.intervals import mean_interval

Row = dict[str, Any]

_APART = 1_000  # between the seeds of two trainings


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Canaries of each pattern in one dataset, a model for each number of copies.

    Attributes:
        setting: the dataset and the model.
        copies: of each canary.
        phrases: canaries by pattern; empty: made for the corpus.
        controls: never planted, by pattern; needed where phrases are given.
        budget: of the bounded search for the exact rank.
        trainings: of each model, from other seeds and with the copies in other places.
    """

    setting: Setting
    copies: tuple[int, ...]
    phrases: Mapping[str, str] = field(default_factory=dict)
    controls: Mapping[str, str] = field(default_factory=dict)
    budget: int = 20_000
    trainings: int = 1


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
    """One updated model of a trial, trained as often as the trial says."""

    material: Material
    copies: int
    canaries: tuple[Canary, ...]
    budget: int
    trainings: int

    def names(self, number: int = 0) -> tuple[str, str]:
        """The snapshots before and after the update in one of its trainings."""
        return _name(0, number), _name(self.copies, number)

    def scores(self, number: int) -> dict[str, float]:
        """The score of each phrase in one of the trainings."""
        before, after = map(self.material.model, self.names(number))
        return scores_of(before, after, self.canaries)


def trial_plan(
    trials: Iterable[Trial],
    directory: Path,
    data: Path | None,
    *,
    paper: Mapping[tuple[str, str, str, int], float],
) -> Plan:
    """Table 1: a row for each canary, with its ranks in the first training.

    The model before has seed 0, that of k copies 100 + k, a later training 1,000 more each.

    Args:
        trials: the datasets.
        directory: where each keeps its snapshots.
        data: the folder of corpora.
        paper: its score of (dataset, model, pattern, copies).
    """
    trainings: list[Training] = []
    updates: list[_Planted] = []
    for trial in trials:
        material = prepare(trial.setting, directory, data)
        numbers = range(trial.trainings)
        trainings += (_training(material, 0, number, material.original) for number in numbers)
        for copies in trial.copies:
            made = chosen_canaries(material, trial.phrases, trial.controls, copies=copies)
            for number in numbers:
                seed = copies + _APART * number
                text, canaries = material.planted(material.original, made, seed=seed)
                trainings.append(_training(material, copies, number, text))
            updates.append(_Planted(material, copies, canaries, trial.budget, trial.trainings))

    def rows() -> Iterator[Row]:
        for update in updates:
            before, after = map(update.material.model, update.names())
            learnt = update.material.learnt(*update.names())
            later = [update.scores(number) for number in range(1, update.trainings)]
            for row in exposures(before, after, update.canaries, budget=update.budget):
                key = (learnt["dataset"], learnt["model"], row["pattern"], row["copies"])
                ranks = {"rank": _span(row, "rank"), "prefix_rank": _span(row, "prefix_rank")}
                over = _over_trainings([row["score"], *(s[row["phrase"]] for s in later)])
                yield {**learnt, **row, **ranks, **over, "paper_score": paper.get(key)}

    return Plan(trainings=tuple(trainings), rows=rows)


def _training(material: Material, copies: int, number: int, text: Corpus) -> Training:
    seed = (100 + copies if copies else 0) + _APART * number
    return material.training(_name(copies, number), text, seed=seed)


def _name(copies: int, number: int) -> str:
    return f"copies-{copies}" + (f"-again-{number}" if number else "")


def _over_trainings(scores: list[float]) -> Row:
    """A phrase's scores in several trainings: their mean with Student's interval."""
    ends = mean_interval(scores)
    return {
        "trainings": len(scores),
        "scores": scores,
        "mean_score": fmean(scores),
        "interval": None if ends is None else f"{cell(ends.low)} to {cell(ends.high)}",
    }


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
