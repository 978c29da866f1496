"""A release gate as a function that Python and the command line call: `vestige gate`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from vestige._markers import Group, Metavar

if TYPE_CHECKING:
    from vestige.release.judgement import Check, State

    PathTo: TypeAlias = str | PathLike[str]
    Runs: TypeAlias = PathTo | Sequence[PathTo]
else:  # as a command line gives them
    PathTo = Path
    Runs = Sequence[Path]

CODES = {"fine": 0, "above": 1, "undecided": 3}
"""Exit codes; 2 is for bad input."""

OUTPUT = Group("Output")


@dataclass(frozen=True)
class Gate:
    """What a gate decides.

    Attributes:
        checks: one of each verdict, of each limit and run, and of all runs together.
        allow_undecided: whether what is undecided passes.
        absent: what the baseline accepts of runs that are not here, as "run/quantity".
    """

    checks: "tuple[Check, ...]"
    allow_undecided: bool = False
    absent: tuple[str, ...] = ()

    @property
    def verdict(self) -> "State":
        """Above where any check is; else undecided, unless that is allowed; else fine."""
        if self.count("above"):
            return "above"
        return "undecided" if self.count("undecided") and not self.allow_undecided else "fine"

    @property
    def code(self) -> int:
        """The exit code: 0, 1 or 3."""
        return CODES[self.verdict]

    @property
    def answer(self) -> str:
        """The verdict in a sentence."""
        states: tuple[State, ...] = ("above", "undecided", "known", "fine")
        counts = [f"{count} {state}" for state in states if (count := self.count(state))]
        starts = {"fine": "Passed", "above": "Failed", "undecided": "Failed: undecided"}
        number = len(self.checks)
        told = f"{starts[self.verdict]}. Of {number} check{'s' * (number != 1)}: "
        told += ", ".join(counts) + "."
        if self.absent:
            told += f" The baseline also accepts {', '.join(self.absent)}: no such run is here."
        return told

    def count(self, state: "State") -> int:
        """How many checks came out so."""
        return sum(check.state == state for check in self.checks)

    def summary(self) -> dict[str, object]:
        """The verdict, its exit code, and how many checks came out how."""
        return {
            "verdict": self.verdict,
            "code": self.code,
            "absent": list(self.absent),
            "checks": [
                {
                    "run": check.run,
                    "quantity": check.quantity,
                    "state": check.state,
                    "limit": check.limit,
                    "value": check.measured and check.measured.value,
                    "sentence": check.sentence,
                }
                for check in self.checks
            ],
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a check."""
        checks = self.summary()["checks"]
        assert isinstance(checks, list)
        yield from checks


