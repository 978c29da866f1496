"""What is wrong with how a verb took its input?"""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath

from tests.fuzz.arguments import OPTIONS
from tests.fuzz.cases import Tried
from tests.fuzz.world import SECRETS
from vestige.claims import VERDICTS

MEMORY = 2**30
"""Bytes that a verb may take beyond those of its libraries, on inputs of a few kilobytes."""
CODES = (0, 2, 130, 143)
"""Done, refused, ended by Ctrl-C, ended by SIGTERM."""
WRITTEN = ("--out", "--shadow-dir", "--junit", "--markdown", "--write-baseline")
"""Options that say where something shall be written."""
LONGEST = 1500
"""Letters of an error."""
KINDS = (
    "traceback", "signal", "exit", "late", "memory", "half-written", "stray", "input changed",
    "open", "secret", "control", "unclear", "noise", "json",
)  # fmt: skip
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_ERROR = re.compile(r"^vestige: |^Error: |─ Error ─", re.MULTILINE)
_NOISE = re.compile(r"^.*(Warning: |WARNING|\bUserWarning\b).*$", re.MULTILINE)


@dataclass(frozen=True)
class Complaint:
    """What is wrong.

    Attributes:
        kind: one of `KINDS`.
        key: the same for what has the same cause, as far as can be told from outside.
        text: what was seen.
    """

    kind: str
    key: str
    text: str


def complaints(tried: Tried) -> list[Complaint]:
    """All that is wrong with one case."""
    return [
        Complaint(kind, key if kind == "traceback" else f"{tried.case.verb}: {key}", text)
        for kind, key, text in _found(tried)
    ]


def _found(tried: Tried) -> Iterator[tuple[str, str, str]]:
    case, outcome = tried.case, tried.outcome
    shown = outcome.stdout + outcome.stderr
    working = bool(outcome.late) and case.endless
    if "Traceback (most recent call last)" in shown:
        yield "traceback", _where(shown), shown[shown.rindex("Traceback") :][-1500:]
    elif outcome.late and not working:
        yield "late", outcome.late.split(" ")[-1], outcome.late
    elif outcome.signal and not outcome.late:
        yield "signal", str(outcome.signal), shown[-500:]
    elif outcome.code not in CODES and not outcome.late and not _with_verdict(tried):
        yield "exit", str(outcome.code), shown[-500:]
    if outcome.memory > MEMORY:
        yield "memory", "", f"{outcome.memory / 2**30:.1f} GiB"
    if outcome.code == 2:
        yield from _message(tried)
    if not outcome.late:
        yield from _left(tried)
    yield from _text("terminal", shown, secrets="--show-secrets" in case.words)
    yield from _text("page", tried.page, secrets="--show-secrets" in case.words)
    if noise := _NOISE.search(outcome.stderr):
        yield "noise", re.sub(r"[^ ]*[/\d][^ ]*", "…", noise[0])[:80], noise[0]
    asked = "--json" in case.words and case.words[case.words.index("--json") - 1] != "--out"
    if asked and outcome.code in (0, 1, 3) and not _is_json(outcome.stdout):
        yield "json", "", outcome.stdout[:500]


def _with_verdict(tried: Tried) -> bool:
    """Whether the code is that of a leak or of an undecided verdict, which was printed."""
    verdicts = tuple(verdict.upper() for verdict in VERDICTS)
    said = tried.outcome.stdout.lstrip("{\n ")
    begins = said.startswith(("Passed", "Failed", '"verdict"', *verdicts))
    return begins and tried.outcome.code in (1, 3)


def _message(tried: Tried) -> Iterator[tuple[str, str, str]]:
    """An error is one short message that names what was wrong."""
    said = tried.outcome.stderr
    starts = [found.start() for found in _ERROR.finditer(said)]
    if len(starts) != 1:
        yield "unclear", f"{len(starts)} messages", said[-1000:]
        return
    message = said[starts[0] :]
    if len(message) > LONGEST:
        yield "unclear", "long", f"{len(message)} letters: {message[:300]}"
    if message.startswith("vestige: ") and not re.search(r"[.:;)] .*[.)]$", message[9:].strip()):
        yield "unclear", "no remedy", message
    plain = _plain(message)
    if "unexpected argument" in message or "Missing " in message:
        return  # the first are counted and not quoted, the second named by what they are
    if not any(_named(name, plain) for name in _names(tried)):
        yield "unclear", "names nothing", message


