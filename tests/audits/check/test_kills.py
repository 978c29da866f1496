"""A check that is killed at many moments ends with the same verdict, numbers and rows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audits.check.conftest import SECRET, with_number
from tests.killing import environment
from vestige import results

pytestmark = pytest.mark.slow

RUNS = ("killed", "undisturbed")
MOMENTS = (
    *("=secret/control/1", "=stage/secrets", "=update/pairs/all", "=stage/unprompted"),
    *("=verb/membership", "control:3", "=control.partial/update/pairs/all"),
    *("=/positive", "rows:1", "file:6", "done:1"),
)  # fmt: skip


@pytest.fixture(scope="module")
def killed(world, clean, tmp_path_factory):
    """The folder of both runs, and the exit codes."""
    root = tmp_path_factory.mktemp("killed")
    texts = [with_number(text, SECRET) for text in world.letters[:2]] + world.letters[2:60]
    trained, listed = world.file("killed", texts), root / "secrets.txt"
    listed.write_text("the account number is {{4471 9026 3358}}\n")
    arguments = [
        "check", clean[0], "--base", world.base, "--trained-on", trained, "--never", world.never,
        "--secrets", listed, "--minutes", 600, "--all", "--device", "cpu",
    ]  # fmt: skip
    script = Path(__file__).with_name("killed.py")
    command = [sys.executable, script, json.dumps([*map(str, arguments)]), *MOMENTS]
    completed = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=root, env=environment()
    )
    assert completed.returncode == 0, completed.stderr
    return root, json.loads(completed.stdout)


def outcome(folder):
    """Summary and rows without times."""
    run = results.load(folder)
    return timeless(run.summary), run.rows


def timeless(value):
    if isinstance(value, list):
        return [timeless(item) for item in value]
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key != "seconds"}
    return value


def test_a_killed_check_has_the_result_of_an_undisturbed_one(killed):
    root, codes = killed
    log = (root / "killed.log").read_text()
    assert codes[1:-2] == [-9] * len(MOMENTS), log
    # The last two runs find a finished check and do not overwrite it.
    assert codes[-2:] == [2, 2], log
    assert codes[0] in (0, 1, 3)
    assert outcome(root / "killed") == outcome(root / "undisturbed")
    assert outcome(root / "killed")[0]["positive"]["secrets"]


def test_a_killed_check_leaves_no_other_files(killed):
    root, _ = killed
    names = {path.name for path in root.iterdir()} - {"modules", "secrets.txt"}
    assert names == {run + end for run in RUNS for end in ("", ".keys", ".log")}
    for run in RUNS:
        files = {path.name for path in (root / run).iterdir()}
        public = {"page.html", "card.md", "check.json", "junit.xml"}
        assert files == {"run.json", "summary.json", "rows.parquet", *public}


def test_finished_work_is_not_repeated(killed):
    root, written = killed[0], []
    for run in RUNS:
        keys = (root / f"{run}.keys").read_text().replace(f"{run}.partial", "").splitlines()
        prefixes = ("/secret/", "/verb/", "/stage/")
        written.append(sorted(key for key in keys if key.startswith(prefixes)))
    assert written[0] == written[1]
