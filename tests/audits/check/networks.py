"""Small networks of every kind that a check supports."""

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


def network(kind: str, vocabulary: Vocabulary) -> LanguageModel:
    """A network with the same random weights in every call."""
    torch.manual_seed(7)
    return KINDS[kind](vocabulary)


def _gpt2(vocabulary: Vocabulary) -> HuggingFaceLanguageModel:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_positions=64, n_embd=32, n_layer=2, n_head=2, **_ids(vocabulary))
    return HuggingFaceLanguageModel(GPT2LMHeadModel(config), vocabulary)


def _llama(vocabulary: Vocabulary) -> HuggingFaceLanguageModel:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, tie_word_embeddings=True, **_ids(vocabulary),
    )  # fmt: skip
    return HuggingFaceLanguageModel(LlamaForCausalLM(config), vocabulary)


def _ids(vocabulary: Vocabulary) -> dict[str, float]:
    ends = {"bos_token_id": vocabulary.eos_id, "eos_token_id": vocabulary.eos_id}
    return {"vocab_size": len(vocabulary), "initializer_range": 0.1, **ends}


def _transformer(vocabulary: Vocabulary) -> CausalTransformer:
    config = TransformerConfig(
        layers=2, heads=2, hidden_size=32, feed_forward=64, max_length=64, dropout=0.5
    )
    return CausalTransformer(vocabulary, config)


def adapted(model: HuggingFaceLanguageModel, *layers: str) -> LanguageModel:
    """A model with a random adapter on some layers, or on the default ones."""
    adapter = add_lora(model, rank=2, dropout=0.5, target_modules=list(layers) or None)
    for name, parameter in adapter.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)
    return adapter


KINDS: dict[str, Callable[[Vocabulary], LanguageModel]] = {
    "transformer": _transformer,
    "lstm": lambda vocabulary: LSTMLanguageModel(vocabulary, LSTMConfig(**RECURRENT)),
    "tied lstm": lambda vocabulary: LSTMLanguageModel(
        vocabulary, LSTMConfig(**RECURRENT, tied=True)
    ),
    "gru": lambda vocabulary: GRULanguageModel(vocabulary, GRUConfig(**RECURRENT)),
    "gpt2": _gpt2,
    "llama": _llama,
    "bfloat16 llama": lambda vocabulary: _llama(vocabulary).bfloat16(),
    "gpt2 adapter": lambda vocabulary: adapted(_gpt2(vocabulary)),
    "llama adapter": lambda vocabulary: adapted(_llama(vocabulary)),
    "llama adapter with head": lambda vocabulary: adapted(_llama(vocabulary), "lm_head", "v_proj"),
}
