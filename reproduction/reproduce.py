"""The verb of the papers' tables."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from annotated_types import Le

from vestige.arguments import Count, PathTo, Watched
from vestige.results import Result
from vestige.session import Session, verb

if TYPE_CHECKING:
    from reproduction.tables import Table


@dataclass(frozen=True, kw_only=True)
class Reproduction(Result):
    """Tables of a paper with our numbers next to its own."""

    def next_step(self, out: object) -> str:
        """A line for the terminal about the folder."""
        page = f"vestige report {out}/results/NAME --out page.html"
        return f"Tables: {out}/tables.md. For a page: {page}"


@verb
def reproduce(
    run: Session,
    experiment: Literal["updates", "regularization", "nlu", "provenance"],
    *,
    out: PathTo,
    scale: Literal["smoke", "small", "full"] = "smoke",
    table: Sequence[str] = (),
    data: PathTo | None = None,
    processes: Annotated[Count, Le(1024)] = 1,
    **common: Unpack[Watched],
) -> Reproduction:
    """Recompute the tables of a paper, with its numbers next to ours.

    `updates` is "Analyzing Information Leakage of Updates to Natural Language Models"
    (Zanella-Béguelin et al., 2020), Tables 1 to 5, Figure 1 and RQ5, and a table of ours on models
    of word pieces. `regularization` is "Privacy Regularization: Joint Privacy-Utility Optimization
    in Language Models" (Mireshghallah et al., 2021), Figures 2 and 3 and Table 1. `nlu` is "Canary
    Extraction in Natural Language Understanding Models" (Parikh et al., 2022), Tables 2 to 5 and
    Figures 2 to 5. `provenance` is "Auditing Data Provenance in Text-Generation Models" (Song and
    Shmatikov, 2019), Tables 1 to 3 and 5 and Figures 2 to 8; its obfuscation needs Debian's
    `apertium-eng-spa` and `wordnet-base` (or WNSEARCHDIR).

    Writes `tables.md`, a run folder for each table under `results`, and the models and
    measurements of each. If it is interrupted, the same command resumes it.

    Examples:
        python -m reproduction updates --out smoke
        python -m reproduction updates --scale small --table table1 --data corpora --out small

    Args:
        experiment: Which paper.
        out: Folder for models and tables. Finished ones in it are reused.
        scale: smoke: seconds, on generated text. small: hours on two cores, an hour or less
            per table. full: the paper's size, for a GPU.
        table: Repeatable; default: all. updates: table1 (Penn Treebank), table1-reddit-rnn,
            table1-reddit-transformer, table1-wikitext, table2, tables3-4, table5, figure1,
            subwords, rq5. regularization: figure2, figure3ab, figure3c, table1. nlu: utility,
            table2, table3, table4, figures3-5, null, apart. provenance: table1, audit, table2,
            table3, table5, figure2, figure3, figure4, figures5-7, figure8, null, private.
        data: Folder with ptb, wikitext2, reddit_college and newsgroups; or snips, atis and
            nlu_eval; or reddit_college, sated, cornell_movie, wikitext2 and ubuntu_irc. Not for
            smoke. Default: the environment variable VESTIGE_DATA.
        processes: Trainings in parallel.

    Raises:
        ValueError: `table` is not one of the paper's.
        DataError: a corpus is missing.
        RunError: `out` holds a table or trial of another configuration, or is in use.
    """
    from reproduction import papers
    from vestige.data.writing import lock_output
    from vestige.parallel import map_processes

    folder, corpora = Path(out), data or os.environ.get("VESTIGE_DATA")
    with lock_output(folder, keep_if=_has_finished_parts):
        try:
            tables = papers.compute_tables(
                experiment,
                scale,
                folder,
                data=None if corpora is None else Path(corpora),
                tables=table,
                record=run.record(),
                map_fn=map if processes == 1 else partial(map_processes, processes=processes),
                monitor=run.monitor,
            )
        except (OSError, KeyboardInterrupt) as error:
            if _has_finished_parts(folder):
                error.add_note("The same command resumes: finished parts are kept")
            raise
    return Reproduction(
        kind="Reproduction",
        summary={table.name: table.summary() for table in tables},
        rows=_rows_of(tables),
    )


def _rows_of(tables: "Sequence[Table]") -> tuple[dict[str, Any], ...]:
    """The rows of all tables; a column with text in one table has text in all."""
    rows = [{"table": table.name, **row} for table in tables for row in table.rows()]
    texts = {name for row in rows for name, value in row.items() if isinstance(value, str)}
    return tuple(
        {n: str(v) if n in texts and v is not None else v for n, v in row.items()} for row in rows
    )


def _has_finished_parts(out: Path) -> bool:
    """Whether a failed call has left results to resume from."""
    names = ("checkpoint.safetensors", "run.json", "stages.sqlite", "shadow.json")
    return any(any(out.rglob(name)) for name in names)
