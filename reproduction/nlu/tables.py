"""Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
ACL 2022 (short papers): Tables 2 to 5 and Figures 2 to 5, its numbers beside ours.

Differs from the paper: GloVe stands in for fastText vectors; part of each corpus is learnt, so that
ten models a cell are trained on two cores; the three canaries are planted in one model, which a
table of its own is about; the paper's attack starts from zero, its strongest reading; early
stopping is the best epoch of the same training; our attack, the trivial one, the rank of the truth
and models that never saw a secret stand beside.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from reproduction.nlu.table_rows import Line, Lines, Scale, utility_rows
from reproduction.papers import Plan, paper_numbers, table


def lines_plan(lines: Lines, of: Callable[[Lines], Iterator[Line]]) -> Plan:
    """The models and attacks of one table."""
    made = list(of(lines))
    return Plan(
        trials=[line.extraction for line in made],
        rows=lambda: (line.row() for line in made),
        values=values_of(lines.scale),
    )


def values_of(scale: Scale) -> dict[str, object]:
    """What the captions say of a scale."""
    return {"dataset": scale.text.dataset, "utterances": scale.text.training or "all"}


@table("nlu", "utility", section="", folder=".")
def utility(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """What models of whole corpora reach, beside what others reach without secrets."""
    models = Lines(scale, directory, data).complete()
    known = paper_numbers("nlu", "utility", key=1)
    return Plan(trials=models, rows=lambda: utility_rows(models, known), values=values_of(scale))


@table("nlu", "table2", section="", folder=".")
def table2(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """Tables 2 and 5 and Figure 2: unknown words and copies."""
    paper = paper_numbers("nlu", "table2", key=3)
    return lines_plan(Lines(scale, directory, data), lambda lines: lines.by_copies(paper))


@table("nlu", "table3", section="", folder=".")
def table3(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """Defences."""
    paper = paper_numbers("nlu", "table3", key=3)
    return lines_plan(Lines(scale, directory, data), lambda lines: lines.defended(paper))


@table("nlu", "table4", section="", folder=".")
def table4(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """Secrets that are said once."""
    paper = paper_numbers("nlu", "table4", key=3)
    return lines_plan(Lines(scale, directory, data), lambda lines: lines.once(paper))


@table("nlu", "figures3-5", section="", folder=".")
def figures3to5(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """Other corpora."""
    return lines_plan(Lines(scale, directory, data), Lines.elsewhere)


@table("nlu", "null", section="", folder=".")
def null(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """Models that never saw a secret."""
    return lines_plan(Lines(scale, directory, data), Lines.null)


@table("nlu", "apart", section="", folder=".")
def apart(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """A canary alone, and with two others."""
    return lines_plan(Lines(scale, directory, data), Lines.apart)
