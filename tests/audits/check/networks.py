"""Small networks of every kind that a check may read."""

from collections.abc import Callable

import torch
from torch import nn

from vestige.data.vocabulary import Vocabulary
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import (
    GRUConfig,
    GRULanguageModel,
    LSTMConfig,
    LSTMLanguageModel,
)
from vestige.models.transformer import CausalTransformer, TransformerConfig

RECURRENT = {
    "layers": 1, "embedding_size": 64, "hidden_size": 64, "dropout_out": 0.5, "initial_range": 0.3,
}  # fmt: skip


def network(kind: str, words: Vocabulary) -> LanguageModel:
    """A network with random weights, always the same."""
    torch.manual_seed(7)
    return KINDS[kind](words)


def _gpt2(words: Vocabulary) -> HuggingFaceLanguageModel:
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = GPT2Config(n_positions=64, n_embd=32, n_layer=2, n_head=2, **_ids(words))
    return HuggingFaceLanguageModel(GPT2LMHeadModel(shape), words)


def _llama(words: Vocabulary) -> HuggingFaceLanguageModel:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, tie_word_embeddings=True, **_ids(words),
    )  # fmt: skip
    return HuggingFaceLanguageModel(LlamaForCausalLM(shape), words)


def _ids(words: Vocabulary) -> dict[str, float]:
    ends = {"bos_token_id": words.eos_id, "eos_token_id": words.eos_id}
    return {"vocab_size": len(words), "initializer_range": 0.1, **ends}


def _transformer(words: Vocabulary) -> CausalTransformer:
    shape = TransformerConfig(
        layers=2, heads=2, hidden_size=32, feed_forward=64, max_length=64, dropout=0.5
    )
    return CausalTransformer(words, shape)


def adapted(model: HuggingFaceLanguageModel, *layers: str) -> LanguageModel:
    """An adapter that changes what the model answers, of some layers or the usual ones."""
    adapter = add_lora(model, rank=2, dropout=0.5, target_modules=list(layers) or None)
    for name, parameter in adapter.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)
    return adapter


KINDS: dict[str, Callable[[Vocabulary], LanguageModel]] = {
    "transformer": _transformer,
    "lstm": lambda words: LSTMLanguageModel(words, LSTMConfig(**RECURRENT)),
    "tied lstm": lambda words: LSTMLanguageModel(words, LSTMConfig(**RECURRENT, tied=True)),
    "gru": lambda words: GRULanguageModel(words, GRUConfig(**RECURRENT)),
    "gpt2": _gpt2,
    "llama": _llama,
    "bfloat16 llama": lambda words: _llama(words).bfloat16(),
    "gpt2 adapter": lambda words: adapted(_gpt2(words)),
    "llama adapter": lambda words: adapted(_llama(words)),
    "llama adapter with head": lambda words: adapted(_llama(words), "lm_head", "v_proj"),
}
