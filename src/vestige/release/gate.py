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

CODES = {"fine": 0, "above": 1, "could not tell": 2}
"""Exit codes."""

OUTPUT = Group("Output")


@dataclass(frozen=True)
class Gate:
    """What a gate says.

    Attributes:
        checks: one of each limit and run, and of the verdicts of the other runs.
        allow_open: whether what could not be told passes.
        absent: what the baseline accepts of runs that are not here, as "run/quantity".
    """

    checks: "tuple[Check, ...]"
    allow_open: bool = False
    absent: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Above where anything is; else could not tell, unless it is allowed; else fine."""
        if self.count("above"):
            return "above"
        return "could not tell" if self.count("could not tell") and not self.allow_open else "fine"

    @property
    def code(self) -> int:
        """The exit code: 0, 1 or 2."""
        return CODES[self.verdict]

    @property
    def answer(self) -> str:
        """The verdict in a sentence."""
        states: tuple[State, ...] = ("above", "could not tell", "known", "fine")
        counts = [f"{count} {state}" for state in states if (count := self.count(state))]
        starts = {
            "fine": "Passed",
            "above": "Failed",
            "could not tell": "Failed: could not tell",
        }
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
    allow_open: bool = False,
    baseline: Annotated[PathTo | None, Metavar("FILE")] = None,
    write_baseline: Annotated[PathTo | None, Metavar("FILE"), OUTPUT] = None,
    junit: Annotated[PathTo | None, Metavar("FILE"), OUTPUT] = None,
    markdown: Annotated[PathTo | None, Metavar("FILE"), OUTPUT] = None,
) -> Gate:
    """Pass or fail a release by what its runs measured.

    Every limit is put to every run that measures its quantity. A run is fine where the whole of its
    95 % interval is at most the limit, above where the number itself is more, and in between could
    not tell; neither could one that measured nothing, such as a search without null models. That
    fails too, unless `allow_open` is given. A run of which no limit speaks is judged by its verdict.

    Quantities: exposure (bits), completed (canaries), found (phrases), members (people), used
    (texts), memorized (passages sampled per 10,000 tokens, less those of never-seen texts), left
    (share of what was known of deleted texts), perplexity (of the validation text).

    With `baseline`, what was accepted before passes: as many bits or people as then, or no phrases
    but those. `write_baseline` accepts what is there now; runs are told apart by the names of their
    directories. What is accepted of a run that is not here decides nothing, and is named.

    The exit code is 0 for fine, 1 for above, 2 where it could not tell or something was wrong with
    what was given.

    Args:
        runs: Run directories, of different names; of a folder with one run inside, that one.
        fail_above: A quantity and the most that is fine, such as exposure=8; several times.
        allow_open: Pass what could not be told; it is reported all the same.
        baseline: A file of what was accepted before.
        write_baseline: A file to write, or to write anew, that accepts what is above now.
        junit: A file to write as JUnit XML, which pipelines show; one that is there is replaced.
        markdown: A file to write for a pull request; one that is there is replaced.

    Raises:
        ValueError: a limit names no quantity, or is no number.
        RunError: a directory is no run and holds none or several, two have one name, or nothing was
            asked of any.

    Examples:
        vestige gate diff-run --fail-above found=0 --junit gate.xml

        vestige gate diff-run rank-run --write-baseline accepted.json

        vestige gate diff-run --baseline accepted.json --markdown gate.md
    """  # noqa: E501
    from vestige import results
    from vestige.data.atomic_write import write_text
    from vestige.release import baseline as baselines
    from vestige.release import files
    from vestige.release.judgement import absent_of, judge, key_of

    limits = limits_of(fail_above)
    several = [runs] if isinstance(runs, str | PathLike) else list(runs)
    known = None if baseline is None else baselines.read_baseline(Path(baseline))
    read = [results.find(fspath(run)) for run in several]
    checks = judge(read, limits, known)
    found = Gate(tuple(checks), allow_open, absent_of(read, known or {}))
    if write_baseline is not None:
        accepted = {
            key_of(check.run, check.quantity): check.accepted
            for check in checks
            if check.accepted is not None
        }
        baselines.write_baseline(Path(write_baseline), accepted)
    if junit is not None:
        write_text(Path(junit), files.junit(checks, allow_open=allow_open), shared=True)
    if markdown is not None:
        write_text(Path(markdown), files.markdown(found.answer, checks), shared=True)
    return found


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
