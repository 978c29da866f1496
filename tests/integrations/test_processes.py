"""Two processes train and measure like one."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import vestige
from tests.docs.documents import REPOSITORY
from tests.integrations import processes
from tests.integrations.worlds import DATA
from vestige.integrations.planting import plant

pytestmark = pytest.mark.slow


def in_two(work, out):
    """Do the work in two processes, which write into a folder."""
    out.mkdir()
    paths = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, processes.__file__, work, str(out)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def written(out, name="{}.json", *, count=2):
    return [json.loads((out / name.format(rank)).read_text()) for rank in range(count)]


def test_two_processes_measure_the_same_as_one(tmp_path):
    data = plant(DATA, out=tmp_path / "canaries", coin_flip=16, copies=20, length=4)
    data.save_to_disk(str(tmp_path / "data"))
    processes.leakage(tmp_path / "1")
    in_two("leakage", tmp_path / "2")
    snapshots = {}
    for count in (1, 2):
        out = tmp_path / str(count)
        results = written(out, "{}/measured.json", count=count)
        snapshots[count] = results[0][0]
        assert all(measured == snapshots[count] for measured, _ in results)
        assert [len(logged) for _, logged in results] == [3] + [0] * (count - 1)
        saved = vestige.results.load(out / "run" / "exposure").summary["exposure_planted"]
        assert saved == snapshots[count][-1][1]
    assert [step for step, _ in snapshots[2]] == [0, 4, 8]
    for (_, one), (_, other) in zip(snapshots[1], snapshots[2], strict=True):
        assert one == pytest.approx(other, abs=0.2)


@pytest.mark.parametrize("work", ["private_adapter", "private_whole"])
def test_two_processes_train_privately_like_one(tmp_path, work):
    """They have parts of the same lots, and add the noise once."""
    (tmp_path / "1").mkdir()
    processes.WORK[work](tmp_path / "1")
    in_two(work, tmp_path / "2")
    [alone], [first, second] = written(tmp_path / "1", count=1), written(tmp_path / "2")
    assert first["weights"] == second["weights"]
    assert first["gradients"] == second["gradients"]
    np.testing.assert_allclose(first["weights"], alone["weights"], rtol=0, atol=1e-5)
    # Rounding errors accumulate, so only gradients and norms of the first step are compared.
    np.testing.assert_allclose(first["gradients"][0], alone["gradients"][0], rtol=0, atol=1e-6)
    norms = sorted(first["norms"][0] + second["norms"][0])
    np.testing.assert_allclose(norms, sorted(alone["norms"][0]), rtol=1e-6)
    assert min(map(len, (first["norms"][0], second["norms"][0]))) > 0
    if work == "private_whole":
        assert max(norms) > 0.5  # some are clipped


def test_a_process_without_rows_takes_part_in_all_sums(tmp_path):
    in_two("private_few", tmp_path / "2")
    first, second = written(tmp_path / "2")
    assert first["weights"] == second["weights"]
    counts = list(zip(first["counts"], second["counts"], strict=True))
    assert any(0 in pair and sum(pair) for pair in counts)
