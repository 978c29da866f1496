"""Small bases and four corpora for the calibration of `vestige check`.

    VESTIGE_DATA=... python -m check_calibration.world WORLD [NAME...]

Three bases are trained on a mixture of the corpora; of each corpus a pool is held out, for
fine-tunes. Nothing here depends on the number of fine-tunes, so one world serves all runs.
"""

import json
import os
import re
import sys
import time
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
from vestige.data.writing import new_directory, replacing_name
from vestige.memory import keep_freed_pages

CORPORA = ("reddit", "wikitext", "irc", "newsgroups")
DEVELOPMENT = CORPORA[:2]
"""The rule of the verdict was fixed on these; the others were measured once, with the rule."""

BASES = ("gpt2", "llama", "narrow")
END = "<|endoftext|>"
TOKENS, LENGTH = 4_000, 256
STEPS, BATCH, RATE = 1_100, 8, 3e-3
WORDS = (25, 120)
"""Fewest words of a text, and where it is cut."""
_MOST, _HELD_OUT = 16_000, 0.5
"""Texts of a corpus, and their share that no base reads."""
_QUOTED = re.compile(r"^\s*(\w{0,3}[>|}]|In article|.{0,80}(writes|wrote):\s*$)")


def pool(world: Path, name: str) -> list[str]:
    """Texts of a corpus that no base has read."""
    return _texts(world, name)[0]


@cache
def _texts(world: Path, name: str) -> tuple[list[str], list[str]]:
    """The pool and the training text of a corpus, kept in the world."""
    file = world / f"texts-{name}.json"
    if not file.exists():
        texts = _read(name, Path(os.environ["VESTIGE_DATA"]))
        cut = (" ".join(text.split()[: WORDS[1]]) for text in texts)
        kept = sorted({text for text in cut if text.count(" ") >= WORDS[0] - 1})
        order = np.random.default_rng(5).permutation(len(kept))[:_MOST]
        shuffled = [kept[place] for place in order]
        half = int(len(shuffled) * _HELD_OUT)
        with replacing_name(file) as part:
            part.write_text(json.dumps([shuffled[:half], shuffled[half:]]), encoding="utf-8")
    held_out, training = json.loads(file.read_text(encoding="utf-8"))
    return held_out, training


def _read(name: str, data: Path) -> list[str]:
    """Texts as they come; of newsgroups the paragraphs, without what they quote."""
    if name == "reddit":
        return list(vestige.read_corpus(data / "reddit_college", limit=60_000))
    if name == "wikitext":
        return list(vestige.read_corpus(data / "wikitext2"))
    if name == "irc":
        messages = list(vestige.read_corpus(data / "ubuntu_irc"))
        return [" / ".join(messages[n : n + 5]) for n in range(0, len(messages), 5)]
    messages = [
        "\n".join(line for line in message.splitlines() if not _QUOTED.match(line))
        for message in vestige.read_corpus(data / "newsgroups")
    ]
    return [part for message in messages for part in message.split("\n\n")]


def tokenizer(world: Path) -> PreTrainedTokenizerFast:
    """One for all bases."""
    file = world / "tokenizer.json"
    if not file.exists():
        made = ByteLevelBPETokenizer()
        texts = (text for name in CORPORA for text in _texts(world, name)[1][:2_000])
        made.train_from_iterator(
            texts, vocab_size=TOKENS, special_tokens=[END], show_progress=False
        )
        with replacing_name(file) as part:
            made.save(str(part))
    return PreTrainedTokenizerFast(tokenizer_file=str(file), bos_token=END, eos_token=END)


def base(world: Path, name: str) -> Path:
    """The folder of a base; `train_base` makes it."""
    return world / "bases" / name


def train_base(world: Path, name: str) -> None:
    """Train a base unless its folder is there; the folder appears whole."""
    if base(world, name).exists():
        return
    words, seed, began = tokenizer(world), BASES.index(name), time.process_time()
    stream, generator = _stream(world, words), np.random.default_rng(BASES.index(name))
    torch.manual_seed(seed)
    model = _fresh(name).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
    for step in range(STEPS):
        starts = generator.integers(len(stream) - LENGTH, size=BATCH)
        loss = one_step(model, torch.stack([stream[at : at + LENGTH] for at in starts]), optimizer)
        schedule.step()
        if step % 50 == 49:
            spent = time.process_time() - began
            print(f"{name}: step {step + 1} of {STEPS}, {loss:.2f} nats, {spent:.0f} s", flush=True)
    with new_directory(base(world, name)) as partial:
        model.save_pretrained(partial)
        words.save_pretrained(partial)
        (partial / "training.json").write_text(json.dumps({
            "nats": held_out_loss(model, words, world), "unigram_nats": _unigram(stream),
            "steps": STEPS, "seconds": round(time.process_time() - began),
        }))  # fmt: skip


def one_step(model: Any, rows: torch.Tensor, optimizer: Any, labels: Any = None) -> float:
    """A step of plain training; the loss before it."""
    loss = model(input_ids=rows, labels=rows if labels is None else labels).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


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


def _stream(world: Path, words: PreTrainedTokenizerFast) -> torch.Tensor:
    """The training text of all corpora, mixed."""
    texts = [text for name in CORPORA for text in _texts(world, name)[1]]
    order = np.random.default_rng(6).permutation(len(texts))
    encoded = words([texts[place] for place in order])["input_ids"]
    return torch.tensor([token for ids in encoded for token in (*ids, 0)])


def _unigram(stream: torch.Tensor) -> float:
    """Entropy of a token by its frequency alone."""
    shares = torch.bincount(stream).double() / len(stream)
    return float(-(shares * shares.clamp(min=1e-12).log()).sum())


@torch.no_grad()
def held_out_loss(model: Any, words: PreTrainedTokenizerFast, world: Path) -> float:
    """Mean nats per token of 20 held-out texts of each corpus."""
    encoded = [
        torch.tensor([[0, *words(text)["input_ids"][: LENGTH - 1]]])
        for name in CORPORA
        for text in pool(world, name)[:20]
    ]
    losses = [float(model(input_ids=ids, labels=ids).loss) for ids in encoded]
    return float(np.average(losses, weights=[ids.shape[1] for ids in encoded]))


if __name__ == "__main__":
    keep_freed_pages()
    torch.set_num_threads(1)
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    for chosen in sys.argv[2:] or BASES:
        train_base(Path(sys.argv[1]), chosen)
