"""Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
ACL 2022 (short papers): Tables 2 to 5 and Figures 2 to 5, its numbers beside ours.

Differs from the paper: GloVe stands in for fastText vectors; part of each corpus is learnt, so that
ten models a cell are trained on two cores; the three canaries are planted in one model, which a
table of its own is about; the paper's attack starts from zero, its strongest reading; early
stopping is the best epoch of the same training; our attack, the trivial one, the rank of the truth
and models that never saw a secret stand beside.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from reproduction.nlu.planted_models import Learner
from reproduction.nlu.table_rows import Dataset, Line, Lines, Scale, utility_rows
from reproduction.nlu.utterance_texts import UtteranceText
from reproduction.paper_numbers import Numbers, paper_numbers
from reproduction.reproduction import Part, Plan, caption, run_paper
from vestige.training.config import TrainingConfig

PAPER: dict[str, Numbers] = {
    "table2": paper_numbers("nlu", "table2", key=3),
    "table3": paper_numbers("nlu", "table3", key=3),
    "table4": paper_numbers("nlu", "table4", key=3),
    "utility": paper_numbers("nlu", "utility", key=1),
}
"""The paper's accuracies and Hamming distances per token; what others reach without secrets."""

SHOWN = (
    *("attack", "trials", "accuracy", "accuracy_low", "accuracy_high"),
    *("hamming", "hamming_low", "hamming_high"),
    *("median_rank", "median_rank_known", "exposure", "ranks_bounded"),
    *("paper_accuracy", "paper_hamming"),
)
_LEARNER = Learner(
    vectors="glove-6b-50d",
    hidden_size=64,
    training=TrainingConfig(
        seed=0, epochs=20, batch_size=32, learning_rate=2e-3, precision="float32"
    ),
)
_WHOLE = replace(_LEARNER, hidden_size=128, training=replace(_LEARNER.training, learning_rate=1e-3))
_SNIPS = UtteranceText(dataset="snips", training=2500, validation=300)
_COMPLETE = tuple(UtteranceText(dataset=name) for name in ("snips", "atis", "nlu-evaluation"))
SMALL = Scale(
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
    complete=_COMPLETE,
    complete_learner=_WHOLE,
)
FULL = replace(
    SMALL,
    text=_COMPLETE[0],
    learner=_WHOLE,
    trials=30,
    cells=tuple(
        (length, copies, 30) for length in (4, 6, 8, 10) for copies in (10, 100, 500, 1000, 2000)
    ),
    datasets=(
        Dataset(text=_COMPLETE[1], copies=(10, 100, 200, 500)),
        Dataset(text=_COMPLETE[2], copies=(100, 500, 1000, 5000, 10_000)),
    ),
    references=30,
)
_TINY = replace(_LEARNER, vectors=None, hidden_size=12)
_ORDERS = UtteranceText(dataset="orders", training=120, validation=30)
SMOKE = Scale(
    text=_ORDERS,
    learner=replace(
        _TINY, training=replace(_LEARNER.training, epochs=3, learning_rate=1e-2), patience=2
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
    complete_learner=replace(_TINY, training=replace(_LEARNER.training, epochs=3)),
)


LINES: dict[str, Callable[[Lines], Iterator[Line]]] = {
    "table2": lambda lines: lines.by_copies(PAPER["table2"]),
    "table3": lambda lines: lines.defended(PAPER["table3"]),
    "table4": lambda lines: lines.once(PAPER["table4"]),
    "figures3-5": Lines.elsewhere,
    "null": Lines.null,
    "apart": Lines.apart,
}


def parts_of(scale: Scale) -> dict[str, Part]:
    """The tables of the paper at one scale, by name."""
    values = {"dataset": scale.text.dataset, "utterances": scale.text.training or "all"}
    plans: dict[str, Callable[[Scale, Path, Path | None], Plan]] = {
        "utility": _utility_plan,
        **{name: partial(_plan, of=of) for name, of in LINES.items()},
    }
    parts = {}
    for name, plan in plans.items():
        told = caption("nlu", name, **values)
        told["columns"] += SHOWN if told["columns"] else ()
        parts[name] = Part(**told, folder=".", settings=scale, plan=partial(plan, scale))
    return parts


def _plan(
    scale: Scale, directory: Path, data: Path | None, *, of: Callable[[Lines], Iterator[Line]]
) -> Plan:
    """The models and attacks of one table."""
    lines = list(of(Lines(scale, directory, data)))
    trials = [line.extraction for line in lines]
    return Plan(trials=trials, rows=lambda: (line.row() for line in lines))


def _utility_plan(scale: Scale, directory: Path, data: Path | None) -> Plan:
    models = Lines(scale, directory, data).complete()
    return Plan(trials=models, rows=lambda: utility_rows(models, PAPER["utility"]))


run = partial(run_paper, parts_of)
"""Fill these tables at a scale; see `reproduction.run_paper`."""
