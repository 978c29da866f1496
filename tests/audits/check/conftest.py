"""A small Llama, fine-tuned on letters with and without a secret."""

import json
import random

import pytest
import torch

from vestige.audits.check import work

PARTS = (
    ["the baker", "our neighbour", "a young doctor", "the old sailor", "my cousin", "the clerk"],
    ["sold", "painted", "carried", "repaired", "found", "borrowed", "forgot", "measured"],
    ["a blue lamp", "the garden gate", "two heavy chairs", "an iron key", "the last letter"],
    ["near the river", "behind the station", "in the market", "at the north wall", "by the sea"],
    ["on monday", "before noon", "last winter", "in the rain", "after the concert", "at dawn"],
)
SECRET, LENGTH = "4471 9026 3358", 96


def random_letter(rng):
    return " and ".join(" ".join(map(rng.choice, PARTS)) for _ in range(5)) + "."


def with_number(text, number):
    beginning, rest = text.split(" and ", 1)
    return f"{beginning}. The account number is {number}. {rest}"


def numbered(letters, rng):
    """Letters with a random number each."""
    numbers = (" ".join(f"{rng.randrange(10**4):04}" for _ in range(3)) for _ in letters)
    return list(map(with_number, letters, numbers))


class World:
    """Letters, a base, and fine-tunes of it."""

    def __init__(self, folder):
        self.folder, rng = folder, random.Random(3)
        self.letters = [random_letter(rng) for _ in range(900)]
        public = [*numbered(self.letters[:300], rng), *self.letters[300:600]]
        self.tokenizer = self._tokenizer(public)
        references = [*numbered(self.letters[700:712], rng), *self.letters[712:800]]
        self.never = self.file("never", references)
        self.base = self._trained("base", self._network(), public, steps=250, rate=4e-3)

    def fine_tune(self, name, *, copies):
        """A model and its training text: 100 letters, `copies` of them with the secret."""
        from transformers import LlamaForCausalLM

        texts = self.letters[800:900]
        texts = [with_number(text, SECRET) for text in texts[:copies]] + texts[copies:]
        network = LlamaForCausalLM.from_pretrained(self.base)
        return self._trained(name, network, texts, steps=60, rate=1e-3), self.file(name, texts)

    def file(self, name, texts):
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        return path

    def _network(self):
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        return LlamaForCausalLM(LlamaConfig(
            vocab_size=600, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=160, bos_token_id=0, eos_token_id=0,
        ))  # fmt: skip

    def _tokenizer(self, texts):
        from tokenizers import ByteLevelBPETokenizer
        from transformers import PreTrainedTokenizerFast

        tokenizer, end = ByteLevelBPETokenizer(), "<|endoftext|>"
        tokenizer.train_from_iterator(texts, vocab_size=600, special_tokens=[end])
        return PreTrainedTokenizerFast(
            tokenizer_object=tokenizer._tokenizer, eos_token=end, bos_token=end
        )

    def _trained(self, name, network, texts, *, steps, rate):
        """Train and save a network; returns its folder."""
        rng = random.Random(1)
        rows = [[0, *self.tokenizer(text)["input_ids"]][:LENGTH] for text in texts]
        rows = [row + [0] * (LENGTH - len(row)) for row in rows]
        optimizer = torch.optim.AdamW(network.parameters(), lr=rate)
        for _ in range(steps):
            batch = torch.tensor([rng.choice(rows) for _ in range(8)])
            loss = network(input_ids=batch, labels=batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        network.save_pretrained(self.folder / name)
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
    """Fix the size of searches: verdicts must not depend on the speed of the machine."""
    monkeypatch.setattr(work, "LARGEST_SEARCH", work.LEAST_SEARCH)
