"""Is anything lost when verbs are killed at any moment, started twice at once, or out of disk?

Kills: each kind of command is run undisturbed once; then, N times, started anew and killed
(SIGKILL) at a seeded random moment, once or twice, and given again until it has ended. What it
leaves must be what the undisturbed one left, byte for byte but for times, and nothing beside.

Races: each kind is started twice at the same time, N times; one wins or both end well, and what
is there is again what the undisturbed one left. "again" races start from a killed training, both
with `--resume`.

Full disks: each kind is run, N times, with files that cannot grow beyond a random size. It has to
end with exit code 2 and one line that names a file of its own and the remedy, and, given again
with room, in what the undisturbed one left.

Signals: each kind gets Ctrl-C or SIGTERM, N times, at a random moment. It has to end in one line,
with the shell's code, and leave no part of a file; given again, it ends as the undisturbed one.

    python benchmarks/kills.py [--count 100] [--kinds "train" "plant" ...] [--seed 0]
        [--kills] [--races] [--full] [--signals]

Everything runs in forks of one process that has imported what the verbs import, on one thread.
The last line is JSON; the exit status is 1 where something was lost.
"""

import argparse
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).parent))
from every_verb import COMMANDS, OUT, RESUMES, prepare

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
VERDICTS = (0, 1, 3)
"""Exit codes of a command that did its work."""
AGAIN = ("train", "train private", "train nlu")
TIMES = {"created", "seconds", "tokens_per_second", "seconds_per_epoch", "peak_memory_mib"}
TIMES |= {"command", "arguments", "plan"}
LOGGED = ("step", "learning_rate")
"""What a line of a training's log says wherever it began; its loss is of the steps since."""
WRITTEN = re.compile(rb"\d\d? [A-Z][a-z]+ \d{4}, \d\d:\d\d UTC|\d{4}-\d\d-\d\dT[\d:+]+")
MOST_TRIES = 10


def child(words: Sequence[str], where: Path, said: str = "said", *, most: int | None = None) -> int:
    """Start a command in a fork, in a folder; its stderr goes to a file there.

    No file can then grow beyond `most` bytes, stderr apart, which has to be a pipe for it.
    """
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
    interrupts.raise_when_asked_to_end()
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


def import_for(kinds: Sequence[str], inputs: Path) -> None:
    """Import here what the commands import, so that no fork has to."""
    for kind in kinds:
        with place(inputs) as folder:
            names, script = folder / "modules", folder / "listing"
            if not (pid := os.fork()):
                os.chdir(folder)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                os.dup2(os.open(str(script), os.O_CREAT | os.O_WRONLY), 2)
                command([str(word) for word in named(COMMANDS[kind])])
                names.write_text("\n".join(sys.modules))
                os._exit(0)
            ended(pid)
            for name in names.read_text().splitlines() if names.exists() else ():
                if name.split(".")[0] not in ("__main__", "every_verb") and name not in sys.modules:
                    try:
                        import_module(name)
                    except Exception:  # a name that only its maker can import
                        continue


@contextmanager
def place(inputs: Path) -> Iterator[Path]:
    """A new folder in which the commands find their inputs."""
    with tempfile.TemporaryDirectory(dir=inputs.parent) as name:
        for path in inputs.iterdir():
            (Path(name) / path.name).symlink_to(path)
        yield Path(name)


def named(words: Sequence[str]) -> list[str]:
    return ["out" if word == OUT else word for word in words]


def outcome(folder: Path) -> dict[str, str]:
    """A digest of each file of `out`, without times and the words of the command."""
    out = folder / "out"
    files = [path for path in out.rglob("*") if path.is_file()] if out.is_dir() else [out]
    return {str(path.relative_to(folder)): _digest(path) for path in files if path.exists()}


def _digest(path: Path) -> str:
    if path.suffix == ".parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.ParquetFile(path).read(use_threads=False)
        content: Any = _timeless(table.to_pylist())
    elif path.name == "checkpoint.safetensors":
        from safetensors import safe_open

        with safe_open(path, framework="np") as file:
            facts = _timeless(json.loads(file.metadata()["position"]))
            keys = sorted(file.keys())
            content = [facts, [[k, hashlib.sha256(file.get_tensor(k)).hexdigest()] for k in keys]]
    elif path.name == "log.jsonl":
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        content = [[line.get(name) for name in LOGGED] for line in lines]
    elif path.suffix == ".json":
        content = _timeless(json.loads(path.read_text("utf-8")))
    else:
        return hashlib.sha256(WRITTEN.sub(b"", path.read_bytes())).hexdigest()
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key not in TIMES}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


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


