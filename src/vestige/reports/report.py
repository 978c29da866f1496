"""Reports of results, redacted before any markup, for pages, notebooks, cards and terminals.

`KINDS` names the function that makes the report of each kind of result. Only the needed function is
imported.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from vestige.claims import UNDECIDED
from vestige.errors import RunError
from vestige.reports.blocks import Findings, Listing, Prose, Table
from vestige.reports.charts import Figure
from vestige.reports.disclosure import SECRET_OPTIONS, printable
from vestige.reports.verdicts import NOT_CHECKED, NOTHING_MEASURED, Verdict, verdict_of_run
from vestige.reports.words import Facts, Row, label_of, pairs, value_text
from vestige.results import Run

Block = Table | Figure | Findings | Prose | Listing

KINDS: dict[str, str] = {
    "Anatomy": "vestige.audits.anatomy.report:anatomy_report",
    "CanaryExposure": "vestige.audits.exposure.report:canary_report",
    "Completion": "vestige.audits.extraction.completion_report:canary_report",
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
    "ReleaseCheck": "vestige.audits.check.report:check_report",
    "RepeatedTraining": "vestige.preparation.report:repeated_report",
    "Reproduction": "vestige.reports.report:reproduction_report",
    "SecretAudit": "vestige.audits.extraction.utterances_report:planted_report",
    "SecretCompletion": "vestige.audits.extraction.completion_report:secrets_report",
    "SecretExposure": "vestige.audits.exposure.report:secrets_report",
    "SecretRank": "vestige.audits.exposure.report:secrets_report",
    "Table": "vestige.reports.report:paper_report",
    "TextAudit": "vestige.audits.membership.report:texts_report",
    "TextMemorization": "vestige.audits.extraction.passages_report:passages_report",
    "TrainingLeakage": "vestige.integrations.leakage:training_leakage_report",
    "UpdateDiff": "vestige.audits.update.report:diff_report",
    "UserAudit": "vestige.audits.membership.report:users_report",
}
"""By kind of result: "module:function", called with (run, *, show_secrets)."""

PLAIN = "vestige.reports.report:plain_report"
"""The report of other kinds: their rows as a table."""

REDACTION = "Run folders contain the texts unredacted; redaction concerns this report only."
"""A limit of all results."""

MOST_EVIDENCE = 3

SIGNS: Mapping[str, str] = {"✗": "leak", "✓": "clear", "?": UNDECIDED, "–": "not run"}
"""Signs of evidence and their words."""

TABLE_FROM = 3
"""Smallest number of models or data sets that are shown in one table."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The finding of one of several tests.

    Attributes:
        sign: a key of `SIGNS`.
        title: name of the test.
        text: the finding.
        note: small print below the finding.
        block: details that unfold below it on a page.
    """

    sign: str
    title: str
    text: str
    note: str = ""
    block: Block | None = None

    def __str__(self) -> str:
        return f"{self.sign} {self.title}: {self.text}"

    @property
    def word(self) -> str:
        """Meaning of the sign."""
        return SIGNS[self.sign]

    def as_lines(self, width: int) -> tuple[str, ...]:
        """Lines of text, with the title in a column of `width` and the note below."""
        note = f"{'':{width + 4}}{self.note}" if self.note else ""
        return lines(f"{self.sign} {self.title:<{width}}  {self.text}", note)


@dataclass(frozen=True, kw_only=True)
class Report:
    """One result, ready to be shown. The function of a kind sets the attributes up to `facts`.

    Attributes:
        title: the question.
        evidence: the findings and their support, at most three lines.
        answer: the finding in one sentence, shown after the verdict's word. The numbers of the
            claim then become the first line of evidence, if there is room. Without an answer, the
            numbers follow the word.
        stated: names of checks that the evidence states; they are not listed again.
        below: prose after the evidence, such as untested questions; never folded.
        notices: warnings to read first.
        blocks: tables, charts, phrases and prose in order.
        limits: conclusions that the numbers do not support.
        facts: the summary in words; None for the complete summary.
        verdict: the verdict with its test and checks; None for kinds without one.
        settings: models, data and settings of the run.
        command: the command line that repeats it.
    """

    title: str
    evidence: tuple[str | Evidence, ...]
    answer: str = ""
    stated: frozenset[str] = frozenset()
    below: tuple[Prose, ...] = ()
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
        """The first lines in all formats: verdict, evidence, failed and passed checks."""
        width = max(
            (len(line.title) for line in self.evidence if isinstance(line, Evidence)), default=0
        )
        evidence = [
            line
            for line in self.evidence
            for line in (line.as_lines(width) if isinstance(line, Evidence) else (line,))
        ]
        if self.verdict is None:
            return tuple(evidence)
        checks = filter(None, (*self.verdict.against, self.verdict.all_passed))
        return (self.verdict.line, *evidence, *checks)

    @property
    def unfolded(self) -> tuple[Block, ...]:
        """The detail blocks of the evidence."""
        blocks = (line.block for line in self.evidence if isinstance(line, Evidence))
        return tuple(block for block in blocks if block is not None)


def report_of(run: Run, *, show_secrets: bool) -> Report:
    """The report of a run.

    Raises:
        RunError: its rows or summary lack what its kind of result has.
    """
    with guarded(run):
        module, _, function = KINDS.get(run.result, PLAIN).partition(":")
        report: Report = getattr(import_module(module), function)(run, show_secrets=show_secrets)
        facts = (
            pairs(run.summary, show_secrets=show_secrets) if report.facts is None else report.facts
        )
        saved_verdict = verdict_of_run(run, without=report.stated)
        verdict, evidence = _with_answer(saved_verdict or report.verdict, report)
        return replace(
            report,
            verdict=verdict,
            evidence=evidence,
            facts=facts,
            settings=_settings(run.run, show_secrets=show_secrets),
            command=command_line(run.run.get("command"), show_secrets=show_secrets),
            limits=(*report.limits, REDACTION),
        )


def _with_answer(
    verdict: Verdict | None, report: Report
) -> tuple[Verdict | None, tuple[str | Evidence, ...]]:
    """The verdict with the answer as its sentence, and the evidence with the claim's numbers."""
    if not report.answer:
        return verdict, report.evidence
    has_room = len(report.evidence) < MOST_EVIDENCE
    if verdict is None or verdict.word == NOT_CHECKED.upper():
        return verdict, (*([report.answer] if has_room else []), *report.evidence)
    claim_numbers = (verdict.sentence,) if has_room and verdict.sentence != NOTHING_MEASURED else ()
    return replace(verdict, sentence=report.answer), (*claim_numbers, *report.evidence)


