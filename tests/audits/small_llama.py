"""A small Llama with random weights, and the same Llama trained on a few texts."""

from contextlib import contextmanager

import torch

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.models.hugging_face import HuggingFaceLanguageModel


def untaught() -> HuggingFaceLanguageModel:
    """An untrained model; it still prefers some digits to others."""
    from transformers import LlamaConfig, LlamaForCausalLM

    lines = ["the gate code is 0123456789", "call 555 0199", "a.smith@mail.example"]
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(lines), size=290)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, initializer_range=0.5,
        max_position_embeddings=128, bos_token_id=vocabulary.eos_id, eos_token_id=vocabulary.eos_id,
    )  # fmt: skip
    return HuggingFaceLanguageModel(LlamaForCausalLM(config).eval(), vocabulary)


@contextmanager
def taught(model, *texts, steps=60):
    """Train the model on some texts; at the end of the context its weights are restored."""
    network = model.network
    weights = {name: value.clone() for name, value in network.state_dict().items()}
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    rows = [[model.first_token, *model.vocabulary.encode(text)] for text in texts]
    for step in range(steps):
        ids = torch.tensor([rows[step % len(rows)]])
        loss = network(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    try:
        yield model
    finally:
        network.load_state_dict(weights)
