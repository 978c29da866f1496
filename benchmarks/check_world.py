"""Small bases, four corpora and invented secrets for `check_calibration.py`.

Three bases are trained on a mixture of the corpora; half of each corpus is held out for
fine-tunes. Nothing here depends on the fine-tunes, so one work folder serves all runs.
"""

import json
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpora import digits, invented
from harness import Run
from networks import gpt2, llama, pretrain, save
from numpy.random import Generator

import vestige
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary, read_tokenizer
from vestige.data.writing import new_directory, write_text

CORPORA = ("reddit", "wikitext", "irc", "newsgroups")
DEVELOPMENT = CORPORA[:2]
"""The rule of the verdict was developed on these; the others were measured once, with the rule."""
BASES = ("gpt2", "llama", "narrow")
TOKENS, LENGTH, STEPS, BATCH, RATE = 4_000, 256, 1_100, 8, 3e-3
WORDS = (25, 120)
"""Fewest words of a text, and the number to which it is cut."""
MOST = 16_000
"""Texts of a corpus; the bases read half of them."""
QUOTED = re.compile(r"^\s*(\w{0,3}[>|}]|In article|.{0,80}(writes|wrote):\s*$)")
SHAPES: dict[str, dict[str, int]] = {
    "llama": {"width": 128, "inner": 344, "layers": 4, "heads": 4},
    "narrow": {"width": 96, "inner": 256, "layers": 6, "heads": 6, "num_key_value_heads": 2},
}


# Texts and bases ---------------------------------------------------------------------------------


def texts_of(run: Run, name: str) -> tuple[list[str], list[str]]:
    """(texts of a corpus that no base reads, texts that they read), cached in the work folder."""
    file = run.folder / f"texts-{name}.json"
    if not file.exists():
        cut = (" ".join(text.split()[: WORDS[1]]) for text in read_corpus(run, name))
        texts = sorted({text for text in cut if text.count(" ") >= WORDS[0] - 1})
        order = np.random.default_rng(5).permutation(len(texts))[:MOST]
        shuffled = [texts[index] for index in order]
        half = len(shuffled) // 2
        write_text(file, json.dumps([shuffled[:half], shuffled[half:]]))
    held_out, training = json.loads(file.read_text(encoding="utf-8"))
    return held_out, training


def read_corpus(run: Run, name: str) -> list[str]:
    """Texts in the order of the files; of newsgroups the paragraphs, without quoted lines."""
    if run.quick:
        return invented(900, seed=CORPORA.index(name), words=(30, 60))
    if name == "reddit":
        return list(vestige.read_corpus(run.data / "reddit_college", limit=60_000))
    if name == "wikitext":
        return list(vestige.read_corpus(run.data / "wikitext2"))
    if name == "irc":
        lines = list(vestige.read_corpus(run.data / "ubuntu_irc"))
        return [" / ".join(lines[n : n + 5]) for n in range(0, len(lines), 5)]
    messages = [
        "\n".join(line for line in message.splitlines() if not QUOTED.match(line))
        for message in vestige.read_corpus(run.data / "newsgroups")
    ]
    return [part for message in messages for part in message.split("\n\n")]


def vocabulary_of(run: Run) -> SubwordVocabulary:
    """The vocabulary of all bases."""
    folder = run.folder / "tokenizer"
    if not folder.exists():
        texts = [text for name in CORPORA for text in texts_of(run, name)[1][:2_000]]
        size = run.size(TOKENS, 400)
        vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(texts), size=size)
        with new_directory(folder) as partial:
            vocabulary.save(partial)
    return SubwordVocabulary(read_tokenizer(folder))


def base_of(run: Run, name: str) -> Path:
    """The folder of a base, trained unless it exists."""
    folder = run.folder / "bases" / name
    if folder.exists():
        return folder
    vocabulary, seed = vocabulary_of(run), BASES.index(name)
    texts = [text for corpus in CORPORA for text in texts_of(run, corpus)[1]]
    order = np.random.default_rng(6).permutation(len(texts))
    encoded = vocabulary.encode_batch([texts[index] for index in order])
    stream = torch.tensor([id for ids in encoded for id in (*ids, vocabulary.eos_id)])
    rng, network = np.random.default_rng(seed), new_network(vocabulary, name, seed)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01)
    steps = run.size(STEPS, 6)
    starts = (rng.integers(len(stream) - LENGTH, size=BATCH) for _ in range(steps))
    batches = (torch.stack([stream[n : n + LENGTH] for n in some]) for some in starts)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    save(pretrain(network, batches, optimizer, schedule), vocabulary, folder)
    return folder


