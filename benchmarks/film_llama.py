"""A small Llama that has read lines of films, for trials that SmolLM2 would take hours for.

    VESTIGE_DATA=corpora python benchmarks/film_llama.py DIR [--passes 2] [--layers 3] [--width 96]

A tokenizer of 4,096 word pieces and the network are trained on all lines of the Cornell movie
dialogs, each between the marks of a document, and saved at DIR, which must not be there.
"""

import argparse
import os
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from vestige.data.corpus import Corpus
from vestige.data.formats.dialogue import read_cornell
from vestige.data.subwords import SubwordVocabulary

TOKENS, BLOCK, BATCH, RATE = 4096, 128, 16, 2e-3


def network(vocabulary: SubwordVocabulary, layers: int, width: int) -> LlamaForCausalLM:
    """One with random weights."""
    end = vocabulary.eos_id
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
    )
    return LlamaForCausalLM(config)


def train(model: LlamaForCausalLM, blocks: torch.Tensor, passes: int) -> None:
    """Read blocks (n, tokens) in random order, some times over."""
    order = torch.cat([torch.randperm(len(blocks)) for _ in range(passes)]).split(BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=len(order))
    for step, chosen in enumerate(order):
        loss = model(blocks[chosen], labels=blocks[chosen]).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        rates.step()
        if step % 200 == 0:
            print(f"step {step} of {len(order)}: loss {loss.detach():.3f}", flush=True)


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=96)
    options = parser.parse_args()
    if options.out.exists():
        raise SystemExit(f"{options.out} is there already")
    texts = list(read_cornell(Path(os.environ["VESTIGE_DATA"]) / "cornell_movie"))
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(texts), size=TOKENS)
    end = vocabulary.eos_id
    ids = [token for row in vocabulary.encode_batch(texts) for token in (end, *row)]
    blocks = torch.tensor(ids[: len(ids) // BLOCK * BLOCK]).view(-1, BLOCK)
    torch.manual_seed(0)
    model = network(vocabulary, options.layers, options.width)
    train(model, blocks, options.passes)
    model.save_pretrained(options.out)
    vocabulary.tokenizer.save_pretrained(options.out)


if __name__ == "__main__":
    main()
