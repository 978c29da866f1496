"""Trials are made once, in the order of their needs, whole or not at all, by whoever makes them."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reproduction.runner import RECORD, Trial, run_trials
from vestige.data.corpus import Corpus
from vestige.data.writing import alone
from vestige.errors import RunError
from vestige.parallel import map_processes


@dataclass(frozen=True, kw_only=True)
class Squares(Trial):
    """The squares below a number, one file each; killed behind `killed_at` of them, once."""

    outputs = ("squares",)
    number: int
    killed_at: int | None = field(default=None, compare=False)

    def make(self):
        folder = self.directory / "squares"
        folder.mkdir(exist_ok=True)
        found = len(list(folder.iterdir()))
        for i in range(found, self.number):
            if i == self.killed_at and found == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            (folder / f"{i:03}").write_text(str(i * i))
        return {"resumed_from": found, "largest": (self.number - 1) ** 2}


@dataclass(frozen=True, kw_only=True)
class Sum(Trial):
    """The sum of other trials' largest squares, and of a corpus' documents."""

    parts: tuple[Squares, ...]
    corpus: Corpus = field(default_factory=lambda: Corpus.from_texts(["one"]))
    levels: tuple[float, ...] = (0.5,)

    def make(self):
        return {"sum": sum(part.result()["largest"] for part in self.parts), "pid": os.getpid()}


@dataclass(frozen=True)
class Weighted:
    """A trial inside a description."""

    of: Squares
    weight: int


@dataclass(frozen=True, kw_only=True)
class Product(Trial):
    """A trial that finds another one in a dataclass in a mapping."""

    factors: dict[str, Weighted] = field(hash=False)

    def make(self):
        found = [one.of.result()["largest"] * one.weight for one in self.factors.values()]
        return {"product": int(np.prod(found))}


@pytest.fixture
def squares(tmp_path: Path) -> list[Squares]:
    return [Squares(directory=tmp_path / f"squares-{n}", number=n) for n in (3, 4)]


@pytest.fixture
def total(tmp_path: Path, squares: list[Squares]) -> Sum:
    return Sum(directory=tmp_path / "sum", parts=tuple(squares))


def stamps(directory: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in directory.rglob("*") if file.is_file()}


def test_what_a_trial_needs_is_made_first_and_nothing_twice(
    tmp_path: Path, total: Sum, listener
) -> None:
    run_trials([total, total], monitor=listener)
    assert [line.split("/")[-1] for line in listener.lines] == [
        *("squares-3 (1 of 3)", "squares-4 (2 of 3)", "sum (3 of 3)")
    ]
    assert listener.steps == [(1, 3), (2, 3), (3, 3)]
    assert total.result()["sum"] == 2**2 + 3**2
    made = stamps(tmp_path)
    run_trials([total], monitor=listener)
    assert stamps(tmp_path) == made
    assert len(listener.lines) == 3


def test_a_trial_is_needed_wherever_it_stands(tmp_path: Path, squares: list[Squares]) -> None:
    factors = {str(one.number): Weighted(one, 2) for one in squares}
    made = Product(directory=tmp_path / "product", factors=factors)
    assert list(made.needed) == squares
    run_trials([made])
    assert made.result() == {"product": (4 * 2) * (9 * 2)}
    other = replace(made, factors={**factors, "3": Weighted(squares[0], 3)})
    assert other.key != made.key


def test_what_a_finished_trial_was_made_from_is_not_made_again(total: Sum) -> None:
    run_trials([total])
    (total.parts[0].directory / RECORD).unlink()
    run_trials([total])
    assert not total.parts[0].kept


@pytest.mark.slow
def test_processes_make_the_same_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    named: Any = import_module("test_runner")  # by a name that other processes can import
    parts = [named.Squares(directory=tmp_path / str(n), number=n) for n in (3, 4)]
    total = named.Sum(directory=tmp_path / "sum", parts=tuple(parts))
    run_trials([total], map_fn=partial(map_processes, processes=2))
    assert total.result()["sum"] == 13
    assert total.result()["pid"] != os.getpid()
    assert json.loads((total.directory / RECORD).read_text())["identity"] == total.identity


@pytest.mark.slow
def test_a_killed_trial_goes_on_from_what_it_left(tmp_path: Path) -> None:
    trial = Squares(directory=tmp_path / "killed", number=5, killed_at=3)
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); "
        "from test_runner import Squares; from reproduction.runner import make_trial; "
        "make_trial(Squares(directory=Path(sys.argv[2]), number=5, killed_at=3))"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parent), str(trial.directory)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert len(list((trial.directory / "squares").iterdir())) == 3
    assert not trial.kept
    with pytest.raises(RunError, match="holds no finished trial"):
        trial.result()
    run_trials([trial])
    assert trial.result() == {"resumed_from": 3, "largest": 16}
    assert {file.name for file in trial.directory.iterdir()} == {"squares", RECORD}


def test_a_trial_of_another_description_is_refused(squares: list[Squares], total: Sum) -> None:
    run_trials([total])
    with pytest.raises(RunError, match=r"squares-3 holds a trial .* number = 3, not 5"):
        run_trials([replace(squares[0], number=5)])
    with pytest.raises(RunError, match=r"configuration: corpus\."):  # no word of the texts
        replace(total, corpus=Corpus.from_texts(["two"])).result()
    with pytest.raises(RunError, match=r"configuration: levels\."):
        replace(total, levels=(0.5, 0.1)).result()


@pytest.mark.parametrize(
    "damage",
    [
        lambda trial: (trial.directory / RECORD).write_bytes(b""),
        lambda trial: (trial.directory / RECORD).write_text("[1, 2]"),
        lambda trial: (trial.directory / RECORD).write_text('{"sha256": null}'),
        lambda trial: (trial.directory / RECORD).write_bytes(
            (trial.directory / RECORD).read_bytes().replace(b'"largest": 4', b'"largest": 5')
        ),
        lambda trial: (trial.directory / "squares" / "001").write_text("2"),
        lambda trial: (trial.directory / "squares" / "002").unlink(),
        lambda trial: (trial.directory / "squares" / "003").write_text("9"),
    ],
)
def test_a_damaged_trial_is_told_of_and_made_again(
    squares: list[Squares], damage, listener
) -> None:
    trial = squares[0]
    run_trials([trial])
    damage(trial)
    assert not trial.kept
    run_trials([trial], monitor=listener)
    assert listener.lines[0] == f"{trial.directory} is damaged: its trial is made again"
    assert trial.result() == {"resumed_from": 0, "largest": 4}


def test_files_that_are_no_output_may_come_and_go(squares: list[Squares]) -> None:
    run_trials(squares[:1])
    (squares[0].directory / "log").write_text("seen")
    assert squares[0].kept


def test_equal_descriptions_have_equal_keys_wherever_they_are_kept(
    tmp_path: Path, total: Sum, squares: list[Squares]
) -> None:
    moved = [replace(part, directory=tmp_path / "other" / str(part.number)) for part in squares]
    same = Sum(directory=tmp_path / "else", parts=tuple(moved), corpus=Corpus.from_texts(["one"]))
    assert same == total
    assert same.key == total.key
    keys = {
        total.key,
        replace(total, corpus=Corpus.from_texts(["two"])).key,
        replace(total, parts=tuple(squares[:1])).key,
        replace(total, parts=tuple(reversed(squares))).key,
        replace(total, levels=(0.25,)).key,
        replace(total, levels=tuple(np.linspace(0, 1, 5000).tolist())).key,
        replace(total, levels=tuple(np.linspace(0, 2, 5000).tolist())).key,
    }
    assert len(keys) == 7
    assert len(json.dumps(replace(total, levels=(0.5,) * 5000).identity)) < 2_000


def test_two_trials_do_not_share_a_directory(squares: list[Squares]) -> None:
    with pytest.raises(ValueError, match="directories of their own"):
        run_trials([squares[0], replace(squares[1], directory=squares[0].directory)])


def test_what_has_no_description_decides_no_trial(total: Sum) -> None:
    with pytest.raises(TypeError, match="plain values, got object"):
        run_trials([replace(total, levels=(object(),))])


def test_one_process_at_a_time_makes_a_trial(squares: list[Squares]) -> None:
    holder = (
        "import sys; from pathlib import Path; from vestige.data.writing import alone\n"
        "with alone(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    directory = squares[0].directory
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match="is in use by process"):
            run_trials(squares[:1])
        other.communicate()
    run_trials(squares[:1])
    with alone(directory):
        assert squares[0].kept
