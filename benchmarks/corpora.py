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

AUTHORS, COMMENTS_EACH = 120, 30
_LEXICON = tuple(a + b + c for a in "bdklmnprst" for b in "aeiou" for c in ("n", "sh", "ro", "mit"))


class Comment(NamedTuple):
    """A comment of Reddit."""

    text: str
    author: str
    group: str
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
        return [
            Comment(row["body"], row["author"], row["subreddit"], row["created"], row["id"])
            for row in rows
        ]


@cache
def _invented_comments() -> list[Comment]:
    texts = invented(AUTHORS * COMMENTS_EACH, seed=0, words=(8, 60))
    return [
        Comment(text, f"author {place // COMMENTS_EACH}", f"group {place % 3}", place, f"c{place}")
        for place, text in enumerate(texts)
    ]


def lines(run: Run, name: str) -> list[str]:
    """Lines of a file in the data folder, such as "wikitext2/wiki.valid.tokens"."""
    if run.quick:
        return invented(3000, seed=sum(map(ord, name)), words=(31, 60))
    return (run.data / name).read_text(encoding="utf-8", errors="replace").splitlines()


def films(run: Run) -> list[tuple[str, str]]:
    """Lines of films and their answers, each pair once, sorted."""
    sides = [lines(run, f"cornell_movie/tf_chatbot.test.{side}") for side in ("enc", "dec")]
    return sorted(set(zip(*sides, strict=True)))


def newsgroup(run: Run, name: str) -> list[str]:
    """Bodies of messages of ten words or more, without quoted lines."""
    if run.quick:
        return invented(600, seed=len(name), words=(20, 80))
    found = []
    for path in sorted((run.data / "newsgroups" / name).iterdir()):
        body = path.read_text(encoding="latin-1").partition("\n\n")[2]
        kept = [line for line in body.splitlines() if not _is_quoted(line)]
        found.append("\n".join(kept).strip())
    return [text for text in found if len(text.split()) >= 10]


def _is_quoted(line: str) -> bool:
    return line.lstrip().startswith((">", "|", ":")) or "writes:" in line


def invented(number: int, *, seed: int, words: tuple[int, int] = (8, 30)) -> list[str]:
    """Texts of random words, some frequent and most rare, of each author's own liking."""
    chance = np.random.default_rng([36, seed])
    lengths = chance.integers(words[0], words[1] + 1, number)
    found = []
    for length in lengths:
        ranks = (chance.zipf(1.3, length) - 1) % len(_LEXICON)
        found.append(" ".join(_LEXICON[rank] for rank in ranks))
    return found


def digits(chance: np.random.Generator, count: int) -> str:
    """Random digits."""
    return "".join(map(str, chance.integers(10, size=count)))
