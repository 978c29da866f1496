"""A check that is killed at many places in turn ends in the same verdict, numbers and rows."""

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
PLACES = (
    *("=secret/control/1", "=stage/secrets", "=update/pairs/all", "=stage/unprompted"),
    *("=verb/membership", "control:3", "=control.partial/update/pairs/all"),
    *("=/positive", "rows:1", "file:6", "done:1"),
)  # fmt: skip


@pytest.fixture(scope="module")
def killed(world, clean, tmp_path_factory):
    """The folder of both runs, and the exit codes."""
    root = tmp_path_factory.mktemp("killed")
    texts = [with_number(one, SECRET) for one in world.letters[:2]] + world.letters[2:60]
    trained, listed = world.file("killed", texts), root / "secrets.txt"
    listed.write_text("the account number is {{4471 9026 3358}}\n")
    words = [
        "check", clean[0], "--base", world.base, "--trained-on", trained, "--never", world.never,
        "--secrets", listed, "--minutes", 600, "--all", "--device", "cpu",
    ]  # fmt: skip
    script = Path(__file__).with_name("killed.py")
    command = [sys.executable, script, json.dumps([*map(str, words)]), *PLACES]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=root, env=environment()
    )
    assert done.returncode == 0, done.stderr
    return root, json.loads(done.stdout)


def outcome(folder):
    """Summary and rows without times."""
    run = results.load(folder)
    return timeless(run.summary), run.rows


def timeless(value):
    if isinstance(value, list):
        return [timeless(one) for one in value]
    if isinstance(value, dict):
        return {key: timeless(one) for key, one in value.items() if key != "seconds"}
    return value


def test_a_check_that_is_killed_ends_as_if_it_had_not_been(killed):
    root, codes = killed
    log = (root / "killed.log").read_text()
    assert codes[1:-2] == [-9] * len(PLACES), log
    # The last kill hit a finished check, which is not overwritten.
    assert codes[-2:] == [2, 2], log
    assert codes[0] in (0, 1, 3)
    assert outcome(root / "killed") == outcome(root / "undisturbed")
    assert outcome(root / "killed")[0]["positive"]["secrets"]


def test_a_killed_check_leaves_nothing_over(killed):
    root, _ = killed
    names = {path.name for path in root.iterdir()} - {"modules", "secrets.txt"}
    assert names == {one + end for one in RUNS for end in ("", ".keys", ".log")}
    for one in RUNS:
        files = {path.name for path in (root / one).iterdir()}
        public = {"page.html", "card.md", "check.json", "junit.xml"}
        assert files == {"run.json", "summary.json", "rows.parquet", *public}


def test_finished_work_is_not_repeated(killed):
    root, written = killed[0], []
    for one in RUNS:
        keys = (root / f"{one}.keys").read_text().replace(f"{one}.partial", "").splitlines()
        own = ("/secret/", "/verb/", "/stage/")
        written.append(sorted(key for key in keys if key.startswith(own)))
    assert written[0] == written[1]
