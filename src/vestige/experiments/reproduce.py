"""The verb that repeats a paper's experiments."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Le

from vestige.monitor import SILENT, Monitor
from vestige.result import Result
from vestige.workflows.arguments import Call
from vestige.workflows.options import Directory, Metavar

if TYPE_CHECKING:
    from vestige.experiments.tables import Table

PAPERS = {
    name: f"vestige.experiments.{name}.paper_tables"
    for name in ("updates", "regularization", "nlu", "provenance")
}
"""The module of each paper's tables, which has SMOKE, SMALL, FULL and `run`."""


@dataclass(frozen=True, kw_only=True)
class Reproduction(Result):
    """Tables of a paper with our numbers beside its own.

    Attributes:
        tables: in the paper's order.
        directory: where they are kept.
    """

    tables: "Sequence[Table]" = ()
    directory: Path = field(default=Path(), compare=False)

    def summary(self) -> dict[str, object]:
        """What each table is, by name."""
        return {table.name: table.summary() for table in self.tables}

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """The rows of all tables, each with the name of its table."""
        for table in self.tables:
            for row in table.rows():
                yield {"table": table.name, **row}


def reproduce(
    experiment: Annotated[
        Literal["updates", "regularization", "nlu", "provenance"], Metavar("EXPERIMENT")
    ],
    *,
    out: Directory,
    scale: Literal["smoke", "small", "full"] = "smoke",
    table: Sequence[str] = (),
    data: Directory | None = None,
    processes: Annotated[int, Ge(1), Le(1024)] = 1,
    monitor: Monitor = SILENT,
) -> Reproduction:
    """Repeat a paper's experiments and print its numbers beside ours.

    `updates` is "Analyzing Information Leakage of Updates to Natural Language Models"
    (Zanella-Béguelin et al., 2020), Tables 1 to 5, Figure 1 and RQ5, and a table of ours on models
    of word pieces. `regularization` is "Privacy Regularization: Joint Privacy-Utility Optimization
    in Language Models" (Mireshghallah et al., 2021), Figures 2 and 3 and Table 1. `nlu` is "Canary
    Extraction in Natural Language Understanding Models" (Parikh et al., 2022), Tables 2 to 5 and
    Figures 2 to 5. `provenance` is "Auditing Data Provenance in Text-Generation Models" (Song and
    Shmatikov, 2019), Tables 1 to 3 and 5 and Figures 2 to 8; its obfuscation takes Debian's
    `apertium-eng-spa` and `wordnet-base` (or WNSEARCHDIR).

    The directory then holds `tables.md`, a run directory for each table under `results`, and the
    models and measurements behind them. Stopped at any moment, the same command goes on from there.

    Args:
        experiment: Which paper: `updates`, `regularization`, `nlu` or `provenance`.
        out: A directory for trials and tables. What is there already is found again.
        scale: `smoke`: seconds, on text made for it. `small`: hours on two cores, an hour or
            less a table. `full`: the paper's size, for a GPU.
        table: Of `updates`: `table1` (Penn Treebank), `table1-reddit-rnn`,
            `table1-reddit-transformer`, `table1-wikitext`, `table2`, `tables3-4`, `table5`,
            `figure1`, `subwords`, `rq5`. Of `regularization`: `figure2`, `figure3ab`,
            `figure3c`, `table1`. Of `nlu`: `utility`, `table2`, `table3`, `table4`,
            `figures3-5`, `null`, `apart`. Of `provenance`: `table1`, `audit`, `table2`,
            `table3`, `table5`, `figure2`, `figure3`, `figure4`, `figures5-7`, `figure8`,
            `null`, `private`. Give it again for another. Without it: all.
        data: The folder with `ptb`, `wikitext2`, `reddit_college` and `newsgroups`, or with
            `snips`, `atis` and `nlu_eval`, or with `reddit_college`, `sated`, `cornell_movie`,
            `wikitext2` and `ubuntu_irc`; `smoke` needs none. By default that of the environment
            variable VESTIGE_DATA.
        processes: Trainings side by side.

    Raises:
        ValueError: `table` is none of the paper's.
        DataError: a corpus is missing.
        RunError: `out` holds a table or trial of another configuration, or is being written.

    Examples:
        vestige reproduce updates --out smoke

        vestige reproduce updates --scale small --table table1 --data corpora --out small
    """
    from vestige.data.file_lock import claimed
    from vestige.parallel import map_processes

    call = Call.of(reproduce, locals())
    out, given = Path(out), data or os.environ.get("VESTIGE_DATA")
    paper = import_module(PAPERS[experiment])
    asked = call.record(Reproduction(directory=out), configuration={"scale": scale})
    with claimed(out, worth=_worth_keeping):
        try:
            tables = paper.run(
                getattr(paper, scale.upper()),
                out,
                data=None if given is None else Path(given),
                tables=table,
                record=asked.record,
                map_fn=map if processes == 1 else partial(map_processes, processes=processes),
                monitor=monitor,
            )
        except (OSError, KeyboardInterrupt) as error:
            if _worth_keeping(out):
                error.add_note("The same command goes on: what is finished is found again")
            raise
    return Reproduction(tables=tuple(tables), directory=out, record=asked.record)


def _worth_keeping(out: Path) -> bool:
    """Whether a failed call has left something to go on from."""
    kept: Iterable[str] = ("checkpoint.safetensors", "run.json", "trial.json", "shadow.json")
    return any(any(out.rglob(name)) for name in kept)
