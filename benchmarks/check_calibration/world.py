"""Small models and four corpora for the calibration of `vestige check`.

    VESTIGE_DATA=... python -m benchmarks.check_calibration.world WORLD [NAME...]

Three models are trained on a mixture of text; of each corpus a pool is held out for fine-tunes.
"""

import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

import vestige
from vestige.data.atomic_write import new_directory

CORPORA = ("reddit", "wikitext", "irc", "newsgroups")
DEVELOPMENT = CORPORA[:2]
"""On which the rule of the verdict was fixed; it is applied once to the others."""

BASES = ("gpt2", "llama", "narrow")
TOKENS, LENGTH = 4_000, 256
STEPS, BATCH, RATE = 450, 16, 3e-3
_POOL = 0.5
"""Share of each corpus that is held out for fine-tunes."""


@cache
def corpus(name: str) -> list[str]:
    """Texts of 25 to 120 words, in the order of a fixed shuffle."""
    data = Path(os.environ["VESTIGE_DATA"])
    texts = [
        " ".join(words[:120])
        for text in _read(name, data)
        if len(words := text.split()) >= 25
    ]
    texts = list(dict.fromkeys(texts))
    order = np.random.default_rng(5).permutation(len(texts))
    return [texts[place] for place in order[:16_000]]


def _read(name: str, data: Path) -> list[str]:
    if name == "reddit":
        return list(vestige.read_corpus(data / "reddit_college", limit=60_000))
    if name == "wikitext":
        return list(vestige.read_corpus(data / "wikitext2"))
    if name == "irc":
        messages = list(vestige.read_corpus(data / "ubuntu_irc"))
        return [" / ".join(messages[n : n + 5]) for n in range(0, len(messages), 5)]
    paragraphs = "\n".join(vestige.read_corpus(data / "newsgroups")).split("\n\n")
    return [" ".join(one.split()) for one in paragraphs]


def pool(name: str) -> list[str]:
    """Texts of a corpus that no base has read."""
    texts = corpus(name)
    return texts[: int(len(texts) * _POOL)]


def _training(name: str) -> list[str]:
    texts = corpus(name)
    return texts[int(len(texts) * _POOL) :]


def tokenizer(world: Path) -> PreTrainedTokenizerFast:
    """One for all bases."""
    file = world / "tokenizer.json"
    if not file.exists():
        world.mkdir(parents=True, exist_ok=True)
        made = ByteLevelBPETokenizer()
        texts = (text for name in CORPORA for text in _training(name)[:2_000])
        made.train_from_iterator(texts, vocab_size=TOKENS, special_tokens=["<|endoftext|>"])
        made.save(str(file))
    return PreTrainedTokenizerFast(
        tokenizer_file=str(file), eos_token="<|endoftext|>", bos_token="<|endoftext|>"
    )


def _fresh(name: str) -> PreTrainedModel:
    ends: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0}
    if name == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(vocab_size=TOKENS, n_positions=LENGTH, n_embd=128, n_layer=4, n_head=4,
                       resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **ends)
        )  # fmt: skip
    narrow = name == "narrow"
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=TOKENS, max_position_embeddings=LENGTH,
                    hidden_size=96 if narrow else 128, intermediate_size=256 if narrow else 344,
                    num_hidden_layers=6 if narrow else 4, num_attention_heads=6 if narrow else 4,
                    num_key_value_heads=2 if narrow else 4, tie_word_embeddings=narrow, **ends)
    )  # fmt: skip


def base(world: Path, name: str) -> Path:
    """The folder of a base, trained if it is missing."""
    folder = world / f"base-{name}"
    if folder.exists():
        return folder
    words = tokenizer(world)
    generator = np.random.default_rng(BASES.index(name))
    torch.manual_seed(BASES.index(name))
    model = _fresh(name).train()
    stream = _stream(words)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, RATE, total_steps=STEPS, pct_start=0.1
    )
    for step in range(STEPS):
        starts = generator.integers(len(stream) - LENGTH, size=BATCH)
        batch = torch.stack([stream[start : start + LENGTH] for start in starts])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 49:
            print(f"{name}: step {step + 1} of {STEPS}, loss {loss.item():.2f}", flush=True)
    with new_directory(folder) as partial:
        model.save_pretrained(partial)
        words.save_pretrained(partial)
        (partial / "training.json").write_text(json.dumps({"loss": loss.item(), "steps": STEPS}))
    return folder


def _stream(words: PreTrainedTokenizerFast) -> torch.Tensor:
    """The training text of all corpora, mixed."""
    texts = [text for name in CORPORA for text in _training(name)]
    order = np.random.default_rng(6).permutation(len(texts))
    encoded = words([texts[place] for place in order])["input_ids"]
    return torch.tensor([token for ids in encoded for token in (*ids, 0)])


if __name__ == "__main__":
    for chosen in sys.argv[2:] or BASES:
        base(Path(sys.argv[1]), chosen)
