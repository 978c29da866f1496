"""Sound command lines whose files are not: which files a line reads, and what is done to one."""

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
"""What a file is, by its path; the first that fits."""
UNREAD = r"(README\.md|generation_config\.json|\.html|\.lock|\.svg)$"
RESUMED = r"(checkpoint\.safetensors|history\.json|log\.jsonl)$"
"""Read by a line that goes on with something, and by no other."""


def format_of(file: str) -> str:
    """The name of the format that a file of the world has."""
    return next((name for name, fits in FORMATS.items() if re.search(fits, file)), "other")


@cache
def readings(world: Path) -> dict[str, tuple[tuple[tuple[str, ...], str], ...]]:
    """By format: command lines, and a file that each of them reads."""
    found: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for verb in verbs():
        for words in sound(verb):
            for file in _read_by(words, world):
                found.setdefault(format_of(file), []).append((words, file))
    return {name: tuple(pairs) for name, pairs in found.items()}


@st.composite
def damaged(draw: st.DrawFn, world: Path, format: str) -> Case:
    """A sound line that reads a file of this format which has been changed, once or twice."""
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
    """The files of the world that a line names, or that stand where it points."""
    resumes = "--resume" in words or words[0] == "membership"
    found = []
    for word in words:
        if (named := re.search(r"(?:^|[=@])[WC]/(.+)", word)) is None:
            continue
        path = world / named[1]
        beside = [one for one in path.parent.glob(f"{path.name}.*") if one.is_dir()]
        folders = [one for one in (path, *beside) if one.is_dir()]
        files = [file for one in folders for file in sorted(one.rglob("*"))] or [path]
        names = [str(file.relative_to(world)) for file in files if file.is_file()]
        found += [
            n for n in names if not re.search(UNREAD if resumes else f"{UNREAD}|{RESUMED}", n)
        ]
    if "service:" in " ".join(words):
        found.append("service.py")
    return found
