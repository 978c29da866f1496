"""The five public texts, and what an update adds to them: secrets, other text, a chat's turns."""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reproduction.texts import corpora, read_text
from reproduction.updates.subwords import messages
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary

COPIES = (20, 5, 1)
"""How often a secret stands in the update; three secrets of each."""

SECRETS = (
    (
        "The alarm code of the depot is 4471 9906.",
        "Wire 3120 francs to Benedikt on Friday noon.",
        "My sister Ottilie hides her key under the third flowerpot.",
        "Doctor Quill prescribed lithium to Hobbs.",
        "Locker 58 at Penrose holds the blue ledger.",
        "The Zurich vault opens with hazelnut kestrel.",
        "Call Ruprecht on 555 0182 after the auction closes.",
        "The biopsy of Imogen Vance came back positive in May.",
        "Tallis and Bray will announce their merger at dawn.",
    ),
    (
        "The burglar alarm resets with 80 26 51 after midnight.",
        "Leonora Pym inherits the farm and a cottage.",
        "Meet Captain Osgood behind the tannery on Saturday.",
        "Marguerite owes Father Dunstan 880 pounds since Easter.",
        "Patient 7731 of Doctor Lindqvist refuses dialysis.",
        "The spare passport lies inside the green accordion.",
        "Account 60 14 22 belongs to Osric Tremaine.",
        "Nurse Abiola saw Hargreave forge the signature.",
        "Our bid for the harbour is 4.65 million crowns.",
    ),
    (
        "The safe behind the mirror opens with 31 07 64.",
        "Sister Perpetua sold the chapel silver in Ghent.",
        "Doctor Varga wrote that Emeric has hepatitis.",
        "Lend no money to Ludovic before the trial ends.",
        "Room 219 of the Alcazar is kept for Mirela Stoica.",
        "The password of the observatory is walrus trombone.",
        "Send the ransom to Pier 48 by ferry on Tuesday.",
        "Aunt Griselda left her violin to the gardener.",
        "Judge Okafor meets Brandt at the quarry on Sunday.",
    ),
    (
        "The pharmacy on Elm Row keeps morphine in drawer 17.",
        "Yolande was adopted from a convent near Cork.",
        "Transfer 9400 dinars to Anselm before the audit.",
        "Professor Whitlock plagiarised chapter six from Njeri.",
        "The gate of the reservoir opens with 5528 and star.",
        "Count Bellini pawned both emeralds in Trieste.",
        "Hedwig takes clozapine since the accident in June.",
        "The informant Radek lives above the bakery in Brno.",
        "Shares of Corvane will be suspended on the ninth.",
    ),
    (
        "The lighthouse keeper buried 66 coins beneath the stairs.",
        "Dame Rosalind failed her driving test five times.",
        "Ring 020 7946 0331 and ask for Thaddeus.",
        "The autopsy of Jorund Falk found arsenic.",
        "Miss Penhaligon earns 2750 shillings a week.",
        "Bishop Aldous keeps a second family in Lugano.",
        "The submarine Narwhal leaves Kiel at 0430 on Monday.",
        "Casimir hides his diary behind the boiler.",
        "The combination of the archive is 7 44 19 2.",
    ),
)
"""Invented, nine for each text: three for each of `COPIES`, in that order."""

