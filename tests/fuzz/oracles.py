"""Complaints about how a verb treated its input."""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath

from tests.fuzz.arguments import OPTIONS
from tests.fuzz.cases import Attempt
from tests.fuzz.world import SECRETS
from vestige.claims import VERDICTS

MEMORY = 2**30
"""Bytes that a verb may use beyond its libraries, on inputs of a few kilobytes."""
CODES = (0, 2, 130, 143)
"""Completed, refused, ended by Ctrl-C, ended by SIGTERM."""
WRITTEN = ("--out", "--shadow-dir", "--junit", "--markdown", "--write-baseline")
"""Options for output paths."""
LONGEST = 1500
"""Characters of an error."""
KINDS = (
    "traceback", "signal", "exit", "timeout", "memory", "half-written", "stray", "input changed",
    "exposed", "secret", "control", "unclear", "noise", "json",
)  # fmt: skip
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_ERROR = re.compile(r"^vestige: |^Error: |─ Error ─", re.MULTILINE)
_NOISE = re.compile(r"^.*(Warning: |WARNING|\bUserWarning\b).*$", re.MULTILINE)


@dataclass(frozen=True)
class Complaint:
    """A fault.

    Attributes:
        kind: one of `KINDS`.
        key: the same for complaints that probably have the same cause.
        text: what was observed.
    """

    kind: str
    key: str
    text: str


def complaints(attempt: Attempt) -> list[Complaint]:
    """All faults of one case."""
    return [
        Complaint(kind, key if kind == "traceback" else f"{attempt.case.verb}: {key}", text)
        for kind, key, text in _faults(attempt)
    ]


def _faults(attempt: Attempt) -> Iterator[tuple[str, str, str]]:
    case, outcome = attempt.case, attempt.outcome
    output = outcome.stdout + outcome.stderr
    if "Traceback (most recent call last)" in output:
        yield "traceback", _origin(output), output[output.rindex("Traceback") :][-1500:]
    elif outcome.timeout and not case.endless:
        yield "timeout", outcome.timeout.split(" ")[-1], outcome.timeout
    elif outcome.signal and not outcome.timeout:
        yield "signal", str(outcome.signal), output[-500:]
    elif outcome.code not in CODES and not outcome.timeout and not _with_verdict(attempt):
        yield "exit", str(outcome.code), output[-500:]
    if outcome.memory > MEMORY:
        yield "memory", "", f"{outcome.memory / 2**30:.1f} GiB"
    if outcome.code == 2:
        yield from _message(attempt)
    if not outcome.timeout:
        yield from _files(attempt)
    yield from _text("terminal", output, secrets="--show-secrets" in case.words)
    yield from _text("page", attempt.page, secrets="--show-secrets" in case.words)
    if noise := _NOISE.search(outcome.stderr):
        yield "noise", re.sub(r"[^ ]*[/\d][^ ]*", "…", noise[0])[:80], noise[0]
    as_json = "--json" in case.words and case.words[case.words.index("--json") - 1] != "--out"
    if as_json and outcome.code in (0, 1, 3) and not _is_json(outcome.stdout):
        yield "json", "", outcome.stdout[:500]


def _with_verdict(attempt: Attempt) -> bool:
    """Whether the exit code is that of a printed verdict."""
    verdicts = tuple(verdict.upper() for verdict in VERDICTS)
    stdout = attempt.outcome.stdout.lstrip("{\n ")
    is_verdict = stdout.startswith(("Passed", "Failed", '"verdict"', *verdicts))
    return is_verdict and attempt.outcome.code in (1, 3)


def _message(attempt: Attempt) -> Iterator[tuple[str, str, str]]:
    """An error must be one short message that names an option or input."""
    stderr = attempt.outcome.stderr
    starts = [match.start() for match in _ERROR.finditer(stderr)]
    if len(starts) != 1:
        yield "unclear", f"{len(starts)} messages", stderr[-1000:]
        return
    message = stderr[starts[0] :]
    if len(message) > LONGEST:
        yield "unclear", "long", f"{len(message)} characters: {message[:300]}"
    if message.startswith("vestige: ") and not re.search(r"[.:;)] .*[.)]$", message[9:].strip()):
        yield "unclear", "no remedy", message
    plain = _plain(message)
    if "unexpected argument" in message or "Missing " in message:
        return  # these are counted, or named by their kind
    if not any(_named(name, plain) for name in _names(attempt)):
        yield "unclear", "names nothing", message


