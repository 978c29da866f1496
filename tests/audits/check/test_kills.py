"""A check that is killed anywhere resumes to the same verdict, numbers and rows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audits.check.conftest import SECRET, with_number
from vestige import results

KILLED = """
import json, os, signal, sys, time
started = time.time()
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import torch
import pyarrow.parquet

from vestige import results
from vestige.audits.check import check, control, files, passages, secrets, unprompted, work
from vestige.attacks.texts import text_models
from vestige.cli import app
from vestige.data import atomic_write
from vestige.store import Store

work.LARGEST_SEARCH = work.LEAST_SEARCH = 1 / 64
work.MOST_SECRETS, work.EFFORTS, work.MOST_TEXTS = 4, ((8, 1, 8),), 24
control.STEPS = 40, 5
words = json.loads(sys.argv[1])
places = {
    "written": (Store, "__setitem__"),
    "identity": (Store, "identify"),
    "training": (control, "_knows"),
    "planted": (control, "_moved"),
    "folder": (check.shutil, "rmtree"),
    "rows": (pyarrow.parquet, "write_table"),
    "pages": (files, "facts"),
    "file": (atomic_write.os, "replace"),
    "done": (Store, "clear"),
}
for name in ("secrets", "unprompted", "passages"):
    places[name] = work.Work, f"_{name}"

def dying(call, count):
    def inner(*given, **named):
        nonlocal count
        count -= 1
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*given, **named)
    return inner

def noted(call, keys):
    def inner(store, key, value):
        call(store, key, value)
        print(f"{store.path.parent.name} {store._prefix.decode()}{key}", file=keys, flush=True)
    return inner

def ended(out, place):
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    Store.__setitem__ = noted(Store.__setitem__, open(out + ".keys", "a"))
    name, _, count = place.partition(":")
    if name:
        where, what = places[name]
        setattr(where, what, dying(getattr(where, what), int(count)))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(out + ".log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), 2)
    try:
        code = app.run([*words, "--out", out])
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        code = 70
    Path(out + ".modules").write_text("\\n".join(sys.modules))
    os._exit(code)

codes = {"": ended("undisturbed", "")}
for name in Path("undisturbed.modules").read_text().splitlines():
    with suppress(Exception):  # a name that only its maker can import
        import_module(name)
for place in sys.argv[2:]:
    out = place.replace(":", "-")
    first = ended(out, place)
    codes[place] = [first, Path(out).exists(), ended(out, "")]
    print(place, time.time() - started, file=sys.stderr)
print(json.dumps(codes))
"""
"""The control trains for a few steps only: whether it succeeds does not matter here."""

PLACES = (
    *("identity:1", "written:2", "written:6", "written:14", "secrets:1", "unprompted:1"),
    *("passages:1", "training:3", "planted:1", "folder:1", "rows:1", "pages:1", "file:4", "done:1"),
)
"""What is called the nth time when the process is killed."""


@pytest.fixture(scope="module")
def killed(world, clean, tmp_path_factory):
    """The folder of all runs, and the exit codes by place."""
    root = tmp_path_factory.mktemp("killed")
    texts = [with_number(one, SECRET) if n < 2 else one for n, one in enumerate(world.letters[:60])]
    trained, listed = world.file("killed", texts), root / "secrets.txt"
    listed.write_text("the account number is {{4471 9026 3358}}\n")
    words = ["check", clean[0], "--base", world.base, "--trained-on", trained, "--never",
             world.never, "--secrets", listed, "--minutes", 600, "--all", "--device", "cpu"]  # fmt: skip
    command = [sys.executable, "-c", KILLED, json.dumps([*map(str, words)]), *PLACES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stderr
    print(done.stderr)
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


@pytest.mark.parametrize("place", PLACES)
def test_a_killed_check_resumes_to_the_same_result(killed, place):
    root, codes = killed
    out = root / place.replace(":", "-")
    first, there, code = codes[place]
    assert first == -9
    assert code == (2 if there else codes[""]), Path(f"{out}.log").read_text()
    assert outcome(out) == outcome(root / "undisturbed")
    left = {path.name for path in root.iterdir() if path.name.startswith((out.name, f".{out.name}"))}
    assert left == {f"{out.name}{end}" for end in ("", ".keys", ".log", ".modules")}


def test_finished_work_is_not_repeated(killed):
    root, _ = killed
    for place in PLACES:
        keys = (root / f"{place.replace(':', '-')}.keys").read_text().splitlines()
        own = [key for key in keys if ".partial secret/" in key or ".partial stage/" in key]
        assert sorted(own) == sorted(set(own)), place
