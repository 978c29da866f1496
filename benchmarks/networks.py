"""Small networks of Transformers, and the loop that trains them."""

import random
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import log
from torch.nn.utils.rnn import pad_sequence

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.writing import new_directory
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.training.batches import IGNORED, Batch
from vestige.training.sequences import Sequences


def gpt2(
    vocabulary: SubwordVocabulary, *, width: int = 64, layers: int = 2, heads: int = 2,
    positions: int = 64, seed: int = 0, **settings: Any,
) -> HuggingFaceLanguageModel:  # fmt: skip
    """A GPT-2 with random weights and without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    ends = dict.fromkeys(("bos_token_id", "eos_token_id"), vocabulary.eos_id)
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    sizes = {"n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": positions}
    torch.manual_seed(seed)
    config = GPT2Config(**{"vocab_size": len(vocabulary), **sizes, **dropout, **ends, **settings})
    return HuggingFaceLanguageModel(GPT2LMHeadModel(config).eval(), vocabulary)


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


def new_llama(folder: Path, texts: Sequence[str], size: int, **shape: Any) -> Path:
    """A folder with an untrained Llama over a tokenizer of `texts`, made unless it exists."""
    if not folder.exists():
        vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(texts), size=size)
        save(llama(vocabulary, **shape).network, vocabulary, folder)
    return folder


def save(network: Any, vocabulary: SubwordVocabulary, folder: Path) -> None:
    """Write a network and its tokenizer into a folder that appears when it is complete."""
    with new_directory(folder) as partial:
        network.save_pretrained(partial)
        vocabulary.save(partial)


ADAPTED = ("c_attn", "c_proj", "c_fc", "wte", "lm_head")
"""Layers of a GPT-2 with a LoRA adapter: so small a model learns few new words without the last."""


def adapter(model: HuggingFaceLanguageModel, rank: int, seed: int) -> HuggingFaceLanguageModel:
    """A new LoRA adapter on a copy of a GPT-2."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return add_lora(deepcopy(model), rank=rank, alpha=2 * rank, target_modules=ADAPTED)


def with_lora(network: Any, rank: int, **settings: Any) -> Any:
    """The network with a new LoRA adapter, on all linear layers unless stated otherwise."""
    from peft import LoraConfig, get_peft_model

    settings = {"target_modules": "all-linear", "task_type": "CAUSAL_LM", **settings}
    return get_peft_model(network, LoraConfig(r=rank, **settings))


def encode(vocabulary: Any, texts: Sequence[str], longest: int) -> list[list[int]]:
    """Token ids of texts, cut to `longest`, between end-of-text tokens."""
    end = vocabulary.eos_id
    return [[end, *ids[:longest], end] for ids in vocabulary.encode_batch(list(texts))]


def trainable(network: Any) -> list[torch.nn.Parameter]:
    """The parameters that require gradients."""
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def pretrain(
    network: Any, batches: Iterable[torch.Tensor], optimizer: Any, schedule: Any, *,
    autocast: bool = False,
) -> Any:  # fmt: skip
    """Train a network on batches of blocks of a text, in place."""
    network.train()
    for step, rows in enumerate(batches):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = network(input_ids=rows, labels=rows).loss
        update(network, loss, optimizer)
        schedule.step()
        if step % 100 == 0:
            log(f"base: step {step}, {float(loss.detach()):.3f} nats")
    return network


def update(network: Any, loss: torch.Tensor, optimizer: Any) -> None:
    """A step along the clipped gradient of a loss."""
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()


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
    """Train a network of Transformers on rows of token ids by AdamW, in place.

    Args:
        network: trained where its parameters require gradients.
        rows: from `encode`.
        epochs: passes over the rows.
        rate: learning rate.
        batch: rows of a step.
        seed: of the order of the rows.
        clip: norm of a step's gradient.
        after_epoch: called with the number of finished epochs.
    """
    network.train()
    parameters = trainable(network)
    optimizer = torch.optim.AdamW(parameters, lr=rate)
    rng = random.Random(seed)
    for epoch in range(1, epochs + 1):
        shuffled = rng.sample(list(rows), len(rows))
        for first in range(0, len(rows), batch):
            mean_loss(network, padded(shuffled[first : first + batch])).backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(parameters, clip)
            optimizer.step()
            optimizer.zero_grad()
        after_epoch(epoch)
    return network.eval()


def whole_batch(data: EncodedCorpus, length: int, first_token: int) -> Batch:
    """All sequences of encoded texts in one batch."""
    sequences = Sequences.of(data, length=length)
    return sequences.batch(np.arange(len(sequences)), first_token, torch.device("cpu"))


def padded(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Labels (rows, tokens), padded on the right with ids that the loss ignores."""
    ids = [torch.as_tensor(row) for row in rows]
    return pad_sequence(ids, batch_first=True, padding_value=IGNORED)


def inputs_of(labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """A network's inputs for padded labels."""
    mask = (labels != IGNORED).long()
    return {"input_ids": labels.clamp(min=0), "attention_mask": mask, "labels": labels}


def mean_loss(network: Any, labels: torch.Tensor) -> torch.Tensor:
    """Mean loss of padded rows."""
    return network(**inputs_of(labels)).loss


def tuned(
    start: HuggingFaceLanguageModel, texts: Sequence[str], **settings: Any
) -> HuggingFaceLanguageModel:
    """A copy of a model that has learned texts; `settings` as for `fit`."""
    network = deepcopy(start.network)
    fit(network, encode(start.vocabulary, texts, longest=61), **settings)
    return HuggingFaceLanguageModel(network, start.vocabulary)
