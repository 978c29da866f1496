"""Runs a check undisturbed, then a second one that is killed at one moment after another.

Arguments: those of the command as JSON, then the moments: "=KEY" is before that value is stored,
"NAME:N" is the Nth call of a function. Prints the exit codes as JSON.
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


def log_or_kill(write, moment, log):
    """`Store.__setitem__` that logs keys and kills the process before one of them."""

    def wrapper(store, key, value):
        full_key = f"{store.path.parent.name}/{store._prefix.decode()}{key}"
        if moment.startswith("=") and moment[1:] in full_key:
            os.kill(os.getpid(), signal.SIGKILL)
        write(store, key, value)
        print(full_key, file=log, flush=True)

    return wrapper


def run_check(arguments, out, moment):
    """The exit code of a check in a separate process."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    Store.__setitem__ = log_or_kill(Store.__setitem__, moment, open(f"{out}.keys", "a"))  # noqa: SIM115
    kill_at(moment, CALLS)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(f"{out}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), 2)
    code = 70
    try:
        code = app.run([*arguments, "--out", out])
        Path("modules").write_text("\n".join(sys.modules))
    finally:
        os._exit(code)


def main():
    work.LARGEST_SEARCH = work.LEAST_SEARCH = 1 / 64
    work.MOST_SECRETS = passages.MOST_SECRETS = 4
    secrets.EFFORTS = ((8, 1, 8),)
    passages.MOST_TEXTS = passages.LEAST_TEXTS = 24
    arguments, moments = json.loads(sys.argv[1]), sys.argv[2:]
    codes = [run_check(arguments, "undisturbed", "")]
    for name in Path("modules").read_text().splitlines():  # imported once for all processes
        with suppress(Exception):  # not importable by name
            import_module(name)
    codes += [run_check(arguments, "killed", moment) for moment in [*moments, "", ""]]
    print(json.dumps(codes))


if __name__ == "__main__":
    main()