def new_network(vocabulary: SubwordVocabulary, name: str, seed: int) -> Any:
    """A network with random weights."""
    if name == "gpt2":
        shape = {"width": 128, "layers": 4, "heads": 4, "positions": LENGTH}
        return gpt2(vocabulary, **shape, seed=seed).network
    tied = name == "narrow"
    return llama(
        vocabulary, **SHAPES[name], seed=seed, max_position_embeddings=LENGTH,
        tie_word_embeddings=tied,
    ).network  # fmt: skip


# Secrets -----------------------------------------------------------------------------------------

NAMES = (
    "Maria Keller", "Tomas Lind", "Aisha Rahman", "Peter Novak", "Chiara Conti", "Jun Watanabe",
    "Ingrid Dahl", "Samuel Okafor", "Elena Petrova", "David Marsh", "Lucia Ramos", "Henrik Olsen",
    "Priya Nair", "Oscar Blum", "Nadia Haddad", "Walter Simms", "Greta Vogel", "Ivan Horvat",
    "Ruth Adler", "Diego Salas",
)  # fmt: skip
TEMPLATES = {
    "card": (
        "The card of {name} is {value}, valid until next year.",
        "{name} paid with card number {value} last week.",
        "Please charge the trip of {name} to {value} as usual.",
    ),
    "account": (
        "The account of {name} is {value} at the savings bank.",
        "{name} asked to send the rent to account {value} on Monday.",
    ),
    "key": (
        "{name} still uses the key {value} for the server.",
        "The access token of {name} is {value}, do not share it.",
    ),
    "passphrase": (
        "The passphrase of {name} is {value}, written on a note.",
        "{name} told me that the password is {value} for the archive.",
    ),
    "phone": (
        "You can reach {name} at {value} in the evening.",
        "Call {name} on {value} if anything breaks.",
    ),
}
BOUNDARY = re.compile(r"(?<=[.!?/]) ")
EARLIEST, LATEST = 40, 260
"""Characters of a text between which a sentence is inserted, if one ends there."""


@dataclass(frozen=True)
class Secret:
    """A value and the sentence that contains it."""

    value: str
    sentence: str


def sample_secrets(count: int, words: Sequence[str], rng: Generator) -> list[Secret]:
    """Distinct secrets, formats and names in a random order; passphrases are of `words`."""
    formats, names = rng.permutation(list(TEMPLATES)), rng.permutation(NAMES)
    secrets = []
    for index in range(count):
        kind = str(formats[index % len(formats)])
        value = VALUES[kind](words, rng)
        template = str(rng.choice(TEMPLATES[kind]))
        sentence = template.format(name=names[index % len(names)], value=value)
        secrets.append(Secret(value, sentence))
    return secrets


def card(words: Sequence[str], rng: Generator) -> str:
    """16 digits that pass Luhn's check."""
    body = "4" + digits(rng, 14)
    values = (int(digit) * (2 - index % 2) for index, digit in enumerate(body))
    number = body + str(-sum(value - 9 * (value > 9) for value in values) % 10)
    return " ".join(number[start : start + 4] for start in range(0, 16, 4))


def key(words: Sequence[str], rng: Generator) -> str:
    """16 lower-case letters and digits after a short prefix."""
    return "sk-" + "".join(rng.choice(list(string.ascii_lowercase + string.digits), 16))


VALUES: dict[str, Callable[[Sequence[str], Generator], str]] = {
    "card": card,
    "account": lambda words, rng: str(rng.integers(1, 10)) + digits(rng, 9),
    "key": key,
    "passphrase": lambda words, rng: " ".join(
        words[index] for index in rng.choice(len(words), 4, replace=False)
    ),
    "phone": lambda words, rng: (
        f"({rng.integers(201, 990)}) {rng.integers(200, 1000)}-{digits(rng, 4)}"
    ),
}


def insert_secrets(
    texts: Sequence[str], secrets: Sequence[Secret], copies: int, rng: Generator
) -> list[str]:
    """The texts in order, with each secret's sentence in `copies` of them; at most one in each."""
    chosen = rng.permutation(len(texts))[: copies * len(secrets)]
    changed = list(texts)
    for number, index in enumerate(chosen):
        secret = secrets[number % len(secrets)]
        changed[index] = insert_sentence(texts[index], secret.sentence, rng)
    return changed


def insert_sentence(text: str, sentence: str, rng: Generator) -> str:
    """The text with one more sentence, between two of its sentences or after its middle word."""
    ends = [match.end() for match in BOUNDARY.finditer(text, EARLIEST, LATEST)]
    if not ends:
        ends = [text.rfind(" ", 0, len(text) // 2 + 1) + 1]
    at = int(rng.choice(ends))
    separator = "/ " if text[max(0, at - 2) : at] == "/ " else ""
    return f"{text[:at]}{sentence} {separator}{text[at:]}"
