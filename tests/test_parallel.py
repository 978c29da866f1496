"""Maps over processes and over a Ray cluster: order, errors, and killed workers."""

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
    """Mark a slow test that ignores Ray's warnings."""
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
def test_a_cluster_gives_results_in_order_and_receives_them_as_they_arrive(address):
    def sleepy(item):  # sent by value: a node cannot import this file
        time.sleep(item)
        return item, os.environ["OMP_NUM_THREADS"]

    received, progress = [], []

    def receive(item, result):
        received.append(item)
        return (item, *result)

    results = map_cluster(
        sleepy, [0.8, 0.1, 0.2], address=address, receive=receive,
        progress=lambda *counts: progress.append(counts),
    )  # fmt: skip
    assert list(results) == [(0.8, 0.8, "1"), (0.1, 0.1, "1"), (0.2, 0.2, "1")]
    assert sorted(received) == [0.1, 0.2, 0.8]
    assert progress == [(1, 3), (2, 3), (3, 3)]


@on_a_cluster
def test_an_error_of_the_function_is_raised_without_retry(address, tmp_path):
    def refuse(path):
        with Path(path).open("a") as file:
            file.write("called ")
        raise DataError("it cannot be used", remedy="Give another one.")

    with pytest.raises(DataError, match=r"it cannot be used\. Give another one\."):
        list(map_cluster(refuse, [str(tmp_path / "log")], address=address))
    assert (tmp_path / "log").read_text() == "called "


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


def pages_or_error(item):
    """Whether the process keeps freed pages, or an error."""
    if item != "pages":
        raise DataError(f"item {item} cannot be used", remedy="Give another one.")
    return not sys.platform.startswith("linux") or keeps_freed_pages()


def keeps_freed_pages():
    """Whether a large block still belongs to this process after it was freed."""
    import numpy as np

    before = _resident()
    block = np.ones(2**25, dtype=np.uint8)
    size = _resident() - before
    del block
    return (_resident() - before) > size / 2


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_a_process_keeps_freed_memory_and_its_errors_keep_their_remedy():
    """One process does both, since starting one takes seconds."""
    results = map_processes(pages_or_error, ["pages", 7], processes=1)
    assert next(results) is True
    with pytest.raises(DataError, match=r"item 7 cannot be used\. Give another one\."):
        next(results)


@on_a_cluster
def test_bound_objects_are_sent_once_and_calls_get_their_gpus(address, tmp_path):
    log = tmp_path / "log"

    class Model:
        def __setstate__(self, state):  # called when it is unpickled
            with log.open("a") as file:
                file.write(f"{os.getpid()} ")

    model = Model()
    model.weight = 1

    def pid_and_gpus(model, item):
        import ray

        return os.getpid(), ray.get_runtime_context().get_assigned_resources().get("GPU", 0)

    for gpus in (0, 1):
        log.unlink(missing_ok=True)
        call = partial(pid_and_gpus, model)
        results = list(map_cluster(call, range(6), address=address, gpus=gpus))
        assert sorted(log.read_text().split()) == sorted({str(pid) for pid, _ in results})
        assert {count for _, count in results} == {gpus}
