"""Whether anything is lost when commands are killed, started twice, out of disk or interrupted.

Every kind of command of `every_verb.py` is run undisturbed once. What a disturbed one leaves in
the end must be the same files, byte for byte but for times, and nothing beside them.

- `kills`: SIGKILL at a random moment, once or twice; then the command is repeated until it ends.
- `races`: two of a kind at once; one wins or both end well. Trainings also race with `--resume`.
- `full`: files cannot grow beyond a random size. The command ends with exit code 2 and one line
  that names a file of its own and the remedy; repeated with room it ends well.
- `signals`: Ctrl-C or SIGTERM at a random moment. The command ends in one line, with the shell's
  code, and leaves no part of a file; repeated it ends well.
- `training`: `training.loop.train` (`killed_training.py`), killed once, and as often in a row.

    python benchmarks/kills.py [PART ...] [--times 100] [--kinds "train" "plant" ...] [--seed 0]

Everything runs in forks of one process that has imported what the commands import, on one thread.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401 - every optimizer imports it, for seconds: once here
from every_verb import COMMANDS, OUT, RESUMES, prepare
from harness import Row, Run, main
from killed_training import training

from vestige.cli import interrupts
from vestige.cli.app import run as command
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
AGAIN = ("train", "train private", "train nlu")
QUICK = ("plant",)
VERDICTS = (0, 1, 3)
"""Exit codes of a command that did its work."""
TIMES = {"created", "seconds", "tokens_per_second", "seconds_per_epoch", "peak_memory_mib"}
TIMES |= {"command", "arguments", "plan"}
LOGGED = ("step", "learning_rate")
"""What a line of a training's log says wherever it began; its loss is of the steps since."""
WRITTEN = re.compile(rb"\d\d? [A-Z][a-z]+ \d{4}, \d\d:\d\d UTC|\d{4}-\d\d-\d\dT[\d:+]+")
MOST_TRIES = 10


# Commands in forks -------------------------------------------------------------------------------


