"""Small networks of Transformers, and the loop that trains them."""

import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from vestige.data.subwords import SubwordVocabulary
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora

IGNORED = -100


def gpt2(
    vocabulary: SubwordVocabulary, *, width: int = 64, layers: int = 2, heads: int = 2,
    positions: int = 64, seed: int = 0, **settings: Any,
) -> HuggingFaceLanguageModel:  # fmt: skip
    """A GPT-2 with random weights and without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    ends = dict.fromkeys(("bos_token_id", "eos_token_id"), vocabulary.eos_id)
    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    sizes = {"n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": positions}
    torch.manual_seed(seed)
    config = GPT2Config(**{"vocab_size": len(vocabulary), **sizes, **drops, **ends, **settings})
    return HuggingFaceLanguageModel(GPT2LMHeadModel(config).eval(), vocabulary)


ADAPTED = ("c_attn", "c_proj", "c_fc", "wte", "lm_head")
"""Layers of a GPT-2 with a LoRA adapter: so small a model learns few new words without the last."""


def adapter(model: HuggingFaceLanguageModel, rank: int, seed: int) -> HuggingFaceLanguageModel:
    """A fresh LoRA adapter on a copy of a GPT-2, whose own weights would be frozen."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return add_lora(deepcopy(model), rank=rank, alpha=2 * rank, target_modules=ADAPTED)


def llama(
    vocabulary: SubwordVocabulary, *, width: int, layers: int, heads: int, inner: int,
    seed: int = 0, **settings: Any,
) -> HuggingFaceLanguageModel:  # fmt: skip
    """A Llama with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    ends = dict.fromkeys(("bos_token_id", "eos_token_id"), vocabulary.eos_id)
    sizes = {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers}
    both = dict.fromkeys(("num_attention_heads", "num_key_value_heads"), heads)
    torch.manual_seed(seed)
    config = LlamaConfig(**{"vocab_size": len(vocabulary), **sizes, **both, **ends, **settings})
    return HuggingFaceLanguageModel(LlamaForCausalLM(config).eval(), vocabulary)


def encode(model: Any, texts: Sequence[str], longest: int) -> list[list[int]]:
    """Ids of texts between the marks of a document."""
    end = model.vocabulary.eos_id
    return [[end, *ids[:longest], end] for ids in model.vocabulary.encode_batch(list(texts))]


def fit(
    network: Any,
    rows: Sequence[Sequence[int]],
    *,
    epochs: int,
    rate: float,
    batch: int,
    seed: int,
    clip: float | None = None,
    after_epoch: Callable[[int], object] = lambda epoch: None,
) -> Any:
    """Train a network of Transformers on rows of ids by AdamW, in place.

    Args:
        network: whose parameters with gradients learn.
        rows: ids with the marks of a document.
        epochs, rate, batch: of the training.
        seed: of the order of the rows.
        clip: norm of a step's gradient.
        after_epoch: called with the number of finished epochs.
    """
    network.train()
    learning = [one for one in network.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=rate)
    order = random.Random(seed)
    for epoch in range(1, epochs + 1):
        shuffled = order.sample(list(rows), len(rows))
        for first in range(0, len(rows), batch):
            labels = padded(shuffled[first : first + batch])
            loss_of(network, labels).backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(learning, clip)
            optimizer.step()
            optimizer.zero_grad()
        after_epoch(epoch)
    return network.eval()


def loss_of(network: Any, labels: torch.Tensor) -> torch.Tensor:
    """Mean loss of padded rows."""
    seen = (labels != IGNORED).long()
    return network(input_ids=labels.clamp(min=0), attention_mask=seen, labels=labels).loss


def tuned(
    start: HuggingFaceLanguageModel, texts: Sequence[str], *, longest: int = 61, **settings: Any
) -> HuggingFaceLanguageModel:
    """A model that learns texts, beginning as another one, which stays as it is."""
    network = deepcopy(start.network)
    fit(network, encode(start, texts, longest), **settings)
    return HuggingFaceLanguageModel(network, start.vocabulary)


def padded(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Labels (rows, tokens), padded on the right with ids that no loss counts."""
    ids = [torch.as_tensor(row) for row in rows]
    return pad_sequence(ids, batch_first=True, padding_value=IGNORED)
