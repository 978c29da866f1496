"""Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
Language Models", arXiv:2103.07567: Figures 2 to 4 and Table 1, its numbers beside ours.

Differs from the paper: Reddit's college comments stand in for its Reddit and for Avocado, which is
licensed; every method has an undefended control in the same kind of batches and a dropout control,
every canary its words in another order, every number five seeds; exposure is read where the test
perplexities are equal, not near each other; the goldfish loss stands beside the paper's defences.
"""

from functools import partial
from pathlib import Path

from reproduction.papers import Plan, paper_numbers, table
from reproduction.regularization.equal_utility import (
    Scale,
    completion_rows,
    exposure_chart,
    exposure_rows,
    plan_of,
    subgroup_rows,
    training_rows,
)


@table("regularization", "figure2", section="", folder="trainings")
def figure2(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """Exposure at equal perplexity."""
    return plan_of(scale, directory, data, exposure_rows, exposure_chart)


@table("regularization", "figure3ab", section="", folder="trainings")
def figure3ab(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """The tab attack."""
    return plan_of(scale, directory, data, completion_rows)


@table("regularization", "figure3c", section="", folder="trainings")
def figure3c(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """What a defence costs users who wrote much and users who wrote little."""
    paper = paper_numbers("regularization", "figure3c", key=1)
    return plan_of(scale, directory, data, partial(subgroup_rows, paper=paper))


@table("regularization", "table1", section="", folder="trainings")
def table1(scale: Scale, directory: Path, data: Path | None) -> Plan:
    """Perplexities, steps and time."""
    paper = paper_numbers("regularization", "table1", key=3)
    return plan_of(scale, directory, data, partial(training_rows, paper=paper))
