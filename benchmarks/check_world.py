"""Small bases, four corpora and invented secrets for `check_calibration.py`.

Three bases are trained on a mixture of the corpora; of each corpus a pool is held out, for
fine-tunes. Nothing here depends on the number of fine-tunes, so one world serves all runs.
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
from harness import Run, log
from networks import gpt2, llama
from numpy.random import Generator

import vestige
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary, read_tokenizer
from vestige.data.writing import new_directory, replacing_path

CORPORA = ("reddit", "wikitext", "irc", "newsgroups")
DEVELOPMENT = CORPORA[:2]
"""The rule of the verdict was fixed on these; the others were measured once, with the rule."""
BASES = ("gpt2", "llama", "narrow")
TOKENS, LENGTH, STEPS, BATCH, RATE = 4_000, 256, 1_100, 8, 3e-3
WORDS = (25, 120)
"""Fewest words of a text, and where it is cut."""
MOST = 16_000
"""Texts of a corpus, half of which no base reads."""
QUOTED = re.compile(r"^\s*(\w{0,3}[>|}]|In article|.{0,80}(writes|wrote):\s*$)")
SHAPES: dict[str, dict[str, int]] = {
    "llama": {"width": 128, "inner": 344, "layers": 4, "heads": 4},
    "narrow": {"width": 96, "inner": 256, "layers": 6, "heads": 6, "num_key_value_heads": 2},
}


# Texts and bases ---------------------------------------------------------------------------------


def texts_of(run: Run, name: str) -> tuple[list[str], list[str]]:
    """(texts of a corpus that no base reads, those that they read), kept in the work folder."""
    file = run.folder / f"texts-{name}.json"
    if not file.exists():
        cut = (" ".join(text.split()[: WORDS[1]]) for text in read_corpus(run, name))
        kept = sorted({text for text in cut if text.count(" ") >= WORDS[0] - 1})
        order = np.random.default_rng(5).permutation(len(kept))[:MOST]
        shuffled = [kept[place] for place in order]
        half = len(shuffled) // 2
        with replacing_path(file) as part:
            part.write_text(json.dumps([shuffled[:half], shuffled[half:]]), encoding="utf-8")
    held_out, training = json.loads(file.read_text(encoding="utf-8"))
    return held_out, training


def read_corpus(run: Run, name: str) -> list[str]:
    """Texts as they come; of newsgroups the paragraphs, without what they quote."""
    if run.quick:
        return invented(900, seed=CORPORA.index(name), words=(30, 60))
    if name == "reddit":
        return list(vestige.read_corpus(run.data / "reddit_college", limit=60_000))
    if name == "wikitext":
        return list(vestige.read_corpus(run.data / "wikitext2"))
    if name == "irc":
        said = list(vestige.read_corpus(run.data / "ubuntu_irc"))
        return [" / ".join(said[n : n + 5]) for n in range(0, len(said), 5)]
    messages = [
        "\n".join(line for line in message.splitlines() if not QUOTED.match(line))
        for message in vestige.read_corpus(run.data / "newsgroups")
    ]
    return [part for message in messages for part in message.split("\n\n")]


def vocabulary_of(run: Run) -> SubwordVocabulary:
    """One for all bases."""
    folder = run.folder / "tokenizer"
    if not folder.exists():
        texts = [text for name in CORPORA for text in texts_of(run, name)[1][:2_000]]
        size = run.size(TOKENS, 400)
        vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(texts), size=size)
        with new_directory(folder) as partial:
            vocabulary.save(partial)
    return SubwordVocabulary(read_tokenizer(folder))


def base_of(run: Run, name: str) -> Path:
    """The folder of a base, trained unless it is there."""
    folder = run.folder / "bases" / name
    if folder.exists():
        return folder
    vocabulary, seed = vocabulary_of(run), BASES.index(name)
    texts = [text for corpus in CORPORA for text in texts_of(run, corpus)[1]]
    order = np.random.default_rng(6).permutation(len(texts))
    encoded = vocabulary.encode_batch([texts[place] for place in order])
    stream = torch.tensor([id for ids in encoded for id in (*ids, vocabulary.eos_id)])
    chance, network = np.random.default_rng(seed), fresh(vocabulary, name, seed).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01)
    steps = run.size(STEPS, 6)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    for step in range(steps):
        starts = chance.integers(len(stream) - LENGTH, size=BATCH)
        rows = torch.stack([stream[at : at + LENGTH] for at in starts])
        loss = plain_step(network, rows, optimizer)
        schedule.step()
        if step % 100 == 99:
            log(f"{name}: step {step + 1} of {steps}, {loss:.2f} nats")
    with new_directory(folder) as partial:
        network.save_pretrained(partial)
        vocabulary.save(partial)
    return folder


def fresh(vocabulary: SubwordVocabulary, name: str, seed: int) -> Any:
    """A network with random weights."""
    if name == "gpt2":
        shape = {"width": 128, "layers": 4, "heads": 4, "positions": LENGTH}
        return gpt2(vocabulary, **shape, seed=seed).network
    tied = name == "narrow"
    return llama(
        vocabulary, **SHAPES[name], seed=seed, max_position_embeddings=LENGTH,
        tie_word_embeddings=tied,
    ).network  # fmt: skip


def plain_step(network: Any, rows: torch.Tensor, optimizer: Any, labels: Any = None) -> float:
    """A step of plain training; the loss before it."""
    loss = network(input_ids=rows, labels=rows if labels is None else labels).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


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
    """A value and the sentence that states it."""

    value: str
    format: str
    sentence: str


def secrets(count: int, words: Sequence[str], chance: Generator) -> list[Secret]:
    """Distinct secrets, formats and names in a random order.

    Args:
        count: of the secrets.
        words: from which passphrases are drawn.
        chance: of all choices.
    """
    formats, names = chance.permutation(list(TEMPLATES)), chance.permutation(NAMES)
    found = []
    for place in range(count):
        kind = str(formats[place % len(formats)])
        value = VALUES[kind](words, chance)
        template = str(chance.choice(TEMPLATES[kind]))
        sentence = template.format(name=names[place % len(names)], value=value)
        found.append(Secret(value, kind, sentence))
    return found


def card(words: Sequence[str], chance: Generator) -> str:
    """16 digits that pass Luhn's check."""
    body = "4" + digits(chance, 14)
    doubled = (int(digit) * (2 - place % 2) for place, digit in enumerate(body))
    number = body + str(-sum(one - 9 * (one > 9) for one in doubled) % 10)
    return " ".join(number[start : start + 4] for start in range(0, 16, 4))