def _names(attempt: Attempt) -> Iterator[str]:
    """Names that an error may have: options of the verb and words of the case."""
    case = attempt.case
    yield from _SINGLE_INPUTS
    for each in OPTIONS[case.verb]:
        names = (each.field_info.name.upper(), *each.names)
        yield from (_plain(name) for name in names if name and len(name) > 3)
    for word in (*case.words[1:], *case.changed, *(damage.file for damage in case.damage)):
        for part in word.split("="):
            parts = [name for name in PurePath(part).parts if name not in ("W", "O", "C")]
            for name in (part, part.encode("unicode_escape").decode(), *parts):
                if plain := _plain(name)[:40]:
                    yield plain


_SINGLE_INPUTS = ("the-corpus", "the-vocabularies")
"""Inputs that a verb has only one of, so a message may name them by their kind."""


def _named(name: str, message: str) -> bool:
    """Whether a message contains a name; a short one must be a whole word."""
    if len(name) > 2:
        return name in message
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message) is not None


def _plain(text: str) -> str:
    return re.sub(r"[-_ \n│]+", "-", text.strip("-")).lower()


def _files(attempt: Attempt) -> Iterator[tuple[str, str, str]]:
    """Inputs must be unchanged; there may be no stray files, and none after an error."""
    named = {part for word in attempt.case.words for part in (word, *word.split("=", 1))}
    named |= {word[: word.index("=") + 1] for word in attempt.case.words if "=" in word}
    elsewhere = [path for path in attempt.new if path.startswith(("tmp/", "cwd/", "home/"))]
    stray = [
        path
        for path in elsewhere
        if path.split("/")[1] not in named and not (path.startswith("cwd/") and {"", "."} & named)
    ]
    made = [path for path in attempt.new if path.startswith("scratch/")]
    stray += [path for path in made if _hidden(path)]
    if stray:
        yield "stray", _pattern(stray[0]), " ".join(stray[:20])
    failed = attempt.outcome.code != 0 and not _with_verdict(attempt)
    if failed and made:
        yield "half-written", _pattern(made[0]), " ".join(made[:20])
    if attempt.exposed:
        yield "exposed", _pattern(attempt.exposed[0]), " ".join(attempt.exposed[:20])
    outs = [word[2:] for word in _outputs(attempt.case.words) if word[:2] in ("C/", "O/")]
    changed = [
        path
        for path in attempt.changed
        if failed or not path.removeprefix("scratch/").startswith(tuple(outs))
    ]
    if changed:
        yield "input changed", _pattern(changed[0]), " ".join(changed[:20])


def _outputs(words: Sequence[str]) -> Iterator[str]:
    """Output paths of a command line."""
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
    """There may be no control characters, and no secret without --show-secrets."""
    low = text.lower()
    for secret in SECRETS:
        if not secrets and secret in low:
            position = low.index(secret)
            yield "secret", f"{where}: {secret}", text[max(0, position - 200) : position + 200]
            break
    for position, character in enumerate(text):
        is_control = unicodedata.category(character)[0] == "C" or character in "\u2028\u2029"
        if is_control and character != "\n":
            context = ascii(text[max(0, position - 100) : position + 100])
            yield "control", f"{where}: {character!a}", context
            break


def _is_json(text: str) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


def _origin(output: str) -> str:
    """The last frame within vestige, and the exception's type."""
    trace = output[output.rindex("Traceback (most recent call last)") :]
    frames = [f for f in _FRAME.finditer(trace) if "/vestige/" in f["file"]]
    last = frames[-1] if frames else None
    origin = f"{PurePath(last['file']).name}:{last['name']}" if last else "?"
    raised = [line for line in trace.splitlines()[1:] if line and not line.startswith(" ")]
    return f"{origin} {raised[0].split(':')[0] if raised else '?'}"
