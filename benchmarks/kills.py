"""Whether anything is lost when commands are killed, started twice, out of disk or interrupted.

Each command runs once undisturbed. In the end a disturbed one must leave the same files, byte for
byte except for times, and no others. `every_verb.py` has the commands; by default those run that
write in several steps, and with `--kinds` any.

- `kills`: SIGKILL at a random moment, once or twice; then the command is repeated until it ends.
- `races`: two commands of a kind at once; one or both must succeed. Trainings also race with
  `--resume`.
- `full`: files cannot grow beyond a random size. The command ends with exit code 2 and one line
  that names its file and the remedy; repeated with room it succeeds.
- `signals`: Ctrl-C or SIGTERM at a random moment. The command ends in one line, with the shell's
  code, and leaves no part of a file; repeated it succeeds.
- `training`: `training.loop.train` (`killed_training.py`), killed once, and often in a row.

    python benchmarks/kills.py [PART ...] [--times 100] [--kinds "train" "plant" ...] [--seed 0]

Everything runs in forks of one process, on one thread, which imports all modules of the commands.
The exit status is 1 if something was lost. With `--quick`, only a few kinds are tried.
"""

import hashlib
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401 - every optimizer imports it, which takes seconds
from every_verb import COMMANDS, RESUMES, prepare
from harness import Row, Run, main
from killed_training import training

from vestige.cli import interrupts
from vestige.cli.app import run as run_command
from vestige.preparation import lineage
from vestige.training.secret import Secret

KILLED = (
    *("train", "train private", "train nlu", "train pairs", "diff clean", "membership users"),
    *("plant", "plant nlu", "report", "diff", "extract utterances", "check"),
)
RACED = (
    *("train", "train private", "train nlu", "membership users", "plant", "report"),
    *("diff", "diff clean", "check"),
)
RESUMED = ("train", "train private", "train nlu")
QUICK = ("plant",)
VERDICTS = (0, 1, 3)
"""Exit codes of success."""
TIMES = {"created", "seconds", "tokens_per_second", "seconds_per_epoch", "peak_memory_mib"}
TIMES |= {"command", "arguments", "plan", "files"}  # `files` are hashes over times
LOGGED = ("step", "learning_rate")
"""What a line of a training's log has in any run; the loss is of the steps since a resume."""
DATES = re.compile(rb"\d\d? [A-Z][a-z]+ \d{4}, \d\d:\d\d UTC|\d{4}-\d\d-\d\dT[\d:+]+")
MOST_TRIES = 10


# Commands in forks -------------------------------------------------------------------------------


def start(
    arguments: Sequence[str], folder: Path, log: str = "stderr", *, limit: int | None = None
) -> int:
    """Start a command in a fork, in a folder; return the process id.

    Its stderr goes to the file `log` there. No other file can grow beyond `limit` bytes.
    """
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if limit is None:
        os.dup2(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), 2)
    else:  # the limit would apply to a file of stderr, so another process writes it
        reader, writer = os.pipe()
        if not os.fork():
            os.close(writer)
            Path(log).write_bytes(os.fdopen(reader, "rb").read())
            os._exit(0)
        os.close(reader)
        os.dup2(writer, 2)
        os.close(writer)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    code = 70
    interrupts.raise_on_signals()
    # without randomness, so that two runs have the same bits
    Secret.fresh = classmethod(lambda cls: cls.of_seed(0))
    lineage.new_id = lambda: "0" * 32
    try:
        code = run_command([str(argument) for argument in arguments])
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def wait(pid: int) -> int:
    """Wait for a process; return its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@contextmanager
def new_folder(inputs: Path) -> Iterator[Path]:
    """A temporary folder with links to the inputs."""
    with tempfile.TemporaryDirectory(dir=inputs.parent) as name:
        for path in inputs.iterdir():
            (Path(name) / path.name).symlink_to(path)
        yield Path(name)


def command(kind: str, *, resume: bool = False) -> list[str]:
    """The arguments of a kind of command that writes to `out`."""
    return [*(RESUMES.get(kind, COMMANDS[kind]) if resume else COMMANDS[kind]), "out"]


@cache
def inputs_in(folder: Path, kinds: tuple[str, ...]) -> Path:
    """Make the inputs of all commands, and import the commands' modules for all later forks."""
    inputs = folder / "inputs"
    inputs.mkdir()

    def run(arguments: Sequence[str]) -> None:
        if (code := wait(start(arguments, inputs, "../stderr"))) not in VERDICTS:
            sys.exit(f"{arguments} ended with {code}: {(folder / 'stderr').read_text()}")

    prepare(inputs, run)
    for kind in dict.fromkeys(kinds):
        with new_folder(inputs) as temporary:
            modules = temporary / "modules"
            sys.stdout.flush()
            if not (pid := os.fork()):
                os.chdir(temporary)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                os.dup2(os.open("listing", os.O_CREAT | os.O_WRONLY), 2)
                run_command(command(kind))
                modules.write_text("\n".join(sys.modules))
                os._exit(0)
            wait(pid)
            for name in modules.read_text().splitlines() if modules.exists() else ():
                if name.split(".")[0] not in ("__main__", "every_verb") and name not in sys.modules:
                    try:
                        import_module(name)
                    except Exception:  # a module that was not imported by its name
                        continue
    return inputs


