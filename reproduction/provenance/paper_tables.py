"""Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513: Tables 1 to 3 and 5, Figures 2 to 8, its numbers beside ours.

Differs from the paper: corpora are what can be had (Reddit's college comments, SATED's development
and test parts, the first films of Cornell's), users fewer, and all have as many texts; our audit
stands beside the paper's, intervals beside both, and the ratio of perplexities out over in beside
every AUC, since a target that overfits more is easier. Figure 7 keeps the target's dropout.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from reproduction.provenance import paper_numbers as paper
from reproduction.provenance.audit_plans import (
    PrecisionName,
    ProvenanceScale,
    crowd,
    named,
    other_shapes_of,
    private_training,
)
from reproduction.provenance.audit_tables import Rows, TableRunner
from reproduction.provenance.audited_texts import AuditedText
from reproduction.provenance.null_audits import NullAudits
from reproduction.reproduction import Part, Plan, choose, reproduce
from reproduction.tables import Table
from vestige.monitor import SILENT, Monitor


def _texts(*, wide: bool) -> tuple[AuditedText, AuditedText, AuditedText]:
    """Reddit's, SATED's and Cornell's users.

    Numbers of compared users are such that p-values of 0.05 and of 0.01 can be had exactly.
    """
    reference, talking, filmed = (200, 300, 80) if wide else (80, 120, 60)
    reddit = AuditedText(
        dataset="reddit", members=100, others=100, reference=reference, compared=99, each=50
    )
    sated = AuditedText(
        dataset="sated", members=talking, others=talking, reference=600 if wide else 80,
        compared=199 if wide else 99, each=4, shortest=1, longest=200,
    )  # fmt: skip
    cornell = AuditedText(
        dataset="cornell", members=filmed, others=filmed, reference=filmed, compared=99,
        each=15 if wide else 10, shortest=1,
    )  # fmt: skip
    return reddit, sated, cornell


def _nulls(*, wide: bool) -> tuple[NullAudits, ...]:
    return tuple(
        NullAudits(
            dataset=dataset, members=60, audited=120, known=known, fewest=fewest, most=most,
            shadows=learning, repetitions=40 if wide else 8 if learning else 16,
        )
        for known, learning in ((198, 4), (398, 0))
        for dataset, fewest, most in (("reddit", 3, 12), ("sated", 4, 4), ("cornell", 4, 12))
    )  # fmt: skip


def _config(*, wide: bool) -> ProvenanceScale:
    """Small, or wide: as many reference users and shadows as the corpora allow.

    The small scale asks for bfloat16, which halves its time on a processor that has it.
    """
    number: PrecisionName = "auto" if wide else "bfloat16"
    shadows = 10 if wide else 4
    reddit, sated, cornell = _texts(wide=wide)
    long, longer = (30, 30) if wide else (10, 20)
    setting = partial(named, shadows=shadows, precision=number)
    gathered = partial(
        crowd,
        others=300 if wide else 200,
        reference=400 if wide else 80,
        compared=199,
        epochs=30 if wide else 6,
        shadows=10 if wide else 2,
        precision=number,
    )
    late = setting("reddit", reddit, long)
    talks, films = setting("sated", sated, longer), setting("cornell", cornell, longer)
    return ProvenanceScale(
        targets=(late, setting("reddit, early", reddit, 4), talks, films),
        crossed=(
            setting("reddit", reddit, long, domain="wikitext2"),
            setting("cornell", cornell, longer, domain="ubuntu-irc"),
        ),
        others=tuple(
            other_shapes_of(each, shadows=shadows, epochs=50 if wide else epochs, rate=0.1)
            for each, epochs in ((late, long), (talks, longer), (films, longer // 2))
        ),
        crowds=tuple(map(gathered, (100, 200, 300, 500, *((1000, 1500) if wide else ())))),
        shown=(1, 5, 10, 50, 100, 500, 1000),
        queries=(1, 2, 4, 8, 16, 32),
        calls=(8, 32, 128, 512),
        noise=(0.1, 0.2, 0.3, 0.4, 0.5),
        obfuscations=("none", "apertium", "synonyms"),
        null=_nulls(wide=wide),
        private=private_training(1.0, 0.3, users=1500 if wide else 500, rounds=300),
        ablated=20 if wide else 5,
    )


SMALL = _config(wide=False)
FULL = _config(wide=True)
_MADE = AuditedText(
    dataset="grammar", members=8, others=8, reference=24, compared=14, each=12, vocabulary_size=120
)
_PAIRS = replace(_MADE, dataset="grammar-pairs")
_SMOKE = replace(named("grammar", _MADE, 2, shadows=2))
SMOKE = ProvenanceScale(
    targets=(_SMOKE, named("grammar pairs", _PAIRS, 1, shadows=2)),
    crossed=(),
    others=(other_shapes_of(_SMOKE, shadows=2, epochs=1, rate=0.1),),
    crowds=(_SMOKE,),
    shown=(1, 20),
    queries=(6,),
    calls=(30,),
    noise=(0.25,),
    obfuscations=("none", "reversed"),
    null=(
        NullAudits(
            dataset="grammar", members=8, audited=8, known=40, fewest=6, most=12, repetitions=2
        ),
    ),
    private=private_training(1.0, 0.3, users=8, rounds=25),
    ablated=1,
)


def parts_of(scale: ProvenanceScale, runner: TableRunner) -> dict[str, Part]:
    """The tables and figures at one scale, by name."""

    def part(text: paper.TableText, fill: Callable[[], Rows]) -> Part:
        return Part(
            title=text.title,
            note=text.note,
            folder="trials",
            settings=scale,
            plan=lambda directory, data: Plan(rows=fill),
            columns=(*text.columns, *paper.SHOWN) if text.columns else (),
        )

    fills: dict[str, Callable[[], Rows]] = {
        "table1": runner.table1,
        "audit": runner.whole,
        "table2": runner.table2,
        "table3": runner.table3,
        "figure2": runner.figure2,
        "figure3": runner.figure3,
        "figure4": runner.figure4,
        "table5": runner.table5,
        "null": runner.null,
        "private": runner.private,
        "figure8": runner.figure8,
        "figures5-7": runner.memory,
    }
    return {name: part(text, fills[name]) for name, text in paper.TABLES.items()}


def run(
    config: ProvenanceScale,
    directory: Path,
    *,
    data: Path | None = None,
    tables: Sequence[str] = (),
    record: Mapping[str, object] | None = None,
    map_fn: Callable[..., Iterable[Any]] = map,
    monitor: Monitor = SILENT,
) -> list[Table]:
    """Compute tables and figures of the paper; what is there already is found again.

    Args:
        config: SMOKE, SMALL or FULL.
        directory: where models, ranks, run folders and `tables.md` are kept.
        data: the folder of corpora; SMOKE needs none.
        tables: some of the names of `parts_of`; none: all.
        record: what the run folders say besides the configuration, such as the command.
        map_fn: `map`, or one over processes.
        monitor: told what is being done.
    """
    runner = TableRunner(config, directory / "trials", data, map_fn, monitor)
    parts = choose(parts_of(config, runner), tables)
    return reproduce(parts, directory, data=data, run=record or {}, map_fn=map_fn, monitor=monitor)
