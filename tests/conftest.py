"""No deadlines, and tests that need other programs fail instead of skipping where those must be.

How long a single example takes says how busy the machine is. A test marked `peer` skips where the
program that it compares with is not installed; `VESTIGE_REQUIRE=peers` makes such a skip a failure.
Files are shared out among processes, those that share something costly together, the longest
first. Examples that Hypothesis draws are the same in every run, but for `make test ORDER=random`.
VESTIGE_PART=3/8 runs every eighth file only, from the fourth on: eight such runs are a whole one.
"""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest
from hypothesis import settings

RANDOM = os.environ.get("VESTIGE_EXAMPLES") == "random"
settings.register_profile("vestige", deadline=None, derandomize=not RANDOM)
settings.load_profile("vestige")


WORLDS = ("tests/fuzz/", "tests/contract/test_runs", "tests/contract/test_fields")
"""Beginnings of files that share a world which takes long to make."""
LONGEST = (
    "tests/contract", "tests/fuzz", "tests/reproduction/updates", "tests/privacy/test_accounting",
    "tests/integrations",
)  # fmt: skip
"""Beginnings of scopes that take longest: begun last, one of them would run alone at the end."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """A file goes to one process, files of one world to the same, and the longest go first."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByWorld(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(WORLDS):
                return nodeid.partition("::")[0].rpartition("/")[0]
            return super()._split_scope(nodeid)

        def _assign_work_unit(self, node: object) -> None:
            long = next((scope for scope in self.workqueue if scope.startswith(LONGEST)), None)
            if long is not None:
                self.workqueue.move_to_end(long, last=False)
            super()._assign_work_unit(node)

    return ByWorld(config, log)


@pytest.hookimpl(trylast=True)  # of the files that the markers leave
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the files of one part."""
    if not (part := os.environ.get("VESTIGE_PART")):
        return
    number, parts = (int(word) for word in part.split("/"))
    files = sorted({str(item.path) for item in items})
    kept = set(files[number % parts :: parts])
    others = [item for item in items if str(item.path) not in kept]
    items[:] = [item for item in items if str(item.path) in kept]
    config.hook.pytest_deselected(items=others)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A required peer's skip is a failure, whatever it skipped by."""
    report = yield
    required = os.environ.get("VESTIGE_REQUIRE") == "peers"
    if required and report.skipped and item.get_closest_marker("peer") is not None:
        report.outcome = "failed"
        report.longrepr = f"skipped where VESTIGE_REQUIRE=peers: {report.longrepr[2]}"
    return report


@pytest.fixture(scope="session")
def peer() -> Callable[[str, str], ModuleType]:
    """Loads one file of another package without importing the package, which may need much."""

    def load(package: str, file: str) -> ModuleType:
        found = importlib.util.find_spec(package)
        path = Path(found.origin).parent / file if found is not None and found.origin else None
        if path is None or not path.is_file():
            pytest.skip(f"{package} of the version in tests/peers.txt is not installed: make peers")
        spec = importlib.util.spec_from_file_location(f"{package}_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with patch.dict(sys.modules, {spec.name: module}):  # where dataclasses look themselves up
            spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """One node with two cores and what it takes for a GPU, its workers not yet started."""
    pytest.importorskip("ray", reason="needs Ray: pip install vestige[cluster]")
    settings = pytest.MonkeyPatch()
    settings.setenv("RAY_USAGE_STATS_ENABLED", "0")
    settings.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    settings.setenv("RAY_worker_niceness", "0")
    import ray
    from ray.cluster_utils import Cluster

    node = {
        "num_cpus": 2,
        "num_gpus": 1,
        "include_dashboard": False,
        "object_store_memory": 100 * 2**20,
    }
    cluster = Cluster(initialize_head=True, head_node_args=node)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    yield cluster.address
    ray.shutdown()
    cluster.shutdown()
    settings.undo()
