"""A result as facts for readers, redacted before any markup: page, notebook, card and terminal.

`KINDS` names the function that makes the report of each kind of result. Only the one that is
needed is imported.
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
from vestige.reports.words import Facts, Row, pairs, shown, words_of
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
"""By the name of the result's class: "module:function" of (run, *, show_secrets)."""

OTHER = "vestige.reports.report:plain_report"
"""For any other kind: its rows as a table."""

REDACTION = "Run folders contain the texts unredacted; redaction concerns this report only."
"""A limit of every result."""

MOST_EVIDENCE = 3

SIGNS: Mapping[str, str] = {"✗": "leak", "✓": "clear", "?": UNDECIDED, "–": "not run"}
"""Signs of evidence and their words."""

MANY = 3
"""From this number on, models or data sets are shown in one table."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What one of several tests found.

    Attributes:
        sign: a key of `SIGNS`.
        title: of the test.
        text: the finding.
        note: small print below it.
        block: what unfolds below it on a page.
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
        """What the sign means."""
        return SIGNS[self.sign]

    def as_lines(self, width: int) -> tuple[str, ...]:
        """As lines of text, with the title in a column of that width and the note below."""
        note = f"{'':{width + 4}}{self.note}" if self.note else ""
        return lines(f"{self.sign} {self.title:<{width}}  {self.text}", note)


@dataclass(frozen=True, kw_only=True)
class Report:
    """One result, ready to be shown. The function of a kind gives the first nine.

    Attributes:
        title: the question.
        evidence: what was found and what supports it, at most three lines.
        notices: warnings to read before the rest.
        answer: the finding in one sentence. It follows the word of the verdict, and the claim's
            numbers become the first line of the evidence if there are fewer than three. "": the
            claim's numbers follow the word.
        stated: names of checks that the evidence states, so that they are not listed again.
        below: what to read after the evidence, such as what was not tested; never folded.
        blocks: tables, charts, phrases and prose in their order.
        limits: what the numbers do not say.
        facts: the summary in words; the whole summary where a kind gives none.
        verdict: with its test and checks; None for kinds without one.
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
        """What every form begins with: verdict, evidence, failed and passed checks."""
        width = max(
            (len(one.title) for one in self.evidence if isinstance(one, Evidence)), default=0
        )
        evidence = [
            line
            for one in self.evidence
            for line in (one.as_lines(width) if isinstance(one, Evidence) else (one,))
        ]
        if self.verdict is None:
            return tuple(evidence)
        checks = filter(None, (*self.verdict.against, self.verdict.all_passed))
        return (self.verdict.line, *evidence, *checks)

    @property
    def unfolded(self) -> tuple[Block, ...]:
        """The blocks that unfold below the evidence."""
        blocks = (one.block for one in self.evidence if isinstance(one, Evidence))
        return tuple(block for block in blocks if block is not None)


def report_of(run: Run, *, show_secrets: bool) -> Report:
    """The report of a run.

    Args:
        run: a run folder, or a result in memory.
        show_secrets: texts and names unredacted.

    Raises:
        RunError: its rows or summary lack what its kind of result has.
    """
    with guarded(run):
        module, _, function = KINDS.get(run.result, OTHER).partition(":")
        made: Report = getattr(import_module(module), function)(run, show_secrets=show_secrets)
        facts = pairs(run.summary, show_secrets=show_secrets) if made.facts is None else made.facts
        stated = verdict_of_run(run, without=made.stated)
        verdict, evidence = _answered(stated or made.verdict, made)
        return replace(
            made,
            verdict=verdict,
            evidence=evidence,
            facts=facts,
            settings=_settings(run.run, show_secrets=show_secrets),
            command=command_line(run.run.get("command"), show_secrets=show_secrets),
            limits=(*made.limits, REDACTION),
        )


