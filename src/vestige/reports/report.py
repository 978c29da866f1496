"""A result as facts for readers, redacted before any markup: page, notebook, card and terminal.

`KINDS` names the function that makes the report of each kind of result. Only the one that is
needed is imported.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module

from vestige.errors import RunError
from vestige.reports.blocks import FileNote, Findings, Listing, Prose
from vestige.reports.charts import Figure
from vestige.reports.disclosure import printable
from vestige.reports.provenance import command_of, settings_of
from vestige.reports.tables import Table
from vestige.reports.verdicts import NOT_CHECKED, NOTHING_MEASURED, Verdict, verdict_of_run
from vestige.reports.words import Facts, pairs
from vestige.results import Run

Block = Table | Figure | Findings | Prose | Listing | FileNote

KINDS: dict[str, str] = {
    "Anatomy": "vestige.audits.anatomy.report:anatomy_report",
    "CanaryExposure": "vestige.audits.exposure.report:canary_report",
    "Completion": "vestige.audits.extraction.completion:canary_report",
    "DefenceComparison": "vestige.audits.comparison.report:comparison_report",
    "DefendedTraining": "vestige.preparation.report:training_report",
    "Demo": "vestige.demo:demo_report",
    "Deletion": "vestige.audits.unlearning.report:unlearning_report",
    "DifferentialRank": "vestige.audits.update.report:rank_report",
    "Extraction": "vestige.audits.extraction.utterances_report:utterance_report",
    "IntentSlotTraining": "vestige.preparation.report:learning_report",
    "PairTraining": "vestige.preparation.report:learning_report",
    "Planting": "vestige.preparation.report:planting_report",
    "Release": "vestige.audits.release.report:release_report",
    "RepeatedTraining": "vestige.preparation.report:repeated_report",
    "Reproduction": "vestige.experiments.reproduce:reproduction_report",
    "SecretAudit": "vestige.audits.extraction.utterances_report:planted_report",
    "SecretCompletion": "vestige.audits.extraction.completion:secrets_report",
    "SecretExposure": "vestige.audits.exposure.report:secrets_report",
    "SecretRank": "vestige.audits.exposure.report:update_report",
    "Table": "vestige.reports.plain:paper_report",
    "TextAudit": "vestige.audits.membership.report:texts_report",
    "TextMemorization": "vestige.audits.extraction.passages_report:passages_report",
    "TrainingLeakage": "vestige.integrations.report:training_leakage_report",
    "UpdateDiff": "vestige.audits.update.report:diff_report",
    "UserAudit": "vestige.audits.membership.report:users_report",
}
"""By the name of the result's class: "module:function" of (run, *, show_secrets)."""

OTHER = "vestige.reports.plain:plain_report"
"""For any other kind: its rows as a table."""

REDACTION = "Run directories contain the texts unredacted; redaction concerns this report only."
"""A limit of every result."""

MOST_EVIDENCE = 3


@dataclass(frozen=True, kw_only=True)
class Report:
    """One result, ready to be shown. The function of a kind gives the first eight.

    Attributes:
        kind: the article's class in the style sheet.
        title: the question.
        evidence: what was found and what supports it, at most three lines.
        notices: warnings to read before the rest.
        answer: the finding in one sentence. It follows the word of the verdict, and the claim's
            numbers become the first line of the evidence. "": the claim's numbers follow the word.
        blocks: tables, charts, phrases and prose in their order.
        limits: what the numbers do not say.
        facts: the summary in words; the whole summary where a kind gives none.
        verdict: with its test and checks; None for kinds without one.
        settings: models, data and settings of the run.
        command: the command line that repeats it.
    """

    kind: str
    title: str
    evidence: tuple[str, ...]
    answer: str = ""
    notices: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    limits: tuple[str, ...] = ()
    facts: Facts | None = None
    verdict: Verdict | None = None
    settings: tuple[Listing | Table, ...] = ()
    command: str = ""

    def __post_init__(self) -> None:
        if len(self.evidence) > MOST_EVIDENCE:
            raise ValueError(f"evidence must have at most {MOST_EVIDENCE} lines")

    @property
    def tables(self) -> list[Table]:
        """The tables among the blocks."""
        return [block for block in self.blocks if isinstance(block, Table)]

    @property
    def figures(self) -> list[Figure]:
        """The charts among the blocks; the first is the headline."""
        return [block for block in self.blocks if isinstance(block, Figure)]

    @property
    def headline(self) -> tuple[str, ...]:
        """What every form begins with: verdict, evidence, and the checks that failed."""
        if self.verdict is None:
            return self.evidence
        return (self.verdict.line, *self.evidence, *self.verdict.against)


def report_of(run: Run, *, show_secrets: bool) -> Report:
    """The report of a run.

    Args:
        run: a run directory, or a result in memory.
        show_secrets: texts and names unredacted.

    Raises:
        RunError: its rows or summary lack what its kind of result has.
    """
    with guarded(run):
        made = _function(KINDS.get(run.result, OTHER))(run, show_secrets=show_secrets)
        facts = pairs(run.summary, show_secrets=show_secrets) if made.facts is None else made.facts
        verdict, evidence = _answered(verdict_of_run(run) or made.verdict, made)
        return replace(
            made,
            verdict=verdict,
            evidence=evidence,
            facts=facts,
            settings=settings_of(run.run, show_secrets=show_secrets),
            command=command_of(run.run.get("command"), show_secrets=show_secrets),
            limits=(*made.limits, REDACTION),
        )


def _answered(verdict: Verdict | None, made: Report) -> tuple[Verdict | None, tuple[str, ...]]:
    """The verdict with the answer as its sentence, and the evidence with the claim's numbers."""
    if not made.answer:
        return verdict, made.evidence
    if verdict is None or verdict.word == NOT_CHECKED.upper():
        return verdict, (made.answer, *made.evidence)
    measured = (verdict.sentence,) if verdict.sentence != NOTHING_MEASURED else ()
    return replace(verdict, sentence=made.answer), (*measured, *made.evidence)


def lines(*texts: str) -> tuple[str, ...]:
    """The texts that are not empty, as evidence or notices."""
    return tuple(filter(None, texts))


@contextmanager
def guarded(run: Run) -> Iterator[None]:
    """Turn errors about a damaged run into a `RunError` that quotes nothing from it."""
    try:
        yield
    except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"{run.directory} is not a complete {printable(run.result)} run "
            f"({type(error).__name__})",
            remedy="It was changed or is damaged. Repeat the run.",
        ) from error


def _function(name: str) -> Callable[..., Report]:
    module, _, function = name.partition(":")
    found: Callable[..., Report] = getattr(import_module(module), function)
    return found
