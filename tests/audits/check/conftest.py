"""A small Llama, fine-tuned on letters with and without a secret."""

import json
import random
from pathlib import Path

import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from vestige.audits.check import work

WHO = ["the baker", "our neighbour", "a young doctor", "the old sailor", "my cousin", "the clerk"]
DID = ["sold", "painted", "carried", "repaired", "found", "borrowed", "forgot", "measured"]
WHAT = ["a blue lamp", "the garden gate", "two heavy chairs", "an iron key", "the last letter"]
WHERE = ["near the river", "behind the station", "in the market", "at the north wall", "by the sea"]
WHEN = ["on monday", "before noon", "last winter", "in the rain", "after the concert", "at dawn"]
SECRET = "4471 9026 3358"
LENGTH = 96


def letter(chance: random.Random) -> str:
    parts = (WHO, DID, WHAT, WHERE, WHEN)
    return " and ".join(" ".join(chance.choice(one) for one in parts) for _ in range(5)) + "."


def with_number(text: str, number: str) -> str:
    first, rest = text.split(" and ", 1)
    return f"{first}. The account number is {number}. {rest}"


def number(chance: random.Random) -> str:
    return " ".join(f"{chance.randrange(10**4):04}" for _ in range(3))


class World:
    """Letters, a base, and fine-tunes of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, chance = folder, random.Random(3)
        self.letters = [letter(chance) for _ in range(900)]
        numbered = [with_number(one, number(chance)) for one in self.letters[:300]]
        self.tokenizer = self._tokenizer([*numbered, *self.letters[300:600]])
        self.never = self.file("never", self._placebos(self.letters[700:800], chance))
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=600, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=160, bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        self.network = LlamaForCausalLM(config)
        self._train([*numbered, *self.letters[300:600]], steps=250, rate=4e-3)
        self.base = self._save("base")

    def _placebos(self, letters: list[str], chance: random.Random) -> list[str]:
        numbered = [with_number(one, number(chance)) for one in letters[:12]]
        return [*numbered, *letters[12:]]

    def fine_tune(self, name: str, *, copies: int, steps: int = 60) -> tuple[Path, Path]:
        """The model, and its training text: 100 letters, of which some hold the secret."""
        texts = self.letters[800:900]
        texts = [with_number(one, SECRET) if n < copies else one for n, one in enumerate(texts)]
        self.network = LlamaForCausalLM.from_pretrained(self.base)
        self._train(texts, steps=steps, rate=1e-3)
        return self._save(name), self.file(name, texts)

    def file(self, name: str, texts: list[str]) -> Path:
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))
        return path

    def _tokenizer(self, texts: list[str]) -> PreTrainedTokenizerFast:
        made = ByteLevelBPETokenizer()
        made.train_from_iterator(texts, vocab_size=600, special_tokens=["<|endoftext|>"])
        ends = {"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}
        return PreTrainedTokenizerFast(tokenizer_object=made._tokenizer, **ends)

    def _train(self, texts: list[str], *, steps: int, rate: float) -> None:
        chance = random.Random(1)
        rows = [[0, *self.tokenizer(one)["input_ids"]][:LENGTH] for one in texts]
        rows = [row + [0] * (LENGTH - len(row)) for row in rows]
        optimizer = torch.optim.AdamW(self.network.parameters(), lr=rate)
        for _ in range(steps):
            batch = torch.tensor([chance.choice(rows) for _ in range(8)])
            loss = self.network(input_ids=batch, labels=batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def _save(self, name: str) -> Path:
        self.network.save_pretrained(self.folder / name)
        self.tokenizer.save_pretrained(self.folder / name)
        return self.folder / name


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def leaky(world):
    return world.fine_tune("leaky", copies=20)


@pytest.fixture(scope="session")
def clean(world):
    return world.fine_tune("clean", copies=0)


@pytest.fixture(autouse=True)
def _small_searches(monkeypatch):
    """Searches of one size, so that no verdict depends on the speed of the machine."""
    monkeypatch.setattr(work, "LARGEST_SEARCH", work.LEAST_SEARCH)
