"""Sound command lines with a damaged input file of each format."""

import re
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from tests.fuzz.arguments import sound, verbs
from tests.fuzz.cases import Case
from tests.fuzz.damage import Damage, ways_of

FORMATS = {
    "manifest": r"manifest\.json$",
    "vocabulary": r"vocabulary\.json$",
    "model": r"model/model\.json$",
    "hugging face": r"(config|tokenizer\w*|adapter_config|index)\.json$",
    "weights": r"model[-\w]*\.safetensors$",
    "checkpoint": r"(checkpoint\.safetensors|training\.json|history\.json|log\.jsonl)$",
    "encoded": r"(encoded\.json|\.npy)$",
    "run": r"(run|summary)\.json$",
    "rows": r"rows\.parquet$",
    "shadow": r"shadow\.json$",
    "work": r"work\.sqlite$",
    "jsonl": r"\.jsonl$",
    "csv": r"\.csv$",
    "parquet": r"\.parquet$",
    "gzip": r"\.gz$",
    "text": r"\.txt$",
    "code": r"\.py$",
}
"""Patterns of paths; the first match is the format of a file."""
UNREAD = r"(README\.md|generation_config\.json|\.html|\.lock|\.svg)$"
RESUMED = r"(checkpoint\.safetensors|history\.json|log\.jsonl)$"
"""Files that only a resuming command reads."""


def format_of(file: str) -> str:
    """The name of a file's format."""
    return next((name for name, pattern in FORMATS.items() if re.search(pattern, file)), "other")


@cache
def readings(world: Path) -> dict[str, tuple[tuple[tuple[str, ...], str], ...]]:
    """By format: pairs of a command line and a file that it reads."""
    pairs: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for verb in verbs():
        for words in sound(verb):
            for file in _read_by(words, world):
                pairs.setdefault(format_of(file), []).append((words, file))
    return {name: tuple(of_format) for name, of_format in pairs.items()}


@st.composite
def damaged(draw: st.DrawFn, world: Path, format: str) -> Case:
    """A sound line that reads a file of the format with one or two changes."""
    words, file = draw(st.sampled_from(readings(world)[format]))
    damage = tuple(draw(_damage(file)) for _ in range(draw(st.sampled_from((1, 1, 1, 2)))))
    if len(damage) == 2 and "place" in (damage[0].how, damage[1].how):
        damage = damage[:1]
    return Case(words, damage=damage, about=format)


@st.composite
def _damage(draw: st.DrawFn, file: str) -> Damage:
    ways = ways_of(file)
    how = draw(
        st.sampled_from(
            [way for way in ways for _ in range(1 + 5 * (way not in ("bytes", "place")))]
        )
    )
    what = draw(st.sampled_from(ways[how]))
    at = draw(st.integers(0, 9) | st.integers(0, 2**16))
    return Damage(file, how, what, at, sealed=draw(st.booleans()))


def _read_by(words: tuple[str, ...], world: Path) -> list[str]:
    """The files of the world that a line names, directly or by their folder."""
    resumes = "--resume" in words or words[0] == "membership"
    unread = UNREAD if resumes else f"{UNREAD}|{RESUMED}"
    result = []
    for word in words:
        if (match := re.search(r"(?:^|[=@])[WC]/(.+)", word)) is None:
            continue
        path = world / match[1]
        folders = [p for p in (path, *path.parent.glob(f"{path.name}.*")) if p.is_dir()]
        files = [file for folder in folders for file in sorted(folder.rglob("*"))] or [path]
        names = [str(file.relative_to(world)) for file in files if file.is_file()]
        result += [name for name in names if not re.search(unread, name)]
    if "service:" in " ".join(words):
        result.append("service.py")
    return result
