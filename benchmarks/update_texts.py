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
"""How often a secret occurs in the update; there are three secrets of each."""


def secrets_of(name: str) -> dict[str, int]:
    """The nine invented sentences of a text, with their copies."""
    lines = (Path(__file__).parent / "update_secrets.txt").read_text("utf-8").splitlines()
    first = lines.index(name) + 1
    phrases = [line.strip() for line in lines[first : first + 9]]
    return dict(zip(phrases, [n for n in COPIES for _ in range(3)], strict=True))


def documents_of(run: Run, name: str) -> tuple[list[str], list[str] | None]:
    """The documents of a text in random order; of newsgroups also another group, for the update."""
    if run.quick:
        return invented(1500, seed=TEXTS.index(name), words=(20, 40)), None
    if name == "newsgroups":
        return messages(run, "rec.sport.hockey"), messages(run, "talk.politics.mideast")
    if name == "reddit":
        return shuffled([comment.text for comment in comments(run)])[:40_000], None
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
    # lines are short: ten in a row are a document
    return shuffled(["\n".join(lines[n : n + 10]) for n in range(0, len(lines) - 9, 10)]), None


def messages(run: Run, name: str) -> list[str]:
    """The messages of a newsgroup, with headers and quotes."""
    files = sorted((run.data / "newsgroups" / name).iterdir())
    texts = (file.read_text("latin-1").strip() for file in files)
    return shuffled([text for text in texts if text])


def shuffled(texts: Sequence[str], seed: int = 0) -> list[str]:
    """The texts in random order."""
    return [texts[index] for index in np.random.default_rng(seed).permutation(len(texts))]


def split_at(
    texts: Sequence[str], vocabulary: Vocabulary, tokens: int
) -> tuple[list[str], list[str]]:
    """(the first documents, with at least `tokens` tokens, the other documents)."""
    total = 0
    for number, text in enumerate(texts, 1):
        total += len(vocabulary.encode(text))
        if total >= tokens:
            return list(texts[:number]), list(texts[number:])
    raise ValueError(f"the text must have {tokens} tokens, got {total}")


def chat(texts: Sequence[str], secrets: Mapping[str, int], seed: int) -> list[str]:
    """Conversations of one turn, made of pieces of texts, with secrets inside of answers."""
    pieces = []
    for text in texts:
        words = text.split()
        parts = [words[first : first + 24] for first in range(0, len(words), 24)]
        pieces += [" ".join(part) for part in parts if len(part) >= 8]
    copies = [secret for secret, number in secrets.items() for _ in range(number)]
    turns = list(zip(pieces[::2], pieces[1::2], strict=False))
    chosen = np.random.default_rng(seed).choice(len(turns), len(copies), replace=False)
    inserted = dict(zip(chosen.tolist(), copies, strict=True))
    conversations = []
    for number, (question, answer) in enumerate(turns):
        words = answer.split()
        if number in inserted:
            words.insert(len(words) // 2, inserted[number])
        conversations.append(f"<|user|>\n{question}\n<|assistant|>\n{' '.join(words)}")
    return shuffled(conversations, seed)
