"""`vestige report`: show runs on a page or in the terminal, and pass or fail them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Unpack

from cyclopts import Parameter

from vestige import new_files, results
from vestige.arguments import RUN, PathTo, Several, Watched, group
from vestige.errors import RunError
from vestige.reports.disclosure import printable
from vestige.reports.words import Row
from vestige.results import Result, Run
from vestige.session import Session, verb

if TYPE_CHECKING:
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
    """What `report` returns: one row per condition.

    Attributes:
        runs: in the order of the page.
        changes: differences from the earlier runs; None without `since`.
        page: the file that was written, or None.
        judging: a limit, a baseline or an output for pipelines was requested.
    """

    runs: tuple[Run, ...] = ()
    changes: tuple[Row, ...] | None = None
    page: Path | None = None
    judging: bool = False

    @property
    def exit_code(self) -> int:
        """0 fine, 1 a leak or above a limit, 3 undecided."""
        return EXIT_CODES[self.summary["verdict"]]

    def report(self) -> "Report | None":
        """The report of the conditions; None if the only condition is the verdict of one run."""
        from vestige.reports.report import report_of

        if not self.rows or not (self.judging or len(self.runs) > 1):
            return None
        return report_of(results.run_of(self), show_secrets=False)

    def reports(self, *, show_secrets: bool) -> "list[Report]":
        """The reports for a terminal: conditions, or headlines of a page, or all runs."""
        from vestige.audits.release.report import changes_report
        from vestige.reports.report import report_of

        conditions = self.report()
        if conditions is not None and (self.judging or self.page is not None):
            return [conditions]
        run_reports = [report_of(run, show_secrets=show_secrets) for run in self.runs]
        if self.page is not None:
            return [replace(report, blocks=(), notices=()) for report in run_reports]
        reports = [] if conditions is None else [conditions]
        if self.changes is not None:
            reports.append(changes_report(self.changes))
        return reports + [
            replace(report, title=f"{report.title} ({run.name})")
            for report, run in zip(run_reports, self.runs, strict=True)
        ]

    def next_step(self, out: object) -> str:
        """The path of the page."""
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
    from vestige.audits.release.conditions import conditions_of, limits_of, read_baseline
    from vestige.audits.release.since import changes, earlier_runs

    limits = limits_of(fail_above)
    outputs = {"write_baseline": write_baseline, "junit": junit, "markdown": markdown, "out": out}
    paths = {name: Path(fspath(path)) for name, path in outputs.items() if path is not None}
    page = paths.get("out")
    _reject_overwriting(paths, baseline)
    if page is not None and page.suffix == ".md" and show_secrets:
        raise ValueError("`show_secrets` must be left out with a card, which is for everyone")
    judging = bool(limits) or baseline is not None or bool(paths.keys() - {"out"})
    loaded = _load(runs, judging=judging)
    accepted_before = None if baseline is None else read_baseline(Path(fspath(baseline)))
    rows = conditions_of(loaded, limits, accepted_before)
    if judging and not rows:
        raise RunError(
            "none of these runs has a verdict",
            remedy="Set a limit on what they measure (--fail-above), or give runs of audits.",
        )
    earlier = [fspath(path) for path in _as_list(since)]
    differences = tuple(changes(loaded, earlier_runs(earlier, loaded))) if earlier else None
    states = {row["state"] for row in rows} - ({"undecided"} if allow_undecided else set())
    verdict = next((state for state in ("above", "undecided") if state in states), "fine")
    accepted_keys = () if accepted_before is None else accepted_before.accepted
    names = {run.name for run in loaded}
    summary: dict[str, Any] = {
        "verdict": verdict,
        "code": EXIT_CODES[verdict],
        "runs": len(loaded),
        "absent": [printable(key) for key in accepted_keys if key.rpartition("/")[0] not in names],
        "checks": rows,
    }
    if differences is not None:
        summary["changes"] = list(differences)
    if page is not None:
        summary |= {"page": str(page), "show_secrets": show_secrets}
    result = Release(
        kind="Release", summary=summary, rows=tuple(rows), runs=tuple(loaded),
        changes=differences, page=page, judging=judging,
    )  # fmt: skip
    _write(result, paths, allow_undecided=allow_undecided, show_secrets=show_secrets)
    return result


def _as_list(paths: Any) -> list[Any]:
    return [paths] if isinstance(paths, str | PathLike) else list(paths)


def _reject_overwriting(outputs: Mapping[str, Path], baseline: Any) -> None:
    """Raise an error if an output would replace another one, the baseline, or a file of a run."""
    names: dict[Path, str] = {}
    if baseline is not None and "write_baseline" not in outputs:
        names[Path(fspath(baseline)).resolve()] = "baseline"
    for name, path in outputs.items():
        new_files.require_outside_runs(path)
        if name == "out":
            new_files.require_new(path)
        other = names.setdefault(path.resolve(), name)
        if other != name:
            raise ValueError(f"`{name}` and `{other}` must be different files")


def _load(paths: Any, *, judging: bool) -> list[Run]:
    """The runs of some folders; RunError if they are judged and two have one name."""
    runs = [results.find(fspath(path)) for path in _as_list(paths)]
    if not runs:
        raise ValueError("`runs` must hold at least one run folder")
    names = [run.name for run in runs]
    if judging and (repeated := sorted({name for name in names if names.count(name) > 1})):
        raise RunError(
            f"two runs are named {printable(repeated[0])}",
            remedy="Rename one: a baseline identifies runs by the names of their folders.",
        )
    return runs


def _write(
    result: Release, outputs: Mapping[str, Path], *, allow_undecided: bool, show_secrets: bool
) -> None:
    """Write the page or card, and the outputs for pipelines."""
    from vestige.audits.release.conditions import write_baseline
    from vestige.audits.release.report import SUITE, cases, changes_table, markdown
    from vestige.data.writing import write_text
    from vestige.reports.junit import junit
    from vestige.reports.page import write_card, write_page

    conditions = result.report()
    first = () if result.changes is None else (changes_table(result.changes),)
    if (page := result.page) is not None and page.suffix == ".md":
        write_card(result.runs, page, first=first)
    elif page is not None:
        write_page(result.runs, page, show_secrets=show_secrets, first=first, above=conditions)
    if "write_baseline" in outputs:
        write_baseline(outputs["write_baseline"], result.runs, result.rows)
    if "junit" in outputs:
        text = junit(SUITE, cases(result.rows, allow_undecided=allow_undecided))
        write_text(outputs["junit"], text, shared=True)
    if "markdown" in outputs and conditions is not None and conditions.verdict is not None:
        text = markdown(conditions.verdict.line, result.rows)
        write_text(outputs["markdown"], text, shared=True)