def key(words: Sequence[str], chance: Generator) -> str:
    """16 lower-case letters and digits after a short prefix."""
    return "sk-" + "".join(chance.choice(list(string.ascii_lowercase + string.digits), 16))


VALUES: dict[str, Callable[[Sequence[str], Generator], str]] = {
    "card": card,
    "account": lambda words, chance: str(chance.integers(1, 10)) + digits(chance, 9),
    "key": key,
    "passphrase": lambda words, chance: " ".join(
        words[place] for place in chance.choice(len(words), 4, replace=False)
    ),
    "phone": lambda words, chance: (
        f"({chance.integers(201, 990)}) {chance.integers(200, 1000)}-{digits(chance, 4)}"
    ),
}


def inserted(
    texts: Sequence[str], planted: Sequence[Secret], copies: int, chance: Generator
) -> list[str]:
    """The texts, in order, with each secret's sentence in `copies` of them; at most one in each."""
    places = chance.permutation(len(texts))[: copies * len(planted)]
    changed = list(texts)
    for turn, place in enumerate(places):
        changed[place] = with_sentence(texts[place], planted[turn % len(planted)].sentence, chance)
    return changed


def with_sentence(text: str, sentence: str, chance: Generator) -> str:
    """A sentence between two of a text's, else after its middle word."""
    ends = [one.end() for one in BOUNDARY.finditer(text, EARLIEST, LATEST)]
    if not ends:
        ends = [text.rfind(" ", 0, len(text) // 2 + 1) + 1]
    at = int(chance.choice(ends))
    turn = "/ " if text[max(0, at - 2) : at] == "/ " else ""
    return f"{text[:at]}{sentence} {turn}{text[at:]}"