def _answered(
    verdict: Verdict | None, made: Report
) -> tuple[Verdict | None, tuple[str | Evidence, ...]]:
    """The verdict with the answer as its sentence, and the evidence with the claim's numbers."""
    if not made.answer:
        return verdict, made.evidence
    room = len(made.evidence) < MOST_EVIDENCE
    if verdict is None or verdict.word == NOT_CHECKED.upper():
        return verdict, (*([made.answer] if room else []), *made.evidence)
    measured = (verdict.sentence,) if room and verdict.sentence != NOTHING_MEASURED else ()
    return replace(verdict, sentence=made.answer), (*measured, *made.evidence)


def _settings(run: Mapping[str, Any], *, show_secrets: bool) -> tuple[Listing | Table, ...]:
    """Lists of settings, one for each model and data set, and tables where there are many."""
    lists: list[Listing] = []
    tables: list[Table] = []

    def listing(title: str, facts: Mapping[str, Any]) -> None:
        lists.append(Listing(title=title, facts=pairs(facts, show_secrets=show_secrets)))

    for key, title in (("models", "Model"), ("data", "Data"), ("configuration", "Settings")):
        given = dict(run.get(key) or {})
        nested = {name: given.pop(name) for name in list(given) if isinstance(given[name], Mapping)}
        if key != "configuration" and len(nested) >= MANY:
            tables.append(_side_by_side(title, nested, show_secrets))
            nested = {}
        for name, own in nested.items():
            listing(title if name == title.lower() else f"{title}: {words_of(name)}", own)
        if key == "configuration":
            given.pop("seed", None)
        listing(title, given)
    versions = ", ".join(f"{k} {v}" for k, v in (run.get("versions") or {}).items())
    listing("Run", {"seed": run.get("seed"), "created": run.get("created"), "versions": versions})
    return (*(one for one in lists if one.facts), *tables)


def _side_by_side(title: str, given: Mapping[str, Mapping[str, Any]], show_secrets: bool) -> Table:
    found = _rows(title, [{"": name, **own} for name, own in given.items()], show_secrets)[0]
    return replace(found, texts=len(found.columns))


def command_line(words: Any, *, show_secrets: bool) -> str:
    """The command line, ready to paste; secret values of options are left out."""
    texts, secret = [], False
    for word in map(str, words or ()):
        option, equals, _ = word.partition("=")
        hidden = equals and option in SECRET_OPTIONS
        if show_secrets or not (secret or hidden):
            texts.append(printable(shlex.quote(word)))
        else:
            texts.append(f"{option}=…" if hidden else "…")
        secret = word in SECRET_OPTIONS
    return " ".join(texts)


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


def paper_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a paper's table, under its title."""
    extracted = all("hamming" in row for row in run.rows)  # then a canary is a pattern's name
    names = {"canary": "pattern"} if extracted else {}
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
        made = paper_report(replace(run, summary=summary, rows=rows), show_secrets=show_secrets)
        blocks += [replace(one, title=made.title) for one in made.tables]
    return Report(
        title="The numbers of a paper next to ours",
        evidence=(f"{len(run.summary)} tables.",),
        blocks=tuple(blocks),
    )


def plain_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a result of any other kind."""
    return Report(
        title=printable(run.result),
        evidence=(f"{len(run.rows):,} rows.",),
        blocks=_rows("Rows", run.rows, show_secrets),
    )


def _rows(title: str, rows: Sequence[Row], show_secrets: bool) -> tuple[Table, ...]:
    """Raw rows as a table, texts to the left; none without rows."""
    keys = list(dict.fromkeys(key for row in rows for key in row))

    def numeric(key: str) -> bool:
        values = [row.get(key) for row in rows if row.get(key) is not None]
        return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)

    keys.sort(key=numeric)
    cells = [[shown(k, row.get(k), show_secrets=show_secrets) for k in keys] for row in rows]
    found = Table(
        title=title,
        columns=tuple(map(words_of, keys)),
        texts=sum(not numeric(key) for key in keys),
        rows=tuple(map(tuple, cells)),
    )
    return (found,) if rows else ()