def child(words: Sequence[str], where: Path, said: str = "said", *, most: int | None = None) -> int:
    """Start a command in a fork, in a folder; its stderr goes to a file there.

    No file can then grow beyond `most` bytes, stderr apart, which has to be a pipe for it.
    """
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    os.chdir(where)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if most is None:
        os.dup2(os.open(said, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), 2)
    else:
        reading, writing = os.pipe()
        if not os.fork():
            os.close(writing)
            Path(said).write_bytes(os.fdopen(reading, "rb").read())
            os._exit(0)
        os.close(reading)
        os.dup2(writing, 2)
        os.close(writing)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    code = 70
    interrupts.raise_on_signals()
    # Else no two would have the same bits.
    Secret.fresh = classmethod(lambda cls: cls.of_seed(0))
    lineage.new_id = lambda: "0" * 32
    try:
        code = command([str(word) for word in words])
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def ended(pid: int) -> int:
    """The exit code; minus the signal where one ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@contextmanager
def place(inputs: Path) -> Iterator[Path]:
    """A new folder in which the commands find their inputs."""
    with tempfile.TemporaryDirectory(dir=inputs.parent) as name:
        for path in inputs.iterdir():
            (Path(name) / path.name).symlink_to(path)
        yield Path(name)


def named(words: Sequence[str]) -> list[str]:
    return ["out" if word == OUT else word for word in words]


@cache
def inputs_in(folder: Path, kinds: tuple[str, ...]) -> Path:
    """The inputs of all commands; what these import is imported here, so that no fork has to."""
    inputs = folder / "inputs"
    inputs.mkdir()

    def run(words: Sequence[str]) -> None:
        if (code := ended(child(words, inputs, "../said"))) not in VERDICTS:
            sys.exit(f"{words} ended with {code}: {(folder / 'said').read_text()}")

    prepare(inputs, run)
    for kind in dict.fromkeys(kinds):
        with place(inputs) as here:
            names = here / "modules"
            sys.stdout.flush()
            if not (pid := os.fork()):
                os.chdir(here)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                os.dup2(os.open("listing", os.O_CREAT | os.O_WRONLY), 2)
                command(named(COMMANDS[kind]))
                names.write_text("\n".join(sys.modules))
                os._exit(0)
            ended(pid)
            for name in names.read_text().splitlines() if names.exists() else ():
                if name.split(".")[0] not in ("__main__", "every_verb") and name not in sys.modules:
                    try:
                        import_module(name)
                    except Exception:  # a name that only its maker can import
                        continue
    return inputs


# What is left ------------------------------------------------------------------------------------


def outcome(folder: Path) -> dict[str, str]:
    """A digest of each file of `out`, without times and the words of the command."""
    out = folder / "out"
    files = [path for path in out.rglob("*") if path.is_file()] if out.is_dir() else [out]
    return {str(path.relative_to(folder)): digest(path) for path in files if path.exists()}


def digest(path: Path) -> str:
    """Of a file's content, without times."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.ParquetFile(path).read(use_threads=False)
        content: Any = timeless(table.to_pylist())
    elif path.name == "checkpoint.safetensors":
        from safetensors import safe_open

        with safe_open(path, framework="np") as file:
            facts = timeless(json.loads(file.metadata()["position"]))
            keys = sorted(file.keys())
            content = [facts, [[k, hashlib.sha256(file.get_tensor(k)).hexdigest()] for k in keys]]
    elif path.name == "log.jsonl":
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        content = [[line.get(name) for name in LOGGED] for line in lines]
    elif path.suffix == ".json":
        content = timeless(json.loads(path.read_text("utf-8")))
    else:
        return hashlib.sha256(WRITTEN.sub(b"", path.read_bytes())).hexdigest()
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in TIMES}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def faults(folder: Path, inputs: Path, wanted: dict[str, str]) -> list[str]:
    """What is not as it should be: files lost, strange or different, and tracebacks."""
    try:
        found = outcome(folder)
    except Exception as error:
        return [f"corrupt: {error!r}"]
    wrong = [f"lost {name}" for name in wanted.keys() - found.keys()]
    wrong += [f"stray {name}" for name in found.keys() - wanted.keys()]
    both = wanted.keys() & found.keys()
    wrong += [f"differs {name}" for name in both if wanted[name] != found[name]]
    known = {path.name for path in inputs.iterdir()} | {"out", "out.shadows", "out.statistics"}
    beside = [path.name for path in folder.iterdir() if path.name not in known]
    wrong += [f"stray {name}" for name in beside if not name.startswith("said")]
    for said in folder.glob("said*"):
        if "Traceback" in (text := said.read_text("utf-8", "replace")):
            wrong.append(f"traceback: {text.strip().splitlines()[-1]}")
    return wrong


@cache
def undisturbed(kind: str, inputs: Path) -> tuple[dict[str, str], float]:
    """What a command leaves, and how long it takes."""
    with place(inputs) as folder:
        began = time.perf_counter()
        code = ended(child(named(COMMANDS[kind]), folder))
        took = time.perf_counter() - began
        if code not in VERDICTS or faults(folder, inputs, outcome(folder)):
            sys.exit(f"{kind} ended with {code}: {(folder / 'said').read_text()}")
        return outcome(folder), took


# Disturbances ------------------------------------------------------------------------------------

Disturb = Callable[[str, Path, float, random.Random], tuple[str, list[str]]]
"""Disturbs a kind of command in a folder; what happened, and faults beside those of the outcome."""


def disturbed(run: Run, title: str, kinds: Sequence[str], disturb: Disturb) -> list[Row]:
    """A row a kind: how often each thing happened, and every fault."""
    kinds = [kind for kind in kinds if kind in (run.options.kinds or run.size(kinds, QUICK))]
    inputs = inputs_in(run.folder, run.size((*KILLED, *RACED), QUICK))
    rows = []
    for kind in kinds:
        wanted, took = undisturbed(kind, inputs)
        lots = random.Random(f"{run.options.seed} {kind} {title}")
        wrong, happened = Counter[str](), Counter[str]()
        for _ in range(run.times(100)):
            with place(inputs) as folder:
                what, bad = disturb(kind, folder, took, lots)
                happened.update([what])
                wrong.update([*bad, *faults(folder, inputs, wanted)])
        rows.append({title: kind, "happened": dict(happened), "faults": dict(wrong)})
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def kill(kind: str, folder: Path, took: float, lots: random.Random) -> tuple[str, list[str]]:
    """Kill a command once or twice, then let it end."""
    killed, words = 0, named(COMMANDS[kind])
    again = named(RESUMES.get(kind, COMMANDS[kind]))
    for _ in range(lots.randint(1, 2)):
        pid = child(words, folder)
        time.sleep(lots.uniform(0, took))
        os.kill(pid, signal.SIGKILL)
        killed += ended(pid) == -signal.SIGKILL
        words = again if (folder / "out").exists() else words
    for _ in range(MOST_TRIES):
        code = ended(child(words, folder))
        if code in VERDICTS or "exists already" in (folder / "said").read_text():
            break
        words = again
    return f"{killed} kills", []


