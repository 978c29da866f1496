"""Maps over processes and over a Ray cluster: order, errors, and workers that die."""

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from vestige import parallel
from vestige.errors import ClusterError, DataError
from vestige.parallel import map_cluster, map_processes


def on_a_cluster(test):
    """A slow test that hears whatever Ray says of itself."""
    return pytest.mark.slow(pytest.mark.filterwarnings("ignore")(test))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: map_processes(abs, [1], processes=0), "processes must be at least 1"),
        (lambda: map_cluster(abs, [1], address="auto", retries=-1), "retries must be at least 0"),
    ],
)
def test_invalid_numbers_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        list(call())


def test_a_missing_cluster_fails_immediately():
    pytest.importorskip("ray", reason="needs Ray: pip install vestige[cluster]")
    began = time.perf_counter()
    with pytest.raises(ClusterError, match=r"no Ray cluster answers at '127\.0\.0\.1:9'"):
        list(map_cluster(abs, [1], address="127.0.0.1:9"))
    assert time.perf_counter() - began < 2 * parallel.PATIENCE


def test_missing_ray_has_an_installation_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"pip install \"vestige\[cluster\]\""):
        list(map_cluster(abs, [1], address="auto"))


@on_a_cluster
def test_a_connected_program_gets_an_error_for_another_missing_cluster(address):
    with pytest.raises(ClusterError, match=r"no Ray cluster answers at '127\.0\.0\.1:9'"):
        list(map_cluster(abs, [1], address="127.0.0.1:9"))


@on_a_cluster
def test_a_cluster_gives_results_in_order_and_receives_them_as_they_arrive(address, tmp_path):
    def sleepy(item):  # sent by value: a node cannot import this file
        time.sleep(item)
        return item, os.environ["OMP_NUM_THREADS"]

    received, told = [], []

    def receive(item, result):
        received.append(item)
        return (item, *result)

    found = list(
        map_cluster(
            sleepy,
            [0.8, 0.1, 0.2],
            address=address,
            receive=receive,
            progress=lambda *counts: told.append(counts),
        )
    )
    assert found == [(0.8, 0.8, "1"), (0.1, 0.1, "1"), (0.2, 0.2, "1")]
    assert sorted(received) == [0.1, 0.2, 0.8]
    assert told == [(1, 3), (2, 3), (3, 3)]


@on_a_cluster
def test_an_error_of_the_function_is_raised_without_retry(address, tmp_path):
    def refuse(path):
        with Path(path).open("a") as file:
            file.write("asked ")
        raise DataError("it cannot be used", remedy="Give another one.")

    with pytest.raises(DataError, match=r"it cannot be used\. Give another one\."):
        list(map_cluster(refuse, [str(tmp_path / "log")], address=address))
    assert (tmp_path / "log").read_text() == "asked "


@on_a_cluster
def test_a_call_is_retried_after_its_worker_died(address, tmp_path):
    def dies_until(item):
        path, last = item
        with Path(path).open("a") as file:
            file.write("x")
        if Path(path).stat().st_size < last:
            os.kill(os.getpid(), signal.SIGKILL)
        return Path(path).stat().st_size

    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    assert list(map_cluster(dies_until, [(first, 2)], address=address, retries=1)) == [2]
    with pytest.raises(ClusterError, match="lost its worker 2 times"):
        list(map_cluster(dies_until, [(second, 9)], address=address, retries=1))
    assert Path(second).read_text() == "xx"


def ask(item):
    """Whether the process keeps freed pages, or an error."""
    if item != "pages":
        raise DataError(f"item {item} cannot be used", remedy="Give another one.")
    return not sys.platform.startswith("linux") or keeps_freed_pages()


def keeps_freed_pages():
    """Whether a large block that was freed is still this process's own."""
    import numpy as np

    before = _resident()
    block = np.ones(2**25, dtype=np.uint8)
    held = _resident() - before
    del block
    return (_resident() - before) > held / 2


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_a_process_keeps_freed_memory_and_its_errors_keep_their_remedy():
    """glibc is asked on Linux alone; one process does both, since starting one takes seconds."""
    answers = map_processes(ask, ["pages", 7], processes=1)
    assert next(answers) is True
    with pytest.raises(DataError, match=r"item 7 cannot be used\. Give another one\."):
        next(answers)


@on_a_cluster
def test_bound_objects_are_sent_once_and_calls_get_their_gpus(address, tmp_path):
    log = tmp_path / "log"

    class Model:
        def __setstate__(self, state):  # called where it is unpacked
            with log.open("a") as file:
                file.write(f"{os.getpid()} ")

    model = Model()
    model.weight = 1

    def ask(model, item):
        import ray

        return os.getpid(), ray.get_runtime_context().get_assigned_resources().get("GPU", 0)

    for gpus in (0, 1):
        log.unlink(missing_ok=True)
        found = list(map_cluster(partial(ask, model), range(6), address=address, gpus=gpus))
        assert sorted(log.read_text().split()) == sorted({str(pid) for pid, _ in found})
        assert {count for _, count in found} == {gpus}
