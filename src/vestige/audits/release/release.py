"""`vestige report`: runs on one page or in the terminal, and whether they pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Unpack

from cyclopts import Parameter

from vestige import results
from vestige.arguments import RUN, PathTo, Several, Watched, group
from vestige.errors import RunError
from vestige.results import Result, Run
from vestige.session import Session, verb

if TYPE_CHECKING:
    from vestige.audits.release.baseline import Accepted
    from vestige.audits.release.checks import Check, State
    from vestige.audits.release.since import Change
    from vestige.reports.report import Report

    Runs: TypeAlias = PathTo | Sequence[PathTo]
else:
    Runs = Sequence[Path]

PASS = group("Pass or fail")
EXIT_CODES = {"fine": 0, "above": 1, "undecided": 3}
"""Exit codes; 2 is for bad input."""

Output = Annotated[PathTo | None, PASS, Parameter(metavar="FILE")]


@dataclass(frozen=True, kw_only=True)
class Release(Result):
    """What `report` returns.

    Attributes:
        checks: verdicts and limits of each run, and whether all runs are of one model.
        changes: each number since the earlier runs; None without `since`.
        page: the file that was written, or None.
        runs: as they were read.
        judging: limits, a baseline or a file for pipelines were given.
    """

    checks: "tuple[Check, ...]" = ()
    changes: "tuple[Change, ...] | None" = None
    page: Path | None = None
    runs: tuple[Run, ...] = ()
    judging: bool = False

    @property
    def exit_code(self) -> int:
        """0 fine, 1 a leak or above a limit, 3 undecided."""
        return EXIT_CODES[self.summary["verdict"]]

    def reports(self, *, show_secrets: bool) -> "list[Report]":
        """What a terminal shows: the conditions, or the runs, or of a page the headlines."""
        from vestige.audits.release.changes import report_of_changes
        from vestige.reports.report import report_of

        own = [self.report()] if self.has_conditions else []
        if self.judging or (self.page is not None and own):
            return own
        found = [report_of(run, show_secrets=show_secrets) for run in self.runs]
        if self.page is not None:
            return [replace(one, blocks=(), notices=()) for one in found]
        names = [one.name for one in self.runs]
        titled = [
            replace(one, title=f"{one.title} ({name})")
            for one, name in zip(found, names, strict=True)
        ]
        changed = [] if self.changes is None else [report_of_changes(self.changes)]
        return [*own, *changed, *titled]

    @property
    def has_conditions(self) -> bool:
        """Whether there is more to judge than one verdict."""
        return bool(self.checks) and (self.judging or len(self.runs) > 1)

    def report(self) -> "Report":
        """The report of the conditions."""
        from vestige.reports.report import report_of

        return report_of(results.run_of(self), show_secrets=False)

    def next_step(self, out: object) -> str:
        """Where the page is."""
        return f"Page: {self.page}"


@verb
def report(
    run: Session,
    runs: Annotated[Runs, Parameter(negative_iterable=())],
    *,
    fail_above: Annotated[Several, PASS, Parameter(metavar="NAME=NUMBER")] = (),
    allow_undecided: Annotated[bool, PASS] = False,
    baseline: Output = None,
    write_baseline: Output = None,
    junit: Output = None,
    markdown: Output = None,
    since: Annotated[Runs, Parameter(metavar="OLD")] = (),
    out: Annotated[PathTo | None, RUN, Parameter(metavar="PAGE")] = None,
    show_secrets: Annotated[bool, RUN] = False,
    **common: Unpack[Watched],
) -> Release:
    """Show runs on one page or in the terminal, and pass or fail them.

    RUNS are run folders. With --out, they become one self-contained HTML page, which loads nothing
    and runs no scripts; with --out card.md, a section for a model card, without any text.

    A run passes if its verdict is "no leak shown". Limits are checked in addition. A number passes
    if its whole 95% interval is within the limit, fails if the number itself exceeds it, and is
    undecided in between, without an upper bound, or if the verdict is undecided. Runs of different
    models are undecided. Exit codes: 0 passed, 1 failed, 2 bad input, 3 undecided.

    Limits can be set on exposure (bits), completed (canaries), found (phrases), members (users),
    used (texts), memorized (passages per 10,000 tokens, minus those of reference texts), left
    (share of what the earlier model knew) and perplexity.

    With --since, the page begins with what changed: each number then and now, and the difference
    with its 95% interval. Runs are matched by folder name and kind.

    Examples:
        vestige report diff-run
        vestige report diff-run exposure-run --out page.html
        vestige report diff-run exposure-run --out card.md
        vestige report diff-run --since last-release --out page.html --show-secrets
        vestige report diff-run --fail-above found=0 --junit report.xml
        vestige report diff-run exposure-run --write-baseline accepted.json
        vestige report diff-run --baseline accepted.json --markdown report.md

    Args:
        runs: Run folders, or folders with one run inside, in the order of the page.
        fail_above: Fail if a quantity exceeds this number, such as exposure=6. Repeatable.
        allow_undecided: Pass what is undecided. It is still reported.
        baseline: Accept what this file lists: the same secrets, and numbers that did not rise.
        write_baseline: Write a file that accepts what fails now.
        junit: Write the conditions as JUnit XML, for pipelines.
        markdown: Write the conditions as Markdown, for a pull request.
        since: Runs of an earlier release, or a folder that contains them. Repeatable.
        out: Page (.html) or model card (.md) to write. It must not exist.
        show_secrets: Show texts unredacted.

    Raises:
        ValueError: a limit is not NAME=NUMBER, two outputs are one file, or a card should show
            secrets.
        RunError: a folder is not a run, a run was changed, two runs to be judged have one name,
            none of them has a verdict, or an output exists or is inside a run folder.
    """
    from vestige.audits.release.checks import absent_of, checks_of
    from vestige.audits.release.limits import limits_of
    from vestige.audits.release.outputs import is_card, require_apart, with_page, write_files

    limits = limits_of(fail_above)
    outputs = {"write_baseline": write_baseline, "junit": junit, "markdown": markdown}
    require_apart({**outputs, "out": out}, baseline)
    if out is not None and is_card(out) and show_secrets:
        raise ValueError("`show_secrets` must be left out with a card, which is for everyone")
    judging = bool(limits) or baseline is not None or any(outputs.values())
    read = _read(runs, judging=judging)
    known = _accepted(baseline)
    checks = tuple(checks_of(read, limits, known))
    if judging and not checks:
        raise RunError(
            "none of these runs has a verdict",
            remedy="Set a limit on what they measure (--fail-above), or give runs of audits.",
        )
    changes = _changes(read, since)
    summary = _summary(read, checks, allow_undecided, absent_of(read, known))
    if changes is not None:
        summary["changes"] = [one.summary() for one in changes]
    result = Release(
        kind="Release",
        summary=summary,
        rows=tuple(_row(check) for check in checks),
        checks=checks,
        changes=changes,
        runs=tuple(read),
        judging=judging,
    )
    if out is not None:
        result = with_page(result, Path(fspath(out)), show_secrets=show_secrets)
    write_files(result, outputs, allow_undecided=allow_undecided)
    return result


def _read(runs: Any, *, judging: bool) -> list[Run]:
    """The runs; with different names where they are judged.

    Raises:
        ValueError: there are none.
        RunError: one cannot be read, or two have one name.
    """
    from vestige.reports.disclosure import printable

    given = [runs] if isinstance(runs, str | PathLike) else list(runs)
    if not given:
        raise ValueError("`runs` must hold at least one run folder")
    read = [results.find(fspath(one)) for one in given]
    names = [run.name for run in read]
    if judging and (twice := sorted({name for name in names if names.count(name) > 1})):
        raise RunError(
            f"two runs are named {printable(twice[0])}",
            remedy="Rename one: a baseline identifies runs by the names of their folders.",
        )
    return read


def _accepted(baseline: Any) -> "Mapping[str, Accepted]":
    from vestige.audits.release.baseline import read_baseline

    return {} if baseline is None else read_baseline(Path(fspath(baseline)))


def _changes(read: Sequence[Run], since: Any) -> "tuple[Change, ...] | None":
    from vestige.audits.release.since import changes, earlier_runs

    given = [since] if isinstance(since, str | PathLike) else list(since)
    if not given:
        return None
    return tuple(changes(read, earlier_runs([fspath(one) for one in given], read)))


def state_of(checks: "Sequence[Check]", *, allow_undecided: bool) -> "State":
    """Above if any check is; else undecided, unless that is allowed; else fine."""
    states = {check.state for check in checks}
    if "above" in states:
        return "above"
    return "undecided" if "undecided" in states and not allow_undecided else "fine"


def _summary(
    read: Sequence[Run], checks: "Sequence[Check]", allow_undecided: bool, absent: tuple[str, ...]
) -> dict[str, Any]:
    state = state_of(checks, allow_undecided=allow_undecided)
    return {
        "verdict": state,
        "code": EXIT_CODES[state],
        "runs": len(read),
        "absent": list(absent),
        "checks": [_row(check) for check in checks],
    }


def _row(check: "Check") -> dict[str, Any]:
    return {
        "run": check.run,
        "quantity": check.quantity,
        "state": check.state,
        "limit": check.limit,
        "value": check.measured and check.measured.value,
        "sentence": check.sentence,
    }