# Files -------------------------------------------------------------------------------------------


def digests(folder: Path) -> dict[str, str]:
    """A digest of each file of `out`, without times and the arguments of the command."""
    out = folder / "out"
    files = [path for path in out.rglob("*") if path.is_file()] if out.is_dir() else [out]
    return {str(path.relative_to(folder)): digest(path) for path in files if path.exists()}


def digest(path: Path) -> str:
    """The digest of a file's content, without times."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.ParquetFile(path).read(use_threads=False)
        content: Any = without_times(table.to_pylist())
    elif path.name == "checkpoint.safetensors":
        from safetensors import safe_open

        with safe_open(path, framework="np") as file:
            position = without_times(json.loads(file.metadata()["position"]))
            names = file.keys()
            tensors = {k: hashlib.sha256(file.get_tensor(k)).hexdigest() for k in names}
            content = [position, tensors]
    elif path.name == "log.jsonl":
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        content = [[line.get(name) for name in LOGGED] for line in lines]
    elif path.suffix == ".json":
        content = without_times(json.loads(path.read_text("utf-8")))
    else:
        return hashlib.sha256(DATES.sub(b"", path.read_bytes())).hexdigest()
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def faults(folder: Path, inputs: Path, expected: dict[str, str]) -> list[str]:
    """Files that are lost, unexpected or different, and tracebacks."""
    try:
        actual = digests(folder)
    except Exception as error:
        return [f"corrupt: {error!r}"]
    result = [f"lost {name}" for name in expected.keys() - actual.keys()]
    result += [f"stray {name}" for name in actual.keys() - expected.keys()]
    both = expected.keys() & actual.keys()
    result += [f"differs {name}" for name in both if expected[name] != actual[name]]
    allowed = {path.name for path in inputs.iterdir()} | {"out", "out.shadows", "out.statistics"}
    others = [path.name for path in folder.iterdir() if path.name not in allowed]
    result += [f"stray {name}" for name in others if not name.startswith("stderr")]
    for log in folder.glob("stderr*"):
        if "Traceback" in (text := log.read_text("utf-8", "replace")):
            result.append(f"traceback: {text.strip().splitlines()[-1]}")
    return result


@cache
def undisturbed(kind: str, inputs: Path) -> tuple[dict[str, str], float]:
    """(the digests of a command's files, its seconds)."""
    with new_folder(inputs) as folder:
        started = time.perf_counter()
        code = wait(start(command(kind), folder))
        taken = time.perf_counter() - started
        if code not in VERDICTS or faults(folder, inputs, digests(folder)):
            sys.exit(f"{kind} ended with {code}: {(folder / 'stderr').read_text()}")
        return digests(folder), taken


# Disturbances ------------------------------------------------------------------------------------

Disturb = Callable[[str, Path, float, random.Random], tuple[str, list[str]]]
"""Disturbs a kind of command of some seconds in a folder; returns what happened, and faults other
than those of the files."""


def disturbed(
    run: Run, title: str, kinds: Sequence[str], disturb: Disturb, allowed: Container[str] = COMMANDS
) -> list[Row]:
    """For each kind how often each event happened, and every fault; `--kinds` chooses others."""
    chosen = run.options.kinds or run.size(kinds, QUICK)
    inputs = inputs_in(run.folder, run.size((*KILLED, *RACED), QUICK))
    rows = []
    for kind in [kind for kind in chosen if kind in allowed]:
        expected, taken = undisturbed(kind, inputs)
        rng = random.Random(f"{run.options.seed} {kind} {title}")
        happened, all_faults = Counter[str](), Counter[str]()
        for _ in range(run.times(100)):
            with new_folder(inputs) as folder:
                event, more = disturb(kind, folder, taken, rng)
                happened.update([event])
                all_faults.update([*more, *faults(folder, inputs, expected)])
        rows.append({title: kind, "happened": dict(happened), "faults": dict(all_faults)})
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def kill(kind: str, folder: Path, taken: float, rng: random.Random) -> tuple[str, list[str]]:
    """Kill a command once or twice, then repeat it until it ends."""
    killed, arguments = 0, command(kind)
    for _ in range(rng.randint(1, 2)):
        pid = start(arguments, folder)
        time.sleep(rng.uniform(0, taken))
        os.kill(pid, signal.SIGKILL)
        killed += wait(pid) == -signal.SIGKILL
        if (folder / "out").exists():
            arguments = command(kind, resume=True)
    for _ in range(MOST_TRIES):
        code = wait(start(arguments, folder))
        if code in VERDICTS or "exists already" in (folder / "stderr").read_text():
            break
        arguments = command(kind, resume=True)
    return f"{killed} kills", []


def race(
    resume: bool, kind: str, folder: Path, taken: float, rng: random.Random
) -> tuple[str, list[str]]:
    """Run a command twice at once."""
    if resume:
        pid = start(command(kind), folder)
        time.sleep(rng.uniform(0.2, 0.9) * taken)
        os.kill(pid, signal.SIGKILL)
        wait(pid)
    arguments = command(kind, resume=resume)
    first = start(arguments, folder, "stderr-1")
    time.sleep(rng.choice((0, 0, rng.uniform(0, taken))))
    codes = sorted((wait(start(arguments, folder, "stderr-2")), wait(first)))
    finished = sum(code in VERDICTS for code in codes)
    correct = finished == 2 or (finished == 1 and 2 in codes)
    return f"exit codes {codes}", [] if correct else [f"exit codes {codes}"]


def fill_disk(kind: str, folder: Path, taken: float, rng: random.Random) -> tuple[str, list[str]]:
    """Run a command that can write only small files, then one without the limit."""
    code = wait(start(command(kind), folder, limit=int(10 ** rng.uniform(0, 4))))
    time.sleep(0.05)  # until its stderr is on disk
    if code in VERDICTS:
        return "room enough", []
    result = [] if code == 2 else [f"exit code {code}"]
    last = (folder / "stderr").read_text("utf-8").splitlines()[-1:]
    result += [] if last and _names_file_and_remedy(last[0]) else [f"message: {last}"]
    result += [f"stray {path.name}" for path in folder.rglob(".*")]
    _repeat(kind, folder)
    return "disk full", result


def interrupt(kind: str, folder: Path, taken: float, rng: random.Random) -> tuple[str, list[str]]:
    """Send a signal to a command, then repeat it."""
    pid = start(command(kind), folder)
    time.sleep(0.05 + rng.uniform(0, taken))
    number = rng.choice((signal.SIGINT, signal.SIGTERM))
    os.kill(pid, number)
    if (code := wait(pid)) in VERDICTS:
        return "too late", []
    lines = (folder / "stderr").read_text("utf-8").splitlines()
    last = lines[-1] if lines else ""
    result = [] if code == 128 + number else [f"exit code {code}"]
    result += [] if last.startswith("vestige: ended by") else [f"message: {last}"]
    result += [f"message: {line}" for line in lines if "Error" in line or "ignored" in line]
    result += [f"stray {path.name}" for path in folder.rglob(".*")]
    _repeat(kind, folder)
    return f"exit code {code}", result


def _repeat(kind: str, folder: Path) -> None:
    wait(start(command(kind, resume=(folder / "out").exists()), folder))


def _names_file_and_remedy(line: str) -> bool:
    named = line.startswith("vestige: ") and "out" in line and "File too large" in line
    return named and ("room" in line or "Free space" in line)


def races(run: Run) -> list[Row]:
    """Two commands at once; of trainings also two that resume."""
    rows = disturbed(run, "race", RACED, partial(race, False))
    resumed = disturbed(run, "race with --resume", RESUMED, partial(race, True), RESUMED)
    return rows + resumed


def options(parser: Any) -> None:
    """Commands, and the seed of random moments and sizes."""
    parser.add_argument("--kinds", nargs="+", choices=COMMANDS, help="of commands")
    parser.add_argument("--seed", type=int, default=0)


PARTS = {
    "kills": lambda run: disturbed(run, "kills", KILLED, kill),
    "races": races,
    "full": lambda run: disturbed(run, "full disk", KILLED, fill_disk),
    "signals": lambda run: disturbed(run, "signals", KILLED, interrupt),
    "training": training,
}

if __name__ == "__main__":
    results = main("kills", __doc__, PARTS, options)
    sys.exit(any(row["faults"] for part in results.keys() & PARTS.keys() for row in results[part]))
