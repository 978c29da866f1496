"""Tables of canaries: planted in one dataset after another, and in updates of several kinds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

import altair as alt
import vl_convert

from reproduction.papers import Plan, Row, Rows, paper_numbers, table
from reproduction.tables import cell
from reproduction.updates.exposures import exposures, scores_of, token_profile
from reproduction.updates.settings import Material, Setting, Snapshot, extended, prepare
from vestige.data.canaries.phrases import frequency_canaries
from vestige.data.canaries.texts import Canary
from vestige.data.corpus import Corpus
from vestige.metrics.estimates import mean
from vestige.models.protocols import LanguageModel

DRAWN = ("all-low", "high-to-low")
"""Patterns of Figure 1."""

_APART = 1_000  # between the seeds of two trainings
FREQUENCIES = ("1:1M", "1:100K")
"""How often a canary's tokens stand in the paper's updates of Table 2, rarer first."""


@dataclass(frozen=True, kw_only=True)
class CanaryCopies:
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
class _Update:
    """The models before and after an update, once for each training, and its canaries."""

    pairs: Sequence[tuple[Snapshot, Snapshot]]
    canaries: tuple[Canary, ...]

    @property
    def snapshots(self) -> list[Snapshot]:
        return [snapshot for pair in self.pairs for snapshot in pair]

    def models(self, number: int = 0) -> tuple[LanguageModel, LanguageModel]:
        """The two models of one training."""
        before, after = self.pairs[number]
        return before.model(), after.model()


@table("updates", "table1", "table1-reddit-rnn", "table1-reddit-transformer", "table1-wikitext")
def copies_plan(of: CanaryCopies, directory: Path, data: Path | None) -> Plan:
    """Table 1: a row for each canary, with its ranks in the first training.

    The model before has seed 0, that of k copies 100 + k, a later training 1,000 more each. The
    paper's WikiText-103 is under the name of our text, WikiText-2.
    """
    paper = paper_numbers("updates", "table1", key=4)
    material = prepare(of.setting, directory, data)
    updates = [_planted(of, material, copies) for copies in of.copies]

    def rows() -> Iterator[Row]:
        for update in updates:
            learnt = material.learnt(*update.pairs[0])
            trainings = range(1, len(update.pairs))
            later = [scores_of(*update.models(n), update.canaries) for n in trainings]
            for row in exposures(*update.models(), update.canaries, budget=of.budget):
                key = (learnt["dataset"], learnt["model"], row["pattern"], row["copies"])
                ranks = {"rank": _span(row, "rank"), "prefix_rank": _span(row, "prefix_rank")}
                over = _over_trainings([row["score"], *(s[row["phrase"]] for s in later)])
                known = paper.get(key, {}).get("score")
                yield {**learnt, **row, **ranks, **over, "paper_score": known}

    words = of.setting.words
    values = {
        "name": of.setting.name,
        "trainings": of.trainings,
        "amount": "the whole text" if words is None else f"{words:,} words of the text",
        "vocabulary": of.setting.vocabulary_size,
    }
    trials = [one for update in updates for one in update.snapshots]
    return Plan(trials=trials, rows=rows, values=values)


@table("updates", "figure1", folder="table1")
def profile_plan(of: CanaryCopies, directory: Path, data: Path | None) -> Plan:
    """Figure 1: a row for each token of canaries of some patterns, from Table 1's snapshots."""
    material = prepare(of.setting, directory, data)
    updates = [_planted(replace(of, trainings=1), material, copies) for copies in of.copies]

    def rows() -> Iterator[Row]:
        for update in updates:
            pair = update.models()
            for canary in update.canaries:
                if canary.planted and canary.pattern in DRAWN:
                    for row in token_profile(*pair, canary):
                        yield {"dataset": of.setting.dataset, **row}

    trials = [one for update in updates for one in update.snapshots]
    return Plan(trials=trials, rows=rows, chart=profile_chart)


