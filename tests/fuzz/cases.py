"""A case: a command line and what was done to the files that it reads."""

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
"""Of processor that a verb may take on inputs of a few kilobytes."""
WORK = ("--epochs", "--local-epochs", "--seeds", "--orders", "--shadows", "--patience")
"""Options by which somebody asks for as much work as they like: to go on is right."""
MUCH = 10_000
BRIEFLY = 2.0
"""Seconds that are given to such work."""
LONG = ("demo",)
"""Verbs that train for more than a moment whatever they are given."""


@dataclass(frozen=True)
class Case:
    """What is tried.

    Attributes:
        words: what stands after `vestige`; W/ is the world, O/ a folder of the case's own, and
            C/name a copy of W/name in it.
        damage: what is done to copies of the world's files before.
        about: what the case is about, for who reads the table: a format, or "arguments".
        changed: the words that were put in, for who asks whether an error names them.
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
        """Whether it asks for more work than anybody waits for."""
        return self.verb in LONG or any(
            _number(value) >= MUCH for name, value in _options(self.words) if name in WORK
        )

    def written(self) -> str:
        """The command that repeats it."""
        plain = json.dumps(asdict(self), ensure_ascii=True)
        return f"python -m tests.fuzz --repeat {shlex.quote(plain)}"

    @classmethod
    def read(cls, text: str) -> "Case":
        """What `written` has written."""
        known = json.loads(text)
        damage = tuple(Damage(**each) for each in known.pop("damage"))
        return cls(
            **{k: tuple(v) if isinstance(v, list) else v for k, v in known.items()}, damage=damage
        )


@dataclass(frozen=True)
class Tried:
    """A case, what became of it, and what the folders held before and after.

    Attributes:
        case, outcome: see there.
        new, changed: paths.
        open: new files with something private in them that others than their owner may read.
        page: all that stands in new pages.
    """

    case: Case
    outcome: Outcome
    new: tuple[str, ...]
    changed: tuple[str, ...]
    open: tuple[str, ...]
    page: str = field(repr=False)


class Bench:
    """Where cases are tried: a sandbox with a world in it."""

    service = SERVICE
    """What a case finds as the module `service`."""

    def __init__(self, sandbox: Sandbox, world: Path) -> None:
        self.sandbox, self.world = sandbox, world
        self._before = _held(world)

    def attempt(self, case: Case, *, whole: bool = False) -> Tried:
        """Make the case's folder, run it (`whole`: to its end), and look at what has changed."""
        folder = prepared(self.sandbox.root / "case")
        own = folder / "own"
        own.mkdir()
        _hostile(own)
        (folder / "cwd" / "service.py").write_text(self.service)
        words = [self._copied(word, own) for word in case.words]
        for place, damage in enumerate(case.damage):
            self._copied(f"C/{damage.file}", own)
            words = [_moved(word, damage.file) for word in words]
            with suppress(*((Exception,) if place else ())):  # the first has left no such file
                apply(damage, own / damage.file)
        before = _held(folder)
        outcome = self.sandbox.run(
            words_of(words, world=self.world, own=own),
            folder,
            seconds=BRIEFLY if case.endless and not whole else SECONDS,
        )
        after = _held(folder)
        changed = [path for path in before if path not in after or before[path] != after[path]]
        if (now := _held(self.world)) != self._before:
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
        return Tried(case, outcome, tuple(new), tuple(changed), _open(folder, new), page)

    def _copied(self, word: str, own: Path) -> str:
        """The word, with O/ for C/ once the copy is there."""
        if (found := re.search("(^|[=@])C/([^/]+)", word)) is None:
            return word
        for one in self.world.iterdir():  # with the work of an unfinished run beside it
            beside = one.is_dir() and one.name.startswith(f"{found[2]}.")
            if (one.name == found[2] or beside) and not (own / one.name).exists():
                copy = shutil.copytree if one.is_dir() else shutil.copy
                copy(one, own / one.name)
        return word.replace("C/", "O/")


def _moved(word: str, file: str) -> str:
    """The word, with the case's own copy in place of the world's."""
    return re.sub(f"(^|[=@])W/({re.escape(file.split('/')[0])})(?=/|$)", r"\1O/\2", word)


def _hostile(own: Path) -> None:
    """What a path may name that nobody meant."""
    (own / "empty-file").touch()
    (own / "empty-folder").mkdir()
    (own / "full-folder").mkdir()
    (own / "full-folder" / "letter").write_text("mine")
    (own / "binary").write_bytes(bytes(range(256)))
    (own / "deep.json").write_text("[" * 100_000)
    os.mkfifo(own / "fifo")
    os.mkfifo(own / "fifo.jsonl")
    (own / "loop").symlink_to("loop")
    (own / "dangling").symlink_to("nowhere")
    (own / "unreadable").write_text("the gate\n")
    (own / "unreadable").chmod(0)
    (own / "unreadable-folder").mkdir(mode=0)
    (own / "read-only").mkdir(mode=0o500)
    (own / "\x1b[31m\u202e.jsonl").write_text('{"text": "the gate"}\n')


def _held(folder: Path) -> dict[str, tuple[object, ...]]:
    """What a folder holds, by path: kind, rights, size and time of the last change."""
    held: dict[str, tuple[object, ...]] = {}
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(where, name)
            about = os.lstat(path)
            key = os.path.relpath(path, folder)
            if stat.S_ISREG(about.st_mode):
                held[key] = (about.st_mode, about.st_size, about.st_mtime_ns, about.st_ino)
            else:
                held[key] = (about.st_mode,)
    return {key: value for key, value in held.items() if key not in ("stdout", "stderr")}


def _open(folder: Path, new: list[str]) -> tuple[str, ...]:
    """Files with something private in them, in no private folder; a model and a page are meant."""
    found = []
    for path in new:
        parents = [folder / part for part in PurePath(path).parents if part.parts[1:]]
        meant = "model" in PurePath(path).parts or path.endswith(".html")
        if meant or not stat.S_ISREG((folder / path).lstat().st_mode):
            continue
        if all(stat.S_IMODE(each.stat().st_mode) & 0o077 for each in (folder / path, *parents)):
            content = (folder / path).read_bytes()
            found += [path for secret in SECRETS if secret.encode() in content][:1]
    return tuple(found)


def _options(words: Sequence[str]) -> list[tuple[str, str]]:
    """Name and value of each option, whichever way it is written."""
    found = [tuple(word.split("=", 1)) for word in words if word.startswith("--") and "=" in word]
    found += [(a, b) for a, b in itertools.pairwise(words) if a.startswith("--")]
    return found


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0
