"""Tiny random networks of every architecture, and a text for them to read."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import (
    GRUConfig,
    GRULanguageModel,
    LSTMConfig,
    LSTMLanguageModel,
)
from vestige.models.table import TableModel
from vestige.models.transformer import CausalTransformer, TransformerConfig

Make = Callable[[], LanguageModel]


@pytest.fixture(scope="session")
def words() -> WordVocabulary:
    return WordVocabulary(("<unk>", "<eos>", *(f"word{i}" for i in range(18))))


@pytest.fixture(scope="session")
def subwords() -> SubwordVocabulary:
    text = "the quick brown fox jumps over the lazy dog and the cat sat on the mat"
    return SubwordVocabulary.train_bpe(Corpus.from_texts([text] * 4), size=280)


@pytest.fixture(scope="session")
def folders(
    subwords: SubwordVocabulary, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Hugging Face folders as users have them: written by transformers, not by us."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    eos = subwords.eos_id
    torch.manual_seed(0)
    networks = {
        "gpt2": GPT2LMHeadModel(
            GPT2Config(
                vocab_size=len(subwords) + 8,  # padded, as real ones are
                n_positions=12,
                n_embd=16,
                n_layer=2,
                n_head=2,
                bos_token_id=eos,
                eos_token_id=eos,
                initializer_range=0.3,
            )
        ),
        "llama": LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(subwords),
                hidden_size=16,
                intermediate_size=24,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=64,
                bos_token_id=eos,
                eos_token_id=eos,
                initializer_range=0.3,
            )
        ),
    }
    place = tmp_path_factory.mktemp("hugging_face")
    for name, network in networks.items():
        network.save_pretrained(place / name)
        subwords.save(place / name)
    return {name: place / name for name in networks}


@pytest.fixture(scope="session")
def make(words: WordVocabulary, folders: dict[str, Path]) -> dict[str, Make]:
    """How to make a fresh model of each architecture, in evaluation mode."""

    def seeded(build: Make) -> Make:
        def build_seeded() -> LanguageModel:
            torch.manual_seed(7)
            return build().eval()

        return build_seeded

    def table() -> LanguageModel:
        return TableModel(*(torch.rand(n).softmax(-1) for n in ((20,), (20, 20))), words)

    def lora(name: str) -> Make:
        def build() -> LanguageModel:
            from vestige.models.lora import add_lora
            from vestige.models.pretrained import load

            model = add_lora(load(folders[name]), rank=2)
            for key, parameter in model.named_parameters():
                if "lora_B" in key:  # B starts from zero: give the adapter something to say
                    torch.nn.init.normal_(parameter, std=0.5)
            return model

        return build

    def pretrained(name: str) -> Make:
        def build() -> LanguageModel:
            from vestige.models.pretrained import load

            return load(folders[name])

        return build

    lstm = LSTMConfig(
        embedding_size=8, hidden_size=12, dropout_in=0.5, dropout_out=0.5, initial_range=0.5
    )
    tied = LSTMConfig(layers=1, embedding_size=8, hidden_size=8, tied=True, initial_range=0.5)
    gru = GRUConfig(
        embedding_size=8, hidden_size=12, dropout_in=0.5, dropout_out=0.5, initial_range=0.5
    )
    blocks = TransformerConfig(
        layers=2, heads=2, hidden_size=8, feed_forward=16, max_length=12, dropout=0.5
    )
    return {
        "lstm": seeded(lambda: LSTMLanguageModel(words, lstm)),
        "tied lstm": seeded(lambda: LSTMLanguageModel(words, tied)),
        "gru": seeded(lambda: GRULanguageModel(words, gru)),
        "transformer": seeded(lambda: CausalTransformer(words, blocks)),
        "table": seeded(table),
        "gpt2": seeded(pretrained("gpt2")),
        "llama": seeded(pretrained("llama")),
        "gpt2 adapter": seeded(lora("gpt2")),
        "llama adapter": seeded(lora("llama")),
    }