def profile_chart(rows: Rows) -> str:
    """Figure 1 as SVG: gain by position, a line for each canary and number of copies.

    Args:
        rows: with pattern, copies, position (from 1) and gain. All-low canaries are dashed, as in
            the paper.
    """
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


@table("updates", "table2")
def extension_plan(extension: Extension, directory: Path, data: Path | None) -> Plan:
    """Table 2: a row for each update and number of copies."""
    paper = paper_numbers("updates", "table2", key=3)
    percents = (*extension.retrained, *extension.continued)
    material = extended(extension.setting, directory, data, percents)
    original = material.snapshot("original", material.original, seed=0)
    updates = _updates_of(extension, material, original)

    def rows() -> Iterator[Row]:
        for (update, percent), (after, canaries) in updates.items():
            found = list(exposures(original.model(), after.model(), canaries, budget=None))
            for copies, frequency in zip(extension.copies, FREQUENCIES, strict=True):
                known = paper.get((update, percent, frequency), {})
                yield {
                    "update": update,
                    "extra_percent": percent,
                    "copies": copies,
                    **_over_phrases([row for row in found if row["copies"] == copies]),
                    "paper_score": known.get("score"),
                    **material.learnt(original, after),
                }

    trials = [original, *(after for after, _ in updates.values())]
    return Plan(trials=trials, rows=rows, values={"words": extension.setting.words})


def planted_text(
    of: CanaryCopies, material: Material, copies: int, *, seed: int
) -> tuple[Corpus, tuple[Canary, ...]]:
    """The text before the update with so many copies of each canary, and all canaries."""
    made = material.canaries(of.phrases, of.controls, copies=copies)
    return material.planted(material.original, made, seed=seed)


def _planted(of: CanaryCopies, material: Material, copies: int) -> _Update:
    """The update with so many copies: the text without canaries, and with them."""
    pairs = []
    for number in range(of.trainings):
        text, canaries = planted_text(of, material, copies, seed=copies + _APART * number)
        again = f"-again-{number}" if number else ""
        before = material.snapshot(f"copies-0{again}", material.original, seed=_APART * number)
        seed = 100 + copies + _APART * number
        pairs.append((before, material.snapshot(f"copies-{copies}{again}", text, seed=seed)))
    return _Update(pairs, canaries)


def _updates_of(
    extension: Extension, material: Material, original: Snapshot
) -> dict[tuple[str, int], tuple[Snapshot, tuple[Canary, ...]]]:
    """The snapshot after each kind of update, by kind and extra percent, with its canaries."""
    made = _mixed(material, extension)
    updates = {}
    for percent in extension.retrained:
        whole = Corpus.concatenate([material.original, *material.extra(percent)])
        text, canaries = material.planted(whole, made, seed=percent)
        updates["re-training", percent] = material.retrained(percent, text), canaries
    for percent in extension.continued:
        part = Corpus.concatenate(material.extra(percent))
        text, canaries = material.planted(part, made, seed=percent)
        updates["continued", percent] = material.continued(percent, text, original), canaries
    if (stage := extension.two_stage) is not None:
        first, canaries = updates["continued", stage]
        name, last = f"two-stage-{stage}", material.extras[-1]
        after = material.snapshot(name, last, seed=500 + stage, start=first)
        updates["two-stage", stage] = after, canaries
    return updates


def _mixed(material: Material, extension: Extension) -> tuple[Canary, ...]:
    number = extension.phrases * len(extension.copies)
    made = frequency_canaries(
        material.original, material.vocabulary, patterns=["mixed"] * number, copies=1, seed=0
    )
    copies = [k for k in extension.copies for _ in range(extension.phrases)]
    planted = [replace(c, copies=k) for c, k in zip(made[:number], copies, strict=True)]
    return (*planted, *made[number:])


def _over_trainings(scores: list[float]) -> Row:
    """A phrase's scores in several trainings: their mean with Student's interval."""
    found = mean(scores)
    assert found is not None
    return {
        "trainings": len(scores),
        "scores": scores,
        "mean_score": found.value,
        "interval": None if found.low is None else f"{cell(found.low)} to {cell(found.high)}",
    }


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