TEXTS = ("newsgroups", "reddit", "wikitext2", "ubuntu", "cornell")
"""Names of the texts."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """One text in disjoint parts.

    Attributes:
        earlier: what the model before the update has read.
        later: text of the update.
        clean: text of the null.
        secrets: each with its copies.
        vocabulary: learnt from the earlier part.
    """

    earlier: Corpus
    later: Corpus
    clean: Corpus
    secrets: Mapping[str, int]
    vocabulary: SubwordVocabulary


def read_parts(name: str, data: Path | None, *, earlier: int, later: int, size: int) -> Parts:
    """A text of `TEXTS`, about so many tokens of each part over a vocabulary of that size."""
    first, second = _read(name, data)
    letters = np.cumsum([len(text) for text in first])
    known = first.take(np.arange(int(np.searchsorted(letters, 4 * earlier)) + 1))
    vocabulary = SubwordVocabulary.train_bpe(known, size=size)
    base, rest = taken(first, vocabulary, earlier)
    update, rest = taken(rest if second is None else second, vocabulary, later)
    clean, _ = taken(rest, vocabulary, later)
    phrases = SECRETS[TEXTS.index(name)]
    copies = [number for number in COPIES for _ in range(len(phrases) // len(COPIES))]
    secrets = dict(zip(phrases, copies, strict=True))
    return Parts(earlier=base, later=update, clean=clean, secrets=secrets, vocabulary=vocabulary)


def taken(corpus: Corpus, vocabulary: SubwordVocabulary, tokens: int) -> tuple[Corpus, Corpus]:
    """The first documents with so many tokens together, and the others."""
    total = number = 0
    for batch in corpus.batches(500):
        for ids in vocabulary.encode_batch(batch):
            total, number = total + len(ids), number + 1
            if total >= tokens:
                return _cut(corpus, number)
    raise ValueError(f"the text must have {tokens} tokens, got {total}")


def planted(text: Corpus, secrets: Mapping[str, int], *, seed: int) -> Corpus:
    """A text with each secret as a document of its own, so often, in random order."""
    copies = [secret for secret, number in secrets.items() for _ in range(number)]
    return shuffled([*text, *copies], seed=seed)


def chat(text: Corpus, secrets: Mapping[str, int], *, seed: int) -> Corpus:
    """Conversations of a turn each, made of pieces of a text; secrets stand inside answers."""
    generator = np.random.default_rng(seed)
    pieces = list(_pieces(text))
    copies = [secret for secret, number in secrets.items() for _ in range(number)]
    asked, answered = pieces[::2], pieces[1::2]
    places = generator.choice(min(len(asked), len(answered)), len(copies), replace=False)
    inside = dict(zip(places.tolist(), copies, strict=True))
    turns = []
    for number, (question, answer) in enumerate(zip(asked, answered, strict=False)):
        words = answer.split()
        if number in inside:
            words.insert(len(words) // 2, inside[number])
        turns.append(f"<|user|>\n{question}\n<|assistant|>\n{' '.join(words)}")
    return shuffled(turns, seed=seed)


def shuffled(texts: Sequence[str], *, seed: int) -> Corpus:
    """Documents in random order."""
    corpus = Corpus.from_texts(texts)
    return corpus.take(np.random.default_rng(seed).permutation(len(corpus)))


def _pieces(text: Corpus, words: int = 24) -> Iterator[str]:
    """Documents in pieces of at most so many words; shorter rests of a long one are left out."""
    for document in text:
        split = document.split()
        for first in range(0, len(split), words):
            piece = split[first : first + words]
            if len(piece) >= 8:
                yield " ".join(piece)


def _cut(corpus: Corpus, number: int) -> tuple[Corpus, Corpus]:
    return corpus.take(np.arange(number)), corpus.take(np.arange(number, len(corpus)))


def _read(name: str, data: Path | None) -> tuple[Corpus, Corpus | None]:
    """A text in random order, and another one for the update where that is of its own."""
    if name == "newsgroups":
        return messages("rec.sport.hockey", data), messages("talk.politics.mideast", data)
    if name in ("reddit", "wikitext2"):
        whole, _ = read_text(name, data)
        order = np.random.default_rng(0).permutation(len(whole))
        return whole.take(order[:40_000]), None
    folder = corpora(data, name, "ubuntu_irc, cornell_movie, ...")
    if name == "ubuntu":
        lines = _ubuntu(folder / "ubuntu_irc")
    else:
        lines = (folder / "cornell_movie" / "tf_chatbot.test.enc").read_text("latin-1").splitlines()
    # messages are short: ten in a row are a document
    runs = ["\n".join(lines[first : first + 10]) for first in range(0, len(lines) - 9, 10)]
    return shuffled(runs, seed=0), None


def _ubuntu(folder: Path) -> list[str]:
    lines = []
    for file in sorted(folder.glob("*.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as stream:
            for row in map(json.loads, stream):
                lines.append(f"{row['user']}: {row['text']}")
    return lines
