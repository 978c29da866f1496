"""Texts that benchmarks read: real corpora from the data folder, or invented ones with `--quick`.

The data folder has `reddit_college`, `wikitext2`, `cornell_movie`, `newsgroups` and `ubuntu_irc`.
"""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from harness import Run

AUTHORS, COMMENTS_PER_AUTHOR = 120, 30
_LEXICON = tuple(a + b + c for a in "bdklmnprst" for b in "aeiou" for c in ("n", "sh", "ro", "mit"))


class Comment(NamedTuple):
    """A Reddit comment."""

    text: str
    author: str
    created: int
    name: str


def comments(run: Run) -> list[Comment]:
    """All comments, in the order of the file."""
    return _invented_comments() if run.quick else _reddit(run.data)


@cache
def _reddit(data: Path) -> list[Comment]:
    [path] = (data / "reddit_college").glob("*.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = map(json.loads, file)
        return [Comment(row["body"], row["author"], row["created"], row["id"]) for row in rows]


@cache
def _invented_comments() -> list[Comment]:
    texts = invented(AUTHORS * COMMENTS_PER_AUTHOR, seed=0, words=(8, 60))
    return [
        Comment(text, f"author {index // COMMENTS_PER_AUTHOR}", index, f"c{index}")
        for index, text in enumerate(texts)
    ]


def lines(run: Run, name: str) -> list[str]:
    """Lines of a file in the data folder, such as "wikitext2/wiki.valid.tokens"."""
    if run.quick:
        return invented(3000, seed=sum(map(ord, name)), words=(31, 60))
    return (run.data / name).read_text(encoding="utf-8", errors="replace").splitlines()


def films(run: Run) -> list[tuple[str, str]]:
    """Film lines with their answers, without duplicates, sorted."""
    sides = [lines(run, f"cornell_movie/tf_chatbot.test.{side}") for side in ("enc", "dec")]
    return sorted(set(zip(*sides, strict=True)))


def newsgroup(run: Run, name: str) -> list[str]:
    """Bodies of messages of ten words or more, without quoted lines."""
    if run.quick:
        return invented(600, seed=len(name), words=(20, 80))
    bodies = []
    for path in sorted((run.data / "newsgroups" / name).iterdir()):
        body = path.read_text(encoding="latin-1").partition("\n\n")[2]
        unquoted = [line for line in body.splitlines() if not _is_quoted(line)]
        bodies.append("\n".join(unquoted).strip())
    return [body for body in bodies if len(body.split()) >= 10]


def _is_quoted(line: str) -> bool:
    return line.lstrip().startswith((">", "|", ":")) or "writes:" in line


def invented(number: int, *, seed: int, words: tuple[int, int] = (8, 30)) -> list[str]:
    """Texts of random words with Zipf's frequencies; each has a length within `words`."""
    rng = np.random.default_rng([36, seed])
    texts = []
    for length in rng.integers(words[0], words[1] + 1, number):
        ranks = (rng.zipf(1.3, length) - 1) % len(_LEXICON)
        texts.append(" ".join(_LEXICON[rank] for rank in ranks))
    return texts


def digits(rng: np.random.Generator, count: int) -> str:
    """Random digits."""
    return "".join(map(str, rng.integers(10, size=count)))
