"""`vestige report`: runs on one page or in the terminal, and whether they pass."""

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
        runs: as they were read.
        changes: each number since the earlier runs; None without `since`.
        page: the file that was written, or None.
        judging: limits, a baseline or a file for pipelines were given.
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
        """The report of the conditions; None if there is nothing to judge but one verdict."""
        from vestige.reports.report import report_of

        if not self.rows or not (self.judging or len(self.runs) > 1):
            return None
        return report_of(results.run_of(self), show_secrets=False)

    def reports(self, *, show_secrets: bool) -> "list[Report]":
        """What a terminal shows: the conditions, or the runs, or of a page the headlines."""
        from vestige.audits.release.report import changes_report
        from vestige.reports.report import report_of

        own = self.report()
        if own is not None and (self.judging or self.page is not None):
            return [own]
        found = [report_of(run, show_secrets=show_secrets) for run in self.runs]
        if self.page is not None:
            return [replace(one, blocks=(), notices=()) for one in found]
        first = [] if own is None else [own]
        if self.changes is not None:
            first.append(changes_report(self.changes))
        return first + [
            replace(one, title=f"{one.title} ({run.name})")
            for one, run in zip(found, self.runs, strict=True)
        ]

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
    from vestige.audits.release.conditions import conditions_of, limits_of, read_baseline
    from vestige.audits.release.since import changes, earlier_runs

    limits = limits_of(fail_above)
    outputs = {"write_baseline": write_baseline, "junit": junit, "markdown": markdown, "out": out}
    paths = {name: Path(fspath(path)) for name, path in outputs.items() if path is not None}
    page = paths.get("out")
    _require_apart(paths, baseline)
    if page is not None and page.suffix == ".md" and show_secrets:
        raise ValueError("`show_secrets` must be left out with a card, which is for everyone")
    judging = bool(limits) or baseline is not None or bool(paths.keys() - {"out"})
    read = _read(runs, judging=judging)
    known = None if baseline is None else read_baseline(Path(fspath(baseline)))
    rows = conditions_of(read, limits, known)
    if judging and not rows:
        raise RunError(
            "none of these runs has a verdict",
            remedy="Set a limit on what they measure (--fail-above), or give runs of audits.",
        )
    earlier = [fspath(one) for one in _several(since)]
    changed = tuple(changes(read, earlier_runs(earlier, read))) if earlier else None
    states = {row["state"] for row in rows} - ({"undecided"} if allow_undecided else set())
    verdict = next((one for one in ("above", "undecided") if one in states), "fine")
    accepted, names = () if known is None else known.accepted, {one.name for one in read}
    summary: dict[str, Any] = {
        "verdict": verdict,
        "code": EXIT_CODES[verdict],
        "runs": len(read),
        "absent": [printable(key) for key in accepted if key.rpartition("/")[0] not in names],
        "checks": rows,
    }
    if changed is not None:
        summary["changes"] = list(changed)
    if page is not None:
        summary |= {"page": str(page), "show_secrets": show_secrets}
    result = Release(
        kind="Release", summary=summary, rows=tuple(rows), runs=tuple(read), changes=changed,
        page=page, judging=judging,
    )  # fmt: skip
    _write(result, paths, allow_undecided=allow_undecided, show_secrets=show_secrets)
    return result


def _several(given: Any) -> list[Any]:
    return [given] if isinstance(given, str | PathLike) else list(given)


def _require_apart(outputs: Mapping[str, Path], baseline: Any) -> None:
    """Raise an error where an output would replace another, the baseline, or a file of a run."""
    seen: dict[Path, str] = {}
    if baseline is not None and "write_baseline" not in outputs:
        seen[Path(fspath(baseline)).resolve()] = "baseline"
    for name, path in outputs.items():
        new_files.require_outside_runs(path)
        if name == "out":
            new_files.require_new(path)
        other = seen.setdefault(path.resolve(), name)
        if other != name:
            raise ValueError(f"`{name}` and `{other}` must be different files")


def _read(runs: Any, *, judging: bool) -> list[Run]:
    """The runs; with different names where they are judged."""
    read = [results.find(fspath(one)) for one in _several(runs)]
    if not read:
        raise ValueError("`runs` must hold at least one run folder")
    names = [run.name for run in read]
    if judging and (twice := sorted({name for name in names if names.count(name) > 1})):
        raise RunError(
            f"two runs are named {printable(twice[0])}",
            remedy="Rename one: a baseline identifies runs by the names of their folders.",
        )
    return read


def _write(
    result: Release, outputs: Mapping[str, Path], *, allow_undecided: bool, show_secrets: bool
) -> None:
    """Write the page or card, and the files for pipelines and baselines."""
    from vestige.audits.release.conditions import write_baseline
    from vestige.audits.release.report import SUITE, cases, changes_table, markdown
    from vestige.data.writing import write_text
    from vestige.reports.junit import junit
    from vestige.reports.page import write_card, write_page

    own = result.report()
    first = () if result.changes is None else (changes_table(result.changes),)
    if (page := result.page) is not None and page.suffix == ".md":
        write_card(result.runs, page, first=first)
    elif page is not None:
        write_page(result.runs, page, show_secrets=show_secrets, first=first, above=own)
    if "write_baseline" in outputs:
        write_baseline(outputs["write_baseline"], result.runs, result.rows)
    if "junit" in outputs:
        text = junit(SUITE, cases(result.rows, allow_undecided=allow_undecided))
        write_text(outputs["junit"], text, shared=True)
    if "markdown" in outputs and own is not None and own.verdict is not None:
        text = markdown(own.verdict.line, result.rows)
        write_text(outputs["markdown"], text, shared=True)
