"""Stages are computed once, after the stages that they need, completely or not at all."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reproduction.stages import STORE, Call, Finished, Work, stage
from tests.damage import damage_store
from vestige.data.corpus import Corpus
from vestige.parallel import map_processes

ONE = Corpus.from_texts(["one"])


@dataclass(frozen=True)
class Weighted:
    weight: int
    path: Path = field(default=Path(), compare=False)


@stage(outputs=("squares",))
def squares(number: int, killed_at: int | None = None, *, folder: Path) -> dict[str, int]:
    """Write the squares below a number into one file each; the first call may be killed."""
    (folder / "squares").mkdir(exist_ok=True)
    existing = len(list((folder / "squares").iterdir()))
    for i in range(existing, number):
        if i == killed_at and existing == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        (folder / "squares" / f"{i:03}").write_text(str(i * i))
    return {"resumed_from": existing, "largest": (number - 1) ** 2}


@stage()
def total(
    parts: list[Finished] | dict[str, Finished],
    levels: tuple[float, ...] = (0.5,),
    corpus: Corpus = ONE,
    weighted: Weighted = Weighted(1),
    *,
    work: Work,
) -> dict[str, Any]:
    """The sum of the largest squares, and the process that computed it."""
    finished = parts.values() if isinstance(parts, dict) else parts
    largest = sum(part.value["largest"] for part in finished)
    return {"sum": largest, "pid": os.getpid(), "out": str(work.out)}


@stage(version=2)
def arrays(size: int) -> dict[str, np.ndarray]:
    return {"numbers": np.arange(size), "halves": np.arange(size) / 2}


@pytest.fixture
def work(tmp_path: Path, listener) -> Work:
    return Work(tmp_path, monitor=listener)


@pytest.fixture
def parts() -> list[Call]:
    return [squares(3), squares(4)]


def stamps(directory: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in directory.rglob("*") if file.is_file()}


def test_needed_calls_are_computed_first_and_once(work, parts, listener) -> None:
    calls = [total(parts), total({str(n): part for n, part in enumerate(parts)})]
    first, second = work.all([*calls, calls[0]])[:2]
    lines = [line.split("-")[0] for line in listener.lines]
    assert lines == ["finished squares"] * 2 + ["finished total"] * 2
    assert listener.steps == [(n, 4) for n in range(1, 5)]
    assert first.value["sum"] == second.value["sum"] == 2**2 + 3**2
    assert first.value["out"] == str(work.out)
    before = stamps(work.out)
    assert work(total(parts)).value == first.value
    assert stamps(work.out) == before
    assert len(listener.lines) == 4


def test_the_needs_of_a_finished_call_are_not_computed_again(work, parts) -> None:
    done = work(total(parts))
    (work.out / "stages" / parts[0].key / "squares" / "001").unlink()
    assert work(total(parts)).value == done.value
    assert not work.is_intact(parts[0])


def test_arrays_keep_their_types(work) -> None:
    for _ in range(2):
        value = work(arrays(4)).value
        assert value["numbers"].tolist() == [0, 1, 2, 3]
        assert value["halves"].dtype == np.float64


@pytest.mark.slow
def test_processes_compute_the_same_as_one(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    module: Any = import_module("test_stages")  # a name that other processes can import
    work = Work(tmp_path, map_fn=partial(map_processes, processes=2))
    value = work(module.total([module.squares(3), module.squares(4)])).value
    assert value["sum"] == 13
    assert value["pid"] != os.getpid()
    assert work(module.arrays(3)).value["numbers"].tolist() == [0, 1, 2]


@pytest.mark.slow
def test_a_killed_stage_resumes_from_its_files(work) -> None:
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); "
        "import test_stages; from reproduction.stages import Work; "
        "Work(Path(sys.argv[2]))(test_stages.squares(5, killed_at=3))"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parent), str(work.out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    killed = subprocess.run(command, check=False, env=environment)
    assert killed.returncode == -signal.SIGKILL
    (folder,) = (work.out / "stages").iterdir()
    assert len(list((folder / "squares").iterdir())) == 3
    call = squares(5, killed_at=3)
    assert folder.name == call.key
    assert not work.is_intact(call)
    assert work(call).value == {"resumed_from": 3, "largest": 16}
    assert work.is_intact(call)


@pytest.mark.parametrize(("name", "content"), [("001", "2"), ("002", None), ("003", "9")])
def test_damaged_files_are_logged_and_computed_again(work, listener, name, content) -> None:
    call = squares(3)
    file = work(call).folder / "squares" / name
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    assert not work.is_intact(call)
    assert work(call).value == {"resumed_from": 0, "largest": 4}
    assert f"{call.key} is damaged and computed again" in listener.lines
    assert work.is_intact(call)


def test_damaged_results_are_computed_again(work) -> None:
    call = arrays(3)
    work(call)
    work.close()
    damage_store(work.out / STORE)
    assert not work.is_intact(call)
    assert work(call).value["numbers"].tolist() == [0, 1, 2]


def test_files_that_are_not_outputs_may_change(work) -> None:
    done = work(squares(3))
    (done.folder / "log").write_text("seen")
    assert work.is_intact(squares(3))


def test_calls_have_equal_keys_exactly_if_their_arguments_are_equal(parts, tmp_path) -> None:
    corpus = Corpus.from_texts(["one"])
    assert total(parts).key == total(list(parts), corpus=corpus, weighted=Weighted(1, tmp_path)).key
    calls = [
        total(parts),
        total(parts[:1]),
        total(parts[::-1]),
        total({"a": parts[0], "b": parts[1]}),
        total(parts, levels=(0.25,)),
        total(parts, levels=tuple(np.linspace(0, 1, 5000).tolist())),
        total(parts, levels=tuple(np.linspace(0, 2, 5000).tolist())),
        total(parts, corpus=Corpus.from_texts(["two"])),
        total(parts, weighted=Weighted(2)),
    ]
    assert len({call.key for call in calls}) == len(calls)
    assert stage(version=3)(arrays.function)(3).key != arrays(3).key


def test_arguments_that_have_no_key_are_refused(parts) -> None:
    with pytest.raises(TypeError, match="plain values, got object"):
        _ = total(parts, levels=(object(),)).key
    with pytest.raises(TypeError, match="too many"):
        squares(3, None, 4)
    with pytest.raises(TypeError, match="folder"):
        squares(3, folder=Path())


def test_a_failing_stage_leaves_no_result(work) -> None:
    with pytest.raises(TypeError):
        work(squares("three"))  # type: ignore[arg-type]
    assert not (work.out / STORE).exists()