def gate(
    runs: Annotated[Runs, Metavar("RUN")],
    *,
    fail_above: Annotated[Sequence[str], Metavar("NAME=NUMBER")] = (),
    allow_undecided: bool = False,
    baseline: Annotated[PathTo | None, Metavar("FILE")] = None,
    write_baseline: Annotated[PathTo | None, Metavar("FILE"), OUTPUT] = None,
    junit: Annotated[PathTo | None, Metavar("FILE"), OUTPUT] = None,
    markdown: Annotated[PathTo | None, Metavar("FILE"), OUTPUT] = None,
) -> Gate:
    """Pass or fail a release by what its runs measured.

    Every run must have the verdict "no leak shown". Limits are checked in addition: a number is
    fine where its whole 95% interval is at most the limit, above where the number itself exceeds
    it, and undecided in between, without an upper bound, or where the verdict is undecided. Runs of
    different models are undecided. Undecided fails, unless `allow_undecided` is given.

    Quantities: exposure (bits), completed (canaries), found (phrases), members (users), used
    (texts), memorized (passages extracted per 10,000 tokens, less those of reference texts), left
    (share of what the earlier model knew of deleted texts), perplexity (of the validation text).

    With `baseline`, what was accepted before passes: the same secrets, or a number no higher than
    then; an accepted leak with a limit passes below the limit. `write_baseline` accepts what fails
    now. A run is identified by the name of its directory.

    The exit code is 0 for fine, 1 for a leak or above a limit, 2 for bad input, 3 for undecided.

    Args:
        runs: Run directories with different names; of a folder with one run inside, that one.
        fail_above: A quantity and the largest value that is fine, such as exposure=8; repeatable.
        allow_undecided: Pass what is undecided; it is reported all the same.
        baseline: A file of what was accepted before.
        write_baseline: A file to write or replace that accepts the leaks and numbers that fail now.
        junit: A file to write or replace: JUnit XML for pipelines.
        markdown: A file to write or replace, for a pull request.

    Raises:
        ValueError: a limit names no quantity or is no number, or two outputs are one file.
        RunError: a directory is no run and holds none or several, a run was changed, two have one
            name, none has a verdict, or an output lies in a run directory.

    Examples:
        vestige gate diff-run --fail-above found=0 --junit gate.xml

        vestige gate diff-run rank-run --write-baseline accepted.json

        vestige gate diff-run --baseline accepted.json --markdown gate.md
    """
    from vestige import results
    from vestige.data.atomic_write import write_text
    from vestige.release import baseline as baselines
    from vestige.release import files
    from vestige.release.judgement import absent_of, judge, key_of

    limits = limits_of(fail_above)
    _require_apart(
        {"write_baseline": write_baseline, "junit": junit, "markdown": markdown}, baseline
    )
    several = [runs] if isinstance(runs, str | PathLike) else list(runs)
    known = None if baseline is None else baselines.read_baseline(Path(baseline))
    read = [results.find(fspath(run)) for run in several]
    checks = judge(read, limits, known)
    found = Gate(tuple(checks), allow_undecided, absent_of(read, known or {}))
    if write_baseline is not None:
        accepted = {
            key_of(check.run, check.quantity): check.accepted
            for check in checks
            if check.accepted is not None
        }
        baselines.write_baseline(Path(write_baseline), accepted)
    if junit is not None:
        text = files.junit(checks, allow_undecided=allow_undecided)
        write_text(Path(junit), text, shared=True)
    if markdown is not None:
        write_text(Path(markdown), files.markdown(found.answer, checks), shared=True)
    return found


def _require_apart(outputs: "Mapping[str, PathTo | None]", baseline: "PathTo | None") -> None:
    """An error where an output would replace another, the baseline, or a file of a run.

    Raises:
        ValueError: two are one file.
        RunError: one lies in a run directory.
    """
    from vestige import results

    seen: dict[Path, str] = {}
    if baseline is not None and outputs["write_baseline"] is None:
        seen[Path(baseline).resolve()] = "baseline"
    for name, given in outputs.items():
        if given is None:
            continue
        path = results.require_outside_runs(fspath(given)).resolve()
        if path in seen:
            raise ValueError(f"`{name}` and `{seen[path]}` must be different files")
        seen[path] = name


def limits_of(words: Sequence[str]) -> Mapping[str, float]:
    """Limits by quantity, from NAME=NUMBER.

    Raises:
        ValueError: one is not of that form, or stands there twice.
    """
    from difflib import get_close_matches
    from math import isfinite

    from vestige.reports.quantities import QUANTITIES

    found: dict[str, float] = {}
    for word in words:
        name, _, number = word.partition("=")
        if name not in QUANTITIES:
            near = get_close_matches(name, QUANTITIES, n=1)
            raise ValueError(
                f"`fail_above` must begin with one of {', '.join(QUANTITIES)} and =, got {word!r}"
                + "".join(f"; did you mean {one}?" for one in near)
            )
        try:
            limit = float(number)
        except ValueError:
            limit = float("nan")
        if not isfinite(limit):
            raise ValueError(f"`fail_above` must end with =NUMBER, got {word!r}")
        if name in found:
            raise ValueError(f"`fail_above` must name {name} once, got it twice")
        found[name] = limit
    return found
