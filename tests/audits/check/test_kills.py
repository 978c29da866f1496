"""A check that is killed at many places in turn ends in the same verdict, numbers and rows."""

import json
import subprocess
import sys

import pytest

from tests.audits.check.conftest import SECRET, with_number
from vestige import results

pytestmark = pytest.mark.slow

KILLED = """
import json, os, signal, sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pyarrow.parquet

from vestige.audits.check import check, control, passages, report, secrets, work
from vestige.cli import app
from vestige.data import writing
from vestige.store import Store

work.LARGEST_SEARCH = work.LEAST_SEARCH = 1 / 64
work.MOST_SECRETS = passages.MOST_SECRETS = 4
secrets.EFFORTS = ((8, 1, 8),)
passages.MOST_TEXTS = passages.LEAST_TEXTS = 24
words = json.loads(sys.argv[1])
calls = {
    "control": (control, "_is_sure"),
    "planted": (control, "_replaced"),
    "folder": (check.shutil, "rmtree"),
    "rows": (pyarrow.parquet, "write_table"),
    "page": (report, "facts"),
    "file": (writing.os, "replace"),
    "done": (Store, "clear"),
}

def dying(call, count):
    def inner(*given, **named):
        nonlocal count
        count -= 1
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*given, **named)
    return inner

def writing(call, place, log):
    def inner(store, key, value):
        name = f"{store.path.parent.name}/{store._prefix.decode()}{key}"
        if place.startswith("=") and place[1:] in name:
            os.kill(os.getpid(), signal.SIGKILL)
        call(store, key, value)
        print(name, file=log, flush=True)
    return inner

def ended(out, place):
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    Store.__setitem__ = writing(Store.__setitem__, place, open(out + ".keys", "a"))
    name, _, count = place.partition(":")
    if name in calls:
        where, what = calls[name]
        setattr(where, what, dying(getattr(where, what), int(count)))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(out + ".log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), 2)
    code = 70
    try:
        code = app.run([*words, "--out", out])
        Path("modules").write_text("\\\\n".join(sys.modules))
    finally:
        os._exit(code)

codes = [ended("undisturbed", "")]
for name in Path("modules").read_text().splitlines():
    with suppress(Exception):  # a name that only its maker can import
        import_module(name)
codes += [ended("killed", place) for place in [*sys.argv[2:], "", ""]]
print(json.dumps(codes))
"""

PLACES = (
    *("=secret/control/1", "=stage/secrets", "=update/pairs/all", "=stage/unprompted"),
    *("=verb/membership", "control:3", "=control.partial/update/pairs/all"),
    *("=/positive", "rows:1", "file:6", "done:1"),
)  # fmt: skip
"""Before a value is written (=), or when something is called the nth time."""


RUNS = ("killed", "undisturbed")
OWN = ("/secret/", "/verb/", "/stage/")


@pytest.fixture(scope="module")
def killed(world, clean, tmp_path_factory):
    """The folder of both runs, and the exit codes."""
    root = tmp_path_factory.mktemp("killed")
    texts = [with_number(one, SECRET) if n < 2 else one for n, one in enumerate(world.letters[:60])]
    trained, listed = world.file("killed", texts), root / "secrets.txt"
    listed.write_text("the account number is {{4471 9026 3358}}\n")
    # fmt: off
    words = ["check", clean[0], "--base", world.base, "--trained-on", trained, "--never",
             world.never, "--secrets", listed, "--minutes", 600, "--all", "--device", "cpu"]
    # fmt: on
    command = [sys.executable, "-c", KILLED, json.dumps([*map(str, words)]), *PLACES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
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
        wanted = {"run.json", "summary.json", "rows.parquet", "page.html", "card.md", "check.json"}
        assert files == {*wanted, "junit.xml"}


def test_finished_work_is_not_repeated(killed):
    written = []
    for one in RUNS:
        keys = (killed[0] / f"{one}.keys").read_text().replace(f"{one}.partial", "").splitlines()
        written.append(sorted(key for key in keys if key.startswith(OWN)))
    assert written[0] == written[1]
