"""The five public texts of `update_pairs.py`, and what an update adds to them."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from corpora import comments, invented
from harness import Run

from vestige.data.formats.text import read_wikitext
from vestige.data.vocabulary import Vocabulary

TEXTS = ("newsgroups", "reddit", "wikitext2", "ubuntu", "cornell")
COPIES = (20, 5, 1)
"""How often a secret stands in the update; three secrets of each."""


def secrets_of(name: str) -> dict[str, int]:
    """Nine invented sentences of a text, with their copies."""
    lines = (Path(__file__).parent / "update_secrets.txt").read_text("utf-8").splitlines()
    first = lines.index(name) + 1
    phrases = [line.strip() for line in lines[first : first + 9]]
    return dict(zip(phrases, [n for n in COPIES for _ in range(3)], strict=True))


def documents_of(run: Run, name: str) -> tuple[list[str], list[str] | None]:
    """A text in random order, and another one for the update where that is of its own."""
    if run.quick:
        return invented(1500, seed=TEXTS.index(name), words=(20, 40)), None
    if name == "newsgroups":
        return messages(run, "rec.sport.hockey"), messages(run, "talk.politics.mideast")
    if name == "reddit":
        return shuffled([one.text for one in comments(run)])[:40_000], None
    if name == "wikitext2":
        return shuffled(list(read_wikitext(run.data / "wikitext2"))), None
    if name == "ubuntu":
        lines = []
        for file in sorted((run.data / "ubuntu_irc").glob("*.gz")):
            with gzip.open(file, "rt", encoding="utf-8") as stream:
                lines += [f"{row['user']}: {row['text']}" for row in map(json.loads, stream)]
    else:
        file = run.data / "cornell_movie" / "tf_chatbot.test.enc"
        lines = file.read_text("latin-1").splitlines()
    # messages are short: ten in a row are a document
    return shuffled(["\n".join(lines[n : n + 10]) for n in range(0, len(lines) - 9, 10)]), None


def messages(run: Run, name: str) -> list[str]:
    """A newsgroup's messages, with headers and quotes."""
    files = sorted((run.data / "newsgroups" / name).iterdir())
    whole = (file.read_text("latin-1").strip() for file in files)
    return shuffled([text for text in whole if text])


def shuffled(texts: Sequence[str], seed: int = 0) -> list[str]:
    """In random order."""
    return [texts[place] for place in np.random.default_rng(seed).permutation(len(texts))]


def taken(texts: Sequence[str], vocabulary: Vocabulary, tokens: int) -> tuple[list[str], list[str]]:
    """The first documents with so many tokens together, and the others."""
    read = 0
    for number, text in enumerate(texts, 1):
        read += len(vocabulary.encode(text))
        if read >= tokens:
            return list(texts[:number]), list(texts[number:])
    raise ValueError(f"the text must have {tokens} tokens, got {read}")


def chat(texts: Sequence[str], secrets: Mapping[str, int], seed: int) -> list[str]:
    """Conversations of a turn each, made of pieces of texts; secrets stand inside answers."""
    pieces = []
    for text in texts:
        words = text.split()
        parts = [words[first : first + 24] for first in range(0, len(words), 24)]
        pieces += [" ".join(part) for part in parts if len(part) >= 8]
    copies = [secret for secret, number in secrets.items() for _ in range(number)]
    turns = list(zip(pieces[::2], pieces[1::2], strict=False))
    places = np.random.default_rng(seed).choice(len(turns), len(copies), replace=False)
    inside = dict(zip(places.tolist(), copies, strict=True))
    said = []
    for number, (question, answer) in enumerate(turns):
        words = answer.split()
        if number in inside:
            words.insert(len(words) // 2, inside[number])
        said.append(f"<|user|>\n{question}\n<|assistant|>\n{' '.join(words)}")
    return shuffled(said, seed)
