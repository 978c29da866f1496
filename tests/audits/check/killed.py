"""Runs a check undisturbed, then again and again, each time killed at another place.

Arguments: the words of the command as JSON, and the places: "=KEY" is before a value of the store
is written, "NAME:N" is the Nth call of a function. Prints the exit codes as JSON.
"""

import json
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pyarrow.parquet

from tests.killing import kill_at
from vestige.audits.check import check, control, passages, report, secrets, work
from vestige.cli import app
from vestige.data import writing
from vestige.store import Store

CALLS = {
    "control": (control, "_is_sure"),
    "planted": (control, "_replaced"),
    "folder": (check.shutil, "rmtree"),
    "rows": (pyarrow.parquet, "write_table"),
    "page": (report, "facts"),
    "file": (writing.os, "replace"),
    "done": (Store, "clear"),
}


def logging(write, place, log):
    """`Store.__setitem__`, which logs keys, and ends the process before one of them."""

    def inner(store, key, value):
        name = f"{store.path.parent.name}/{store._prefix.decode()}{key}"
        if place.startswith("=") and place[1:] in name:
            os.kill(os.getpid(), signal.SIGKILL)
        write(store, key, value)
        print(name, file=log, flush=True)

    return inner


def ended(words, out, place):
    """The exit code of a check in a process of its own."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    Store.__setitem__ = logging(Store.__setitem__, place, open(f"{out}.keys", "a"))  # noqa: SIM115
    kill_at(place, CALLS)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(f"{out}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), 2)
    code = 70
    try:
        code = app.run([*words, "--out", out])
        Path("modules").write_text("\n".join(sys.modules))
    finally:
        os._exit(code)


def main():
    work.LARGEST_SEARCH = work.LEAST_SEARCH = 1 / 64
    work.MOST_SECRETS = passages.MOST_SECRETS = 4
    secrets.EFFORTS = ((8, 1, 8),)
    passages.MOST_TEXTS = passages.LEAST_TEXTS = 24
    words, places = json.loads(sys.argv[1]), sys.argv[2:]
    codes = [ended(words, "undisturbed", "")]
    for name in Path("modules").read_text().splitlines():  # later processes begin with them
        with suppress(Exception):  # a name that only its maker can import
            import_module(name)
    codes += [ended(words, "killed", place) for place in [*places, "", ""]]
    print(json.dumps(codes))


if __name__ == "__main__":
    main()
