"""A process that imports all modules once and forks a child for each command line.

Importing a verb takes seconds, refusing its arguments milliseconds; and an abort, an endless loop
or ten gigabytes affect only the child. Requests and answers are lines of JSON:

    {"words": [...], "folder": "...", "seconds": 20, "learn": false}
    {"code": 2, "signal": 0, "cpu": 0.05, "wall": 0.06, "memory": 4096, "timeout": "", "opened": []}

A child runs in `folder/cwd` with the folders `tmp` and `home`, and writes `folder/stdout` and
`folder/stderr`. If the system allows it, it has no network and no privileges of root.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path

MEMORY = 4 * 2**30
"""Bytes that may be allocated beyond those of the parent."""
FILE = 256 * 2**20
"""Bytes of one file."""
GRACE = 6
"""Wall time limit of a child, in multiples of its processor time limit."""
IDLE = 4
"""A child that only waits is ended after this fraction of its seconds: 1 / IDLE."""
SETTLED = 0.02
"""Seconds until a child is checked for the first time."""
MODULES = (
    "torch", "pandas", "pyarrow.parquet", "pyarrow.csv", "pyarrow.json", "safetensors.torch",
    "tokenizers", "transformers", "peft", "datasets", "opacus", "dp_accounting", "scipy.stats",
    "sklearn", "altair", "vl_convert", "jinja2", "rich.table", "rich.progress", "filelock",
    "vestige.cli.app", "vestige.reports.page",
)  # fmt: skip


def serve() -> None:
    """Answer requests until stdin ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    learn(MODULES)
    learn(
        ".".join(path.relative_to(_source()).with_suffix("").parts)
        for path in sorted((_source() / "vestige").rglob("*.py"))
        if path.stem not in ("__main__", "__init__")
    )
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        done = run(request["words"], Path(request["folder"]), request["seconds"])
        if request["learn"]:
            learn(done["modules"])
        del done["modules"]
        print(json.dumps(done), file=replies, flush=True)


def learn(names) -> None:
    """Import modules for later children; ignore those that fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            if name not in sys.modules:
                with contextlib.suppress(BaseException):
                    importlib.import_module(name)


def run(words: list[str], folder: Path, seconds: float) -> dict[str, object]:
    """The outcome of one command line in a child."""
    gc.collect()
    gc.freeze()  # or the garbage collector of each child would copy every object
    base = _resident()
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(words, folder, seconds)
    timeout = _watch(pid, seconds)
    if timeout:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # its own children
    file = folder / "report.json"
    report = json.loads(file.read_text()) if file.exists() else {}
    file.unlink(missing_ok=True)
    return {
        "code": os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else -1,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        "cpu": used.ru_utime + used.ru_stime,
        "wall": time.monotonic() - started,
        "memory": max(0, used.ru_maxrss * 1024 - base),
        "timeout": timeout,
        "opened": report.get("opened", []),
        "modules": report.get("modules", []),
    }


def _watch(pid: int, seconds: float) -> str:
    """Why a child must be ended, or "" after it ended by itself."""
    handle = os.pidfd_open(pid)
    started, wait = time.monotonic(), SETTLED
    try:
        while not select.select([handle], [], [], wait)[0]:
            wait = 0.2
            wall, cpu = time.monotonic() - started, _processor(pid)
            if cpu > seconds:
                return f"{cpu:.0f} s of processor"
            if wall > seconds / IDLE and cpu < wall / 50:
                return f"{wall:.0f} s of waiting"
            if wall > GRACE * seconds:
                return f"{wall:.0f} s"
    finally:
        os.close(handle)
    return ""


def _child(words: list[str], folder: Path, seconds: float) -> None:
    """Run the verb in the child; never returns."""
    os.setsid()
    before = set(sys.modules)
    opened: list[str] = []
    shared = str(folder.parent)
    sys.addaudithook(lambda event, args: event == "open" and _record(opened, args[0], shared))
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.chdir(folder / "cwd")
    os.environ |= {"TMPDIR": str(folder / "tmp"), "HOME": str(folder / "home"), "COLUMNS": "200"}
    sys.path[0] = ""
    _limit(seconds)
    sys.argv = ["vestige", *words]
    code: object = 1
    try:
        from vestige.cli.app import main

        main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        threading._shutdown()
        atexit._run_exitfuncs()
        modules = [name for name in sys.modules if name not in before]
        report = json.dumps({"opened": opened, "modules": modules})
        (folder / "report.json").write_text(report)
    except BaseException:
        traceback.print_exc()
        code = 1
    os._exit(0 if code is None else code if isinstance(code, int) else 1)


def _record(opened: list[str], path: object, shared: str) -> None:
    if isinstance(path, (str, bytes)) and os.fsdecode(path).startswith(shared):
        opened.append(os.fsdecode(path).encode("utf-8", "replace").decode())


def _limit(seconds: float) -> None:
    # Not RLIMIT_AS: the chart library reserves terabytes of addresses that it never uses.
    written = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    for resource_kind, limit in (
        (resource.RLIMIT_DATA, written + MEMORY),
        (resource.RLIMIT_FSIZE, FILE),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, int(2 * seconds) + 2),
    ):
        resource.setrlimit(resource_kind, (limit, limit))
    libc = ctypes.CDLL(None)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        libc.unshare(0x40000000)  # CLONE_NEWNET
        # Without capabilities root reads no files that other users may not read.
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def _processor(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _source() -> Path:
    import vestige

    return Path(vestige.__file__).parents[1]


if __name__ == "__main__":
    serve()