def undisturbed(kind: str, inputs: Path) -> tuple[dict[str, str], float]:
    """What a command leaves, and how long it takes."""
    with place(inputs) as folder:
        began = time.perf_counter()
        code = ended(child(named(COMMANDS[kind]), folder))
        took = time.perf_counter() - began
        if code not in VERDICTS or faults(folder, inputs, outcome(folder)):
            sys.exit(f"{kind} ended with {code}: {(folder / 'said').read_text()}")
        return outcome(folder), took


def killed(kind: str, folder: Path, took: float, lots: random.Random) -> int:
    """Kill a command once or twice, then let it end; how often it really was killed."""
    kills, words = 0, named(COMMANDS[kind])
    again = named(RESUMES.get(kind, COMMANDS[kind]))
    for _ in range(lots.randint(1, 2)):
        pid = child(words, folder)
        time.sleep(lots.uniform(0, took))
        os.kill(pid, signal.SIGKILL)
        kills += ended(pid) == -signal.SIGKILL
        words = again if (folder / "out").exists() else words
    for _ in range(MOST_TRIES):
        code = ended(child(words, folder))
        if code in VERDICTS or "exists already" in (folder / "said").read_text():
            return kills
        words = again
    return kills


def kill_all(kind: str, count: int, inputs: Path, seed: int) -> dict[str, Any]:
    """`count` commands of a kind that were killed."""
    wanted, took = undisturbed(kind, inputs)
    lots, wrong, kills = random.Random(f"{seed} {kind}"), Counter[str](), 0
    commands = 0
    while kills < count:
        with place(inputs) as folder:
            kills += killed(kind, folder, took, lots)
            commands += 1
            wrong.update(faults(folder, inputs, wanted))
    return {"kind": kind, "kills": kills, "commands": commands, "faults": dict(wrong)}


def race_all(kind: str, count: int, inputs: Path, seed: int, *, again: bool) -> dict[str, Any]:
    """`count` pairs of a kind at the same time."""
    wanted, took = undisturbed(kind, inputs)
    lots, wrong, ends = random.Random(f"{seed} {kind} race"), Counter[str](), Counter[str]()
    words = named(RESUMES[kind] if again else COMMANDS[kind])
    for _ in range(count):
        with place(inputs) as folder:
            if again:
                pid = child(named(COMMANDS[kind]), folder)
                time.sleep(lots.uniform(0.2, 0.9) * took)
                os.kill(pid, signal.SIGKILL)
                ended(pid)
            first = child(words, folder, "said-1")
            time.sleep(lots.choice((0, 0, lots.uniform(0, took))))
            codes = sorted((ended(child(words, folder, "said-2")), ended(first)))
            ends.update([f"{codes[0]} and {codes[1]}"])
            wrong.update(faults(folder, inputs, wanted))
            finished = sum(code in VERDICTS for code in codes)
            fine = finished == 2 or (finished == 1 and 2 in codes)
            wrong.update([] if fine else [f"exit codes {codes}"])
    name = f"{kind} --resume" if again else kind
    return {"race": name, "races": count, "ends": dict(ends), "faults": dict(wrong)}


def starve_all(kind: str, count: int, inputs: Path, seed: int) -> dict[str, Any]:
    """`count` commands of a kind that ran out of disk."""
    wanted, _ = undisturbed(kind, inputs)
    lots, wrong, full = random.Random(f"{seed} {kind} full"), Counter[str](), 0
    again = named(RESUMES.get(kind, COMMANDS[kind]))
    for _ in range(count):
        with place(inputs) as folder:
            code = ended(child(named(COMMANDS[kind]), folder, most=int(10 ** lots.uniform(0, 4))))
            time.sleep(0.05)  # until its stderr is on disk
            failed = code not in VERDICTS
            full += failed
            lines = (folder / "said").read_text("utf-8").splitlines() if failed else []
            wrong.update([] if code in (*VERDICTS, 2) else [f"exit code {code}"])
            if failed and not _tells(lines[-1] if lines else ""):
                wrong.update([f"message: {lines[-1] if lines else None}"])
            wrong.update(f"stray {path.name}" for path in folder.rglob(".*"))
            if failed:
                words = again if (folder / "out").exists() else named(COMMANDS[kind])
                ended(child(words, folder))
            wrong.update(faults(folder, inputs, wanted))
    return {"full disk": kind, "commands": count, "full": full, "faults": dict(wrong)}


