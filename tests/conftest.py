"""Settings of all tests: Hypothesis, the order of files, parts of the suite, and required peers.

Hypothesis has no deadlines, and its examples are the same in every run unless
VESTIGE_EXAMPLES=random. VESTIGE_PART=3/8 runs every eighth file, from the fourth on.
VESTIGE_REQUIRE=peers makes a test marked `peer` fail instead of skip.
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
"""Files that share fixtures which take long to make."""
LONGEST = (
    "tests/contract", "tests/fuzz", "tests/reproduction/updates", "tests/privacy/test_accounting",
    "tests/integrations",
)  # fmt: skip
"""The slowest files, which start first."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Run each file, and the files of a world, in one process; start the slowest files first."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByWorld(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(WORLDS):
                return nodeid.partition("::")[0].rpartition("/")[0]
            return super()._split_scope(nodeid)

        def _assign_work_unit(self, node: object) -> None:
            slow = next((scope for scope in self.workqueue if scope.startswith(LONGEST)), None)
            if slow is not None:
                self.workqueue.move_to_end(slow, last=False)
            super()._assign_work_unit(node)

    return ByWorld(config, log)


@pytest.hookimpl(trylast=True)  # after tests were deselected by their markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the files of one part."""
    if not (part := os.environ.get("VESTIGE_PART")):
        return
    number, parts = (int(word) for word in part.split("/"))
    files = sorted({str(item.path) for item in items})
    selected = set(files[number % parts :: parts])
    others = [item for item in items if str(item.path) not in selected]
    items[:] = [item for item in items if str(item.path) in selected]
    config.hook.pytest_deselected(items=others)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Turn the skip of a required peer into a failure."""
    report = yield
    required = os.environ.get("VESTIGE_REQUIRE") == "peers"
    if required and report.skipped and item.get_closest_marker("peer") is not None:
        report.outcome = "failed"
        report.longrepr = f"skipped where VESTIGE_REQUIRE=peers: {report.longrepr[2]}"
    return report


@pytest.fixture(scope="session")
def peer() -> Callable[[str, str], ModuleType]:
    """Loads one file of another package without importing the package and its dependencies."""

    def load(package: str, file: str) -> ModuleType:
        found = importlib.util.find_spec(package)
        path = Path(found.origin).parent / file if found is not None and found.origin else None
        if path is None or not path.is_file():
            pytest.skip(f"{package} of the version in tests/peers.txt is not installed: make peers")
        spec = importlib.util.spec_from_file_location(f"{package}_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with patch.dict(sys.modules, {spec.name: module}):  # dataclasses look up their module
            spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a Ray cluster: one node with two cores and a pretended GPU."""
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
