"""Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
ACL 2022 (short papers): Tables 2 to 5 and Figures 2 to 5, its numbers beside ours.

Differs from the paper: GloVe stands in for fastText vectors; part of each corpus is learnt, so that
ten models a cell are trained on two cores; the three canaries are planted in one model, which a
table of its own is about; the paper's attack starts from zero, its strongest reading; early
stopping is the best epoch of the same training; our attack, the trivial one, the rank of the truth
and models that never saw a secret stand beside.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from vestige.experiments.nlu.secret_extractions import extract_all
from vestige.experiments.nlu.table_rows import Line, Lines, utility_rows
from vestige.experiments.nlu.trial_plans import Config, Dataset, Trials
from vestige.experiments.nlu.trials import Learner, train_trials
from vestige.experiments.nlu.utterance_texts import UtteranceText
from vestige.experiments.reproduction import Part, choose, reproduce
from vestige.experiments.settings import Plan
from vestige.experiments.tables import Table
from vestige.training.config import TrainingConfig

PAPER_BEST = {  # (canary, unknown words, copies): accuracy, Hamming distance per token
    ("color", 4, 10): (0.40, 0.30),
    ("color", 6, 100): (0.30, 0.45),
    ("color", 8, 100): (0.10, 0.60),
    ("color", 8, 1000): (0.10, 0.48),
    ("color", 10, 500): (0.00, 0.59),
    ("color", 10, 1000): (0.00, 0.59),
    ("pin", 4, 500): (0.40, 0.27),
    ("pin", 4, 1000): (0.50, 0.18),
    ("pin", 6, 100): (0.10, 0.45),
    ("pin", 6, 1000): (0.10, 0.43),
    ("pin", 8, 100): (0.00, 0.61),
    ("pin", 8, 1000): (0.00, 0.57),
    ("pin", 10, 100): (0.10, 0.43),
    ("call", 4, 10): (0.30, 0.40),
    ("call", 6, 100): (0.20, 0.50),
    ("call", 8, 100): (0.00, 0.60),
    ("call", 8, 1000): (0.00, 0.58),
    ("call", 10, 500): (0.00, 0.59),
    ("call", 10, 2000): (0.00, 0.59),
}
PAPER_ONCE = {  # (canary, unknown words, 1)
    ("color", 4, 1): (0.33, 0.43),
    ("pin", 4, 1): (0.10, 0.60),
    ("call", 4, 1): (0.10, 0.58),
    ("call", 10, 1): (0.00, 0.68),
    ("call", 7, 1): (0.10, 0.70),
}
_PAPER_DEFENCES = {  # (copies, defence): Hamming distance per token of color, pin and call
    (10, "none"): (0.30, 0.33, 0.40),
    (10, "D"): (0.85, 0.80, 0.76),
    (10, "ES"): (0.80, 0.93, 0.95),
    (10, "CE"): (0.65, 0.75, 0.90),
    (10, "D+ES"): (0.98, 0.90, 0.95),
    (10, "ES+CE"): (0.90, 0.83, 0.90),
    (10, "D+ES+CE"): (0.90, 0.90, 0.90),
    (500, "none"): (0.39, 0.27, 0.38),
    (500, "D"): (0.65, 0.54, 0.83),
    (500, "ES"): (0.85, 1.00, 0.75),
    (500, "CE"): (0.58, 0.93, 0.68),
    (500, "D+ES"): (0.85, 0.93, 0.98),
    (500, "ES+CE"): (0.93, 0.98, 0.78),
    (500, "D+ES+CE"): (0.95, 0.88, 1.00),
    (1000, "none"): (0.35, 0.18, 0.48),
    (1000, "D"): (0.35, 0.78, 0.58),
    (1000, "ES"): (0.90, 0.83, 0.85),
    (1000, "CE"): (0.70, 0.68, 0.78),
    (1000, "D+ES"): (0.88, 0.98, 0.90),
    (1000, "ES+CE"): (0.88, 1.00, 0.95),
    (1000, "D+ES+CE"): (0.95, 0.93, 0.95),
}
PAPER_DEFENDED = {
    (copies, defence, canary): (None, hamming)
    for (copies, defence), row in _PAPER_DEFENCES.items()
    for canary, hamming in zip(("color", "pin", "call"), row, strict=True)
}
SHOWN = (
    *("attack", "trials", "accuracy", "accuracy_low", "accuracy_high"),
    *("hamming", "hamming_low", "hamming_high"),
    *("median_rank", "median_rank_known", "exposure", "ranks_bounded"),
    *("paper_accuracy", "paper_hamming"),
)
KNOWN = {  # who, intent accuracy, slot F1
    "snips": ("slot-gated LSTM (Goo et al. 2018)", 0.970, 0.888),
    "atis": ("slot-gated LSTM (Goo et al. 2018)", 0.941, 0.952),
    "nlu-evaluation": ("Rasa (Liu et al. 2019), F1 of both", 0.863, 0.768),
}

_LEARNER = Learner(
    vectors="glove-6b-50d",
    hidden_size=64,
    training=TrainingConfig(
        seed=0, epochs=20, batch_size=32, learning_rate=2e-3, precision="float32"
    ),
)
_WHOLE = replace(_LEARNER, hidden_size=128, training=replace(_LEARNER.training, learning_rate=1e-3))
_SNIPS = UtteranceText(dataset="snips", training=2500, validation=300)
SMALL = Config(
    text=_SNIPS,
    learner=_LEARNER,
    trials=10,
    cells=(
        *((4, 10, 30), (4, 100, 30), (4, 500, 10)),
        *((6, 10, 10), (6, 100, 10), (6, 500, 10)),
        *((8, 100, 10), (10, 100, 10)),
    ),
    once=(4, 10),
    length=4,
    defended=(10, 500, 1000),
    datasets=(
        Dataset(text=replace(_SNIPS, dataset="atis"), copies=(10, 500)),
        Dataset(text=replace(_SNIPS, dataset="nlu-evaluation"), copies=(100, 500)),
    ),
    apart=(
        ("color:4", 10),
        *((f"{name}:4", copies) for name in ("pin", "call") for copies in (10, 100, 500)),
    ),
    references=10,
    complete=tuple(UtteranceText(dataset=name) for name in ("snips", "atis", "nlu-evaluation")),
    complete_learner=_WHOLE,
)
FULL = replace(
    SMALL,
    text=UtteranceText(dataset="snips"),
    learner=_WHOLE,
    trials=30,
    cells=tuple(
        (length, copies, 30) for length in (4, 6, 8, 10) for copies in (10, 100, 500, 1000, 2000)
    ),
    datasets=(
        Dataset(text=UtteranceText(dataset="atis"), copies=(10, 100, 200, 500)),
        Dataset(
            text=UtteranceText(dataset="nlu-evaluation"), copies=(100, 500, 1000, 5000, 10_000)
        ),
    ),
    references=30,
)
_ORDERS = UtteranceText(dataset="orders", training=120, validation=30)
SMOKE = Config(
    text=_ORDERS,
    learner=Learner(
        vectors=None,
        hidden_size=12,
        training=replace(_LEARNER.training, epochs=3, learning_rate=1e-2),
        patience=2,
    ),
    trials=2,
    cells=((2, 20, 2),),
    once=(2,),
    length=2,
    defended=(20,),
    datasets=(Dataset(text=_ORDERS, copies=(20,)),),
    apart=(("pin:2", 20),),
    references=2,
    complete=(_ORDERS,),
    complete_learner=Learner(
        vectors=None, hidden_size=12, training=replace(_LEARNER.training, epochs=3)
    ),
)


@dataclass(frozen=True)
class _Filling:
    """How a table is filled: train what is missing, attack what was not, read the rows."""

    lines: Lines
    map_fn: Callable[..., Iterable[Path]]
    say: Callable[[str], None]

    def plan(self, lines: Iterable[Line], *, utility: bool = False) -> Plan:
        """The plan of a table of such lines."""
        return Plan(trainings=(), rows=partial(self._rows, list(lines), utility))

    def whole(self) -> Plan:
        """The plan of the table of whole corpora."""
        return Plan(trainings=(), rows=self._utility)

    def _rows(self, lines: Sequence[Line], utility: bool) -> Iterator[Mapping[str, Any]]:
        trials = (trial for line in lines for trial in line.cell.trials)
        train_trials(trials, map_fn=self.map_fn, say=self.say)
        extract_all([line.cell for line in lines], map_fn=self.map_fn, say=self.say)
        return (line.row(utility=utility) for line in lines)

    def _utility(self) -> Iterator[Mapping[str, Any]]:
        trials = self.lines.trials.complete()
        train_trials(trials, map_fn=self.map_fn, say=self.say)
        return utility_rows(trials, KNOWN)


def parts_of(config: Config, filling: _Filling) -> dict[str, Part]:
    """The tables of the paper at one scale, by name."""
    lines = filling.lines
    made = (
        f"{config.text.dataset}, {config.text.training or 'all'} utterances; each trial is a "
        "model of its own with all three canaries. `paper` is the paper's attack from zero, "
        "`embedding` its trivial one, `auto` ours (exact search of four words, else coordinate "
        "descent with restarts); intervals are Clopper and Pearson's for accuracies and Student's "
        "t over trials for the rest. Ranks of longer secrets are estimated from random ones "
        "(`sampled`); where none of these loses as little, the rank is at most what stands there "
        "and the exposure at least (`bounded`); "
        "`search failed` counts truths of less loss than the guess."
    )

    def part(title: str, plan: Plan, *names: str, note: str = made) -> Part:
        return Part(
            title=title,
            note=note,
            folder="trials",
            settings=config,
            plan=lambda directory, data: plan,
            columns=(*names, *SHOWN) if names else (),
        )

    said = ("canary", "length", "copies")
    return {
        "utility": part(
            "Utility of the undefended model",
            filling.whole(),
            note="Whole corpora, test parts; `known` is what such models are known to reach.",
        ),
        "table2": part(
            "Tables 2 and 5, Figure 2: accuracy and Hamming distance per token",
            filling.plan(lines.by_copies(PAPER_BEST)),
            *said,
        ),
        "table3": part(
            "Table 3: defences, under the paper's attack and under ours",
            filling.plan(lines.defended(PAPER_DEFENDED), utility=True),
            *("copies", "defence", "canary", "intent_accuracy", "slot_f1"),
        ),
        "table4": part("Table 4: said once", filling.plan(lines.once(PAPER_ONCE)), *said),
        "figures3-5": part(
            "Figures 3 to 5: other corpora", filling.plan(lines.elsewhere({})), "dataset", *said
        ),
        "null": part(
            "The null: models that never saw a secret",
            filling.plan(lines.null()),
            *("canary", "length"),
        ),
        "apart": part(
            "A canary alone in a model, and with two others",
            filling.plan(lines.apart()),
            *("canary", "copies", "planted"),
        ),
    }


def run(
    config: Config,
    directory: Path,
    *,
    data: Path | None = None,
    tables: Sequence[str] = (),
    record: Mapping[str, object] | None = None,
    map_fn: Callable[..., Iterable[Path]] = map,
    say: Callable[[str], None] = lambda line: None,
) -> list[Table]:
    """Compute tables and figures of the paper; what is there already is found again.

    Args:
        config: SMOKE, SMALL or FULL.
        directory: where trials, extractions, run directories and `tables.md` are kept.
        data: the folder of corpora; SMOKE needs none.
        tables: some of "utility", "table2", "table3", "table4", "figures3-5", "null", "apart";
            none: all.
        record: what the run directories say besides the configuration, such as the command.
        map_fn: `map`, or one over processes.
        say: told in a line what is being done.
    """
    trials = Trials(config, directory / "trials", data)
    filling = _Filling(Lines(trials, directory / "extractions"), map_fn, say)
    parts = choose(parts_of(config, filling), tables)
    return reproduce(parts, directory, data=data, run=record or {}, map_fn=map_fn, say=say)
