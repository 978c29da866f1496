"""A case: a command line, and damage to the files that it reads."""

import itertools
import json
import os
import re
import shlex
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath

from tests.fuzz.damage import Damage, apply
from tests.fuzz.sandbox import Outcome, Sandbox, prepared
from tests.fuzz.world import SECRETS, SERVICE, words_of

SECONDS = 20.0
"""Processor time that a verb may take on inputs of a few kilobytes."""
WORK = ("--epochs", "--local-epochs", "--seeds", "--orders", "--shadows", "--patience")
"""Options that set the amount of work, so a long run may be right."""
MUCH = 10_000
BRIEFLY = 2.0
"""Seconds for such work."""
LONG = ("demo",)
"""Verbs that always train for long."""


@dataclass(frozen=True)
class Case:
    """A command and the damage that precedes it.

    Attributes:
        words: the words after `vestige`; W/ is the world, O/ the case's folder, and C/name a copy
            of W/name in it.
        damage: changes of copies of the world's files.
        about: a format, or "arguments".
        changed: the new words, one of which an error may have to name.
    """

    words: tuple[str, ...]
    damage: tuple[Damage, ...] = ()
    about: str = "arguments"
    changed: tuple[str, ...] = ()

    @property
    def verb(self) -> str:
        return self.words[0]

    @property
    def endless(self) -> bool:
        """Whether it may run for longer than a test can wait."""
        return self.verb in LONG or any(
            _number(value) >= MUCH for name, value in _options(self.words) if name in WORK
        )

    def written(self) -> str:
        """The command that repeats it."""
        text = json.dumps(asdict(self), ensure_ascii=True)
        return f"python -m tests.fuzz --repeat {shlex.quote(text)}"

    @classmethod
    def read(cls, text: str) -> "Case":
        """The case of a text by `written`."""
        fields = json.loads(text)
        fields["damage"] = [Damage(**damage) for damage in fields["damage"]]
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})


@dataclass(frozen=True)
class Attempt:
    """A case with its outcome and the files that it changed.

    Attributes:
        new, changed: paths.
        exposed: new files with a secret that users other than their owner may read.
        page: the text of new pages.
    """

    case: Case
    outcome: Outcome
    new: tuple[str, ...]
    changed: tuple[str, ...]
    exposed: tuple[str, ...]
    page: str = field(repr=False)


class Bench:
    """Tries cases in a sandbox with a world in it."""

    service = SERVICE
    """The code of the module `service`."""

    def __init__(self, sandbox: Sandbox, world: Path) -> None:
        self.sandbox, self.world = sandbox, world
        self._before = _snapshot(world)

    def attempt(self, case: Case, *, to_end: bool = False) -> Attempt:
        """Run a case in its folder, `to_end` or as long as it may take; list changed files."""
        folder = prepared(self.sandbox.root / "case")
        scratch = folder / "scratch"
        scratch.mkdir()
        _write_hostile_files(scratch)
        (folder / "cwd" / "service.py").write_text(self.service)
        words = [self._copied(word, scratch) for word in case.words]
        for number, damage in enumerate(case.damage):
            self._copied(f"C/{damage.file}", scratch)
            words = [_moved(word, damage.file) for word in words]
            with suppress(*((Exception,) if number else ())):  # the first may remove the file
                apply(damage, scratch / damage.file)
        before = _snapshot(folder)
        outcome = self.sandbox.run(
            words_of(words, world=self.world, scratch=scratch),
            folder,
            seconds=BRIEFLY if case.endless and not to_end else SECONDS,
        )
        after = _snapshot(folder)
        changed = [path for path in before if path not in after or before[path] != after[path]]
        if (now := _snapshot(self.world)) != self._before:
            changed += [
                f"W/{path}"
                for path in {*now, *self._before}
                if now.get(path) != self._before.get(path)
            ]
            self._before = now
        new = sorted(set(after) - set(before) - {"stdout", "stderr"})
        page = "".join(
            (folder / path).read_text("utf-8", "surrogateescape")
            for path in new
            if path.endswith(".html") and stat.S_ISREG((folder / path).lstat().st_mode)
        )
        return Attempt(case, outcome, tuple(new), tuple(changed), _exposed(folder, new), page)

    def _copied(self, word: str, scratch: Path) -> str:
        """The word with O/ for C/, after copying the file or folder."""
        if (match := re.search("(^|[=@])C/([^/]+)", word)) is None:
            return word
        for path in self.world.iterdir():  # and folders of unfinished work, such as NAME.partial
            unfinished = path.is_dir() and path.name.startswith(f"{match[2]}.")
            if (path.name == match[2] or unfinished) and not (scratch / path.name).exists():
                copy = shutil.copytree if path.is_dir() else shutil.copy
                copy(path, scratch / path.name)
        return word.replace("C/", "O/")


def _moved(word: str, file: str) -> str:
    """The word with the case's copy of a file instead of the world's."""
    return re.sub(f"(^|[=@])W/({re.escape(file.split('/')[0])})(?=/|$)", r"\1O/\2", word)


def _write_hostile_files(scratch: Path) -> None:
    """Files and folders that no command should name."""
    (scratch / "empty-file").touch()
    (scratch / "empty-folder").mkdir()
    (scratch / "full-folder").mkdir()
    (scratch / "full-folder" / "letter").write_text("mine")
    (scratch / "binary").write_bytes(bytes(range(256)))
    (scratch / "deep.json").write_text("[" * 100_000)
    os.mkfifo(scratch / "fifo")
    os.mkfifo(scratch / "fifo.jsonl")
    (scratch / "loop").symlink_to("loop")
    (scratch / "dangling").symlink_to("nowhere")
    (scratch / "unreadable").write_text("the gate\n")
    (scratch / "unreadable").chmod(0)
    (scratch / "unreadable-folder").mkdir(mode=0)
    (scratch / "read-only").mkdir(mode=0o500)
    (scratch / "\x1b[31m\u202e.jsonl").write_text('{"text": "the gate"}\n')


def _snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Mode, size, time and inode of all files in a folder."""
    files: dict[str, tuple[object, ...]] = {}
    for directory, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            key = os.path.relpath(path, folder)
            files[key] = (status.st_mode,)
            if stat.S_ISREG(status.st_mode):
                files[key] += (status.st_size, status.st_mtime_ns, status.st_ino)
    return {key: value for key, value in files.items() if key not in ("stdout", "stderr")}


def _exposed(folder: Path, new: list[str]) -> tuple[str, ...]:
    """Files with a secret that are in no private folder, except models and pages."""
    exposed = []
    for path in new:
        parents = [folder / part for part in PurePath(path).parents if part.parts[1:]]
        is_public = "model" in PurePath(path).parts or path.endswith(".html")
        if is_public or not stat.S_ISREG((folder / path).lstat().st_mode):
            continue
        if all(stat.S_IMODE(p.stat().st_mode) & 0o077 for p in (folder / path, *parents)):
            content = (folder / path).read_bytes()
            exposed += [path for secret in SECRETS if secret.encode() in content][:1]
    return tuple(exposed)


def _options(words: Sequence[str]) -> list[tuple[str, str]]:
    """Name and value of each option."""
    options = [tuple(word.split("=", 1)) for word in words if word.startswith("--") and "=" in word]
    return options + [(a, b) for a, b in itertools.pairwise(words) if a.startswith("--")]


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0