def _names(tried: Tried) -> Iterator[str]:
    """What an error may name: options of the verb, and what the case gave it."""
    case = tried.case
    yield from _ONE_OF_A_KIND
    for each in OPTIONS[case.verb]:
        names = (each.field_info.name.upper(), *each.names)
        yield from (_plain(name) for name in names if name and len(name) > 3)
    for word in (*case.words[1:], *case.changed, *(damage.file for damage in case.damage)):
        for part in word.split("="):
            parts = [name for name in PurePath(part).parts if name not in ("W", "O", "C")]
            for name in (part, part.encode("unicode_escape").decode(), *parts):
                if plain := _plain(name)[:40]:
                    yield plain


_ONE_OF_A_KIND = ("the-corpus", "the-vocabularies")
"""What a verb is given one of, or one pair, so that its kind tells which."""


def _named(name: str, message: str) -> bool:
    """Whether a message has a name in it; a short one by itself."""
    place = message.find(name)
    if len(name) > 2 or place < 0:
        return place >= 0
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message) is not None


def _plain(text: str) -> str:
    return re.sub(r"[-_ \n│]+", "-", text.strip("-")).lower()


def _left(tried: Tried) -> Iterator[tuple[str, str, str]]:
    """Inputs are as they were, no file is left that nobody wants, an error leaves nothing."""
    named = {part for word in tried.case.words for part in (word, *word.split("=", 1))}
    named |= {word[: word.index("=") + 1] for word in tried.case.words if "=" in word}
    elsewhere = [path for path in tried.new if path.startswith(("tmp/", "cwd/", "home/"))]
    stray = [
        path
        for path in elsewhere
        if path.split("/")[1] not in named and not (path.startswith("cwd/") and {"", "."} & named)
    ]
    made = [path for path in tried.new if path.startswith("own/")]
    stray += [path for path in made if _hidden(path)]
    if stray:
        yield "stray", _pattern(stray[0]), " ".join(stray[:20])
    failed = tried.outcome.code != 0 and not _with_verdict(tried)
    if failed and made:
        yield "half-written", _pattern(made[0]), " ".join(made[:20])
    if tried.open:
        yield "open", _pattern(tried.open[0]), " ".join(tried.open[:20])
    outs = [word[2:] for word in _places(tried.case.words) if word[:2] in ("C/", "O/")]
    changed = [
        path
        for path in tried.changed
        if failed or not path.removeprefix("own/").startswith(tuple(outs))
    ]
    if changed:
        yield "input changed", _pattern(changed[0]), " ".join(changed[:20])


def _places(words: Sequence[str]) -> Iterator[str]:
    """Where a command line has something written."""
    for before, word in pairwise(words):
        name, _, value = word.partition("=")
        if before in WRITTEN:
            yield word
        elif name in WRITTEN:
            yield value


def _hidden(path: str) -> bool:
    name = PurePath(path).name
    return name.startswith(".") and not name.endswith((".lock", ".damaged"))


def _pattern(path: str) -> str:
    return re.sub(r"\.[a-z0-9_]{8}\b|[0-9a-f]{16}", "*", path)[:80]


def _text(where: str, text: str, *, secrets: bool) -> Iterator[tuple[str, str, str]]:
    """Nothing private, unless asked for, and nothing that a terminal would obey."""
    low = text.lower()
    for secret in SECRETS:
        if not secrets and secret in low:
            place = low.index(secret)
            yield "secret", f"{where}: {secret}", text[max(0, place - 200) : place + 200]
            break
    for place, letter in enumerate(text):
        if letter not in "\n" and (
            unicodedata.category(letter)[0] == "C" or letter in "\u2028\u2029"
        ):
            around = ascii(text[max(0, place - 100) : place + 100])
            yield "control", f"{where}: {letter!a}", around
            break


def _is_json(text: str) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


def _where(shown: str) -> str:
    """The last frame of our own, and what was raised."""
    trace = shown[shown.rindex("Traceback (most recent call last)") :]
    frames = [f for f in _FRAME.finditer(trace) if "/vestige/" in f["file"]]
    last = frames[-1] if frames else None
    place = f"{PurePath(last['file']).name}:{last['name']}" if last else "?"
    raised = [line for line in trace.splitlines()[1:] if line and not line.startswith(" ")]
    return f"{place} {raised[0].split(':')[0] if raised else '?'}"