def signal_all(kind: str, count: int, inputs: Path, seed: int) -> dict[str, Any]:
    """`count` commands of a kind that were asked to end."""
    wanted, took = undisturbed(kind, inputs)
    lots, wrong, ends = random.Random(f"{seed} {kind} signal"), Counter[str](), Counter[int]()
    again = named(RESUMES.get(kind, COMMANDS[kind]))
    while sum(n for code, n in ends.items() if code not in VERDICTS) < count:
        with place(inputs) as folder:
            pid = child(named(COMMANDS[kind]), folder)
            time.sleep(0.05 + lots.uniform(0, took))
            number = lots.choice((signal.SIGINT, signal.SIGTERM))
            os.kill(pid, number)
            ends.update([code := ended(pid)])
            lines = (folder / "said").read_text("utf-8").splitlines()
            if code not in VERDICTS:
                wrong.update([] if code == 128 + number else [f"exit code {code}"])
                last = lines[-1] if lines else ""
                wrong.update([] if last.startswith("vestige: ended by") else [f"said {last}"])
                ignored = [line for line in lines if "Error" in line or "ignored" in line]
                wrong.update(f"said {line}" for line in ignored)
                wrong.update(f"stray {path.name}" for path in folder.rglob(".*"))
                words = again if (folder / "out").exists() else named(COMMANDS[kind])
                ended(child(words, folder))
            wrong.update(faults(folder, inputs, wanted))
    return {"signals": kind, "ends": dict(ends), "faults": dict(wrong)}


def _tells(line: str) -> bool:
    """Whether a message names a file of the command, what was wrong, and the remedy."""
    return (
        line.startswith("vestige: ")
        and "out" in line
        and "File too large" in line
        and ("room" in line.lower())
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--kinds", nargs="*", default=None)
    parser.add_argument("--seed", type=int, default=0)
    for each in ("kills", "races", "full", "signals"):
        parser.add_argument(f"--{each}", action="store_true")
    asked = parser.parse_args()
    if not (asked.kills or asked.races or asked.full or asked.signals):
        asked.kills = asked.races = asked.full = asked.signals = True
    with tempfile.TemporaryDirectory() as root:
        inputs = Path(root) / "inputs"
        inputs.mkdir()
        kinds = [k for k in COMMANDS if asked.kinds is None or k in asked.kinds]

        def run(words: Sequence[str]) -> None:
            if (code := ended(child(words, inputs, "../said"))) not in VERDICTS:
                sys.exit(f"{words} ended with {code}: {(inputs / '../said').read_text()}")

        import torch._dynamo  # noqa: F401 - every optimizer imports it, for seconds

        prepare(inputs, run)
        import_for([kind for kind in kinds if kind in (*KILLED, *RACED)], inputs)
        done = []
        for kind in kinds:
            if kind in KILLED and asked.kills:
                done.append(kill_all(kind, asked.count, inputs, asked.seed))
                print(done[-1], file=sys.stderr, flush=True)
            if kind in KILLED and asked.signals:
                done.append(signal_all(kind, asked.count, inputs, asked.seed))
                print(done[-1], file=sys.stderr, flush=True)
            if kind in KILLED and asked.full:
                done.append(starve_all(kind, asked.count, inputs, asked.seed))
                print(done[-1], file=sys.stderr, flush=True)
            for again in (False, True) if asked.races else ():
                if kind in (AGAIN if again else RACED):
                    done.append(race_all(kind, asked.count, inputs, asked.seed, again=again))
                    print(done[-1], file=sys.stderr, flush=True)
    print(json.dumps(done))
    sys.exit(any(one["faults"] for one in done))


if __name__ == "__main__":
    main()