def _settings(run: Mapping[str, Any], *, show_secrets: bool) -> tuple[Listing | Table, ...]:
    """One list of settings per model and data set, or a table if there are many."""
    lists: list[Listing] = []
    tables: list[Table] = []

    def listing(title: str, facts: Mapping[str, Any]) -> None:
        lists.append(Listing(title=title, facts=pairs(facts, show_secrets=show_secrets)))

    for key, title in (("models", "Model"), ("data", "Data"), ("configuration", "Settings")):
        entries = dict(run.get(key) or {})
        sections = {name: value for name, value in entries.items() if isinstance(value, Mapping)}
        settings = {name: value for name, value in entries.items() if name not in sections}
        if key != "configuration" and len(sections) >= TABLE_FROM:
            tables.append(_sections_table(title, sections, show_secrets))
            sections = {}
        for name, facts in sections.items():
            listing(title if name == title.lower() else f"{title}: {label_of(name)}", facts)
        if key == "configuration":
            settings.pop("seed", None)
        listing(title, settings)
    versions = ", ".join(f"{k} {v}" for k, v in (run.get("versions") or {}).items())
    listing("Run", {"seed": run.get("seed"), "created": run.get("created"), "versions": versions})
    return (*(block for block in lists if block.facts), *tables)


def _sections_table(
    title: str, sections: Mapping[str, Mapping[str, Any]], show_secrets: bool
) -> Table:
    rows = [{"": name, **facts} for name, facts in sections.items()]
    (table,) = _rows(title, rows, show_secrets)
    return replace(table, texts=len(table.columns))


def command_line(words: Any, *, show_secrets: bool) -> str:
    """The command line, ready to paste, without secret values of options."""
    shown_words, is_secret_value = [], False
    for word in map(str, words or ()):
        option, equals, _ = word.partition("=")
        has_secret_value = equals and option in SECRET_OPTIONS
        if show_secrets or not (is_secret_value or has_secret_value):
            shown_words.append(printable(shlex.quote(word)))
        else:
            shown_words.append(f"{option}=…" if has_secret_value else "…")
        is_secret_value = word in SECRET_OPTIONS
    return " ".join(shown_words)


def lines(*texts: str) -> tuple[str, ...]:
    """The non-empty texts."""
    return tuple(filter(None, texts))


@contextmanager
def guarded(run: Run) -> Iterator[None]:
    """Convert errors about a damaged run to a RunError without quotations."""
    try:
        yield
    except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"{run.directory} is not a complete {printable(run.result)} run "
            f"({type(error).__name__})",
            remedy="It was changed or is damaged. Repeat the run.",
        ) from error


def paper_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of one table of a paper."""
    # In tables of extraction, canaries are named by their patterns.
    is_extraction = all("hamming" in row for row in run.rows)
    names = {"canary": "pattern"} if is_extraction else {}
    rows = [{names.get(n, n): row.get(n) for n in run.summary["columns"]} for row in run.rows]
    first, _, rest = printable(run.summary["note"]).partition(". ")
    facts = {"name": run.summary["name"], "rows": run.summary["rows"]}
    return Report(
        title=printable(run.summary["title"]),
        evidence=lines(f"{first}." if rest else first, rest),
        blocks=_rows("", rows, show_secrets),
        facts=pairs(facts, show_secrets=show_secrets),
    )


def reproduction_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of all tables of a paper."""
    blocks = []
    for name, summary in run.summary.items():
        rows = [row for row in run.rows if row["table"] == name]
        report = paper_report(replace(run, summary=summary, rows=rows), show_secrets=show_secrets)
        blocks += [replace(table, title=report.title) for table in report.tables]
    return Report(
        title="The numbers of a paper next to ours",
        evidence=(f"{len(run.summary)} tables.",),
        blocks=tuple(blocks),
    )


def plain_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a kind without its own."""
    return Report(
        title=printable(run.result),
        evidence=(f"{len(run.rows):,} rows.",),
        blocks=_rows("Rows", run.rows, show_secrets),
    )


def _rows(title: str, rows: Sequence[Row], show_secrets: bool) -> tuple[Table, ...]:
    """Raw rows as a table with text columns first; empty without rows."""
    keys = list(dict.fromkeys(key for row in rows for key in row))

    def numeric(key: str) -> bool:
        values = [row.get(key) for row in rows if row.get(key) is not None]
        return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)

    keys.sort(key=numeric)
    cells = [[value_text(k, row.get(k), show_secrets=show_secrets) for k in keys] for row in rows]
    table = Table(
        title=title,
        columns=tuple(map(label_of, keys)),
        texts=sum(not numeric(key) for key in keys),
        rows=tuple(map(tuple, cells)),
    )
    return (table,) if rows else ()
