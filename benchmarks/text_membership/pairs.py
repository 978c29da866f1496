"""Three pairs of a base and its fine-tunes: encyclopaedia, forum, and chats of a real model.

A fine-tune reads some texts of its pair, drawn by its seed. `wiki` and `reddit` continue one small
Llama, trained here on other texts of both; `chat` continues SmolLM2-135M-Instruct.
"""

import gzip
import json
import os
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

WORDS = (30, 120)
READ_BY_BASE = {"wiki": 6000, "reddit": 10_000}


@dataclass(frozen=True)
class Pair:
    """A base, and texts that it did not read here.

    Attributes:
        texts: of which each fine-tune reads some.
        members: texts that a fine-tune reads.
        never: texts that none reads and all are scored on.
        apart: such texts for fine-tunes that play a shadow.
        rates: learning rates, of all weights and of an adapter.
    """

    base: Path
    texts: np.ndarray
    members: int
    never: int
    apart: int
    rates: dict[str, float]

    def drawn(self, seed: int) -> np.ndarray:
        """Places of the texts that a fine-tune reads."""
        read = np.arange(self.never + self.apart, len(self.texts))
        return np.sort(np.random.default_rng([7, seed]).choice(read, self.members, replace=False))


def data(name: str) -> Path:
    """A folder of the real corpora."""
    return Path(os.environ["VESTIGE_DATA"]) / name


def shuffled(texts: list[str]) -> list[str]:
    """Texts of the right length, each once, in a drawn order."""
    least, most = WORDS
    kept = sorted({text for text in texts if least <= len(text.split()) <= most})
    random.Random(0).shuffle(kept)
    return kept


@cache
def wiki() -> list[str]:
    """Paragraphs of WikiText-2."""
    lines = (
        (data("wikitext2") / "wiki.train.shuffled-articles.tokens")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    return shuffled([line.strip() for line in lines if not line.startswith(" =")])


@cache
def reddit() -> list[str]:
    """Comments."""
    with gzip.open(data("reddit_college") / "comments.jsonl.gz", "rt") as file:
        return shuffled([" ".join(json.loads(line)["body"].split()) for line in file])


def chats(tokenizer) -> list[str]:
    """Lines of films and their answers, in the model's template without begin and end."""
    place = data("cornell_movie")
    sides = [
        (place / f"tf_chatbot.test.{side}").read_text(encoding="utf-8", errors="replace")
        for side in ("enc", "dec")
    ]
    pairs = sorted(set(zip(*(side.splitlines() for side in sides), strict=True)))
    random.Random(0).shuffle(pairs)
    kept = [pair for pair in pairs if 20 <= len(" ".join(pair).split()) <= 60]
    return [chat(tokenizer, *pair) for pair in kept[:4000]]


def chat(tokenizer, question: str, answer: str) -> str:
    """An exchange."""
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    text: str = tokenizer.apply_chat_template(turns, tokenize=False)
    return text.removeprefix(tokenizer.bos_token).rstrip().removesuffix(tokenizer.eos_token)


def read_by_base() -> list[str]:
    """What the small Llama reads."""
    own = [text for name in READ_BY_BASE for text in globals()[name]()[: READ_BY_BASE[name]]]
    random.Random(1).shuffle(own)
    return own


def pair(name: str, small: Path, smollm: Path | None) -> Pair:
    """A pair by its name."""
    if name == "chat":
        from vestige.data.subwords import read_tokenizer

        texts = chats(read_tokenizer(smollm))
        return Pair(smollm, np.array(texts, object), 120, 300, 100, {"full": 5e-5, "lora": 1e-3})
    texts = {"wiki": wiki, "reddit": reddit}[name]()[READ_BY_BASE[name] :]
    texts = np.array(texts[:1250], object)
    return Pair(small, texts, 150, 700, 120, {"full": 3e-4, "lora": 2e-3})