def race(
    again: bool, kind: str, folder: Path, took: float, lots: random.Random
) -> tuple[str, list[str]]:
    """Start a kind twice."""
    words = named(RESUMES[kind] if again else COMMANDS[kind])
    if again:
        pid = child(named(COMMANDS[kind]), folder)
        time.sleep(lots.uniform(0.2, 0.9) * took)
        os.kill(pid, signal.SIGKILL)
        ended(pid)
    first = child(words, folder, "said-1")
    time.sleep(lots.choice((0, 0, lots.uniform(0, took))))
    codes = sorted((ended(child(words, folder, "said-2")), ended(first)))
    finished = sum(code in VERDICTS for code in codes)
    fine = finished == 2 or (finished == 1 and 2 in codes)
    return f"exit codes {codes}", [] if fine else [f"exit codes {codes}"]


def starve(kind: str, folder: Path, took: float, lots: random.Random) -> tuple[str, list[str]]:
    """Leave room for small files only, then for all."""
    code = ended(child(named(COMMANDS[kind]), folder, most=int(10 ** lots.uniform(0, 4))))
    time.sleep(0.05)  # until its stderr is on disk
    if code in VERDICTS:
        return "room enough", []
    wrong = [] if code == 2 else [f"exit code {code}"]
    last = (folder / "said").read_text("utf-8").splitlines()[-1:]
    wrong += [] if last and _names_file_and_remedy(last[0]) else [f"message: {last}"]
    wrong += [f"stray {path.name}" for path in folder.rglob(".*")]
    _repeat(kind, folder)
    return "disk full", wrong


def interrupt(kind: str, folder: Path, took: float, lots: random.Random) -> tuple[str, list[str]]:
    """Ask a command to end, then repeat it."""
    pid = child(named(COMMANDS[kind]), folder)
    time.sleep(0.05 + lots.uniform(0, took))
    number = lots.choice((signal.SIGINT, signal.SIGTERM))
    os.kill(pid, number)
    if (code := ended(pid)) in VERDICTS:
        return "too late", []
    lines = (folder / "said").read_text("utf-8").splitlines()
    last = lines[-1] if lines else ""
    wrong = [] if code == 128 + number else [f"exit code {code}"]
    wrong += [] if last.startswith("vestige: ended by") else [f"said {last}"]
    wrong += [f"said {line}" for line in lines if "Error" in line or "ignored" in line]
    wrong += [f"stray {path.name}" for path in folder.rglob(".*")]
    _repeat(kind, folder)
    return f"exit code {code}", wrong


def _repeat(kind: str, folder: Path) -> None:
    again = (folder / "out").exists()
    ended(child(named((RESUMES if again else {}).get(kind, COMMANDS[kind])), folder))


def _names_file_and_remedy(line: str) -> bool:
    parts = ("out", "File too large", "room")
    return line.startswith("vestige: ") and all(part in line for part in parts)


def races(run: Run) -> list[Row]:
    """Two at once; trainings also where both resume."""
    fresh = disturbed(run, "race", RACED, partial(race, False))
    return fresh + disturbed(run, "race with --resume", AGAIN, partial(race, True))


def options(parser: Any) -> None:
    """Commands, and the seed of moments and sizes."""
    parser.add_argument("--kinds", nargs="+", choices=COMMANDS, help="of commands")
    parser.add_argument("--seed", type=int, default=0)


PARTS = {
    "kills": lambda run: disturbed(run, "kills", KILLED, kill),
    "races": races,
    "full": lambda run: disturbed(run, "full disk", KILLED, starve),
    "signals": lambda run: disturbed(run, "signals", KILLED, interrupt),
    "training": training,
}

if __name__ == "__main__":
    results = main("kills", __doc__, PARTS, options)
    sys.exit(any(row["faults"] for part in results.keys() & PARTS.keys() for row in results[part]))
