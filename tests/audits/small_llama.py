"""Small Llamas: with random weights, or trained on a few texts."""

from contextlib import contextmanager

import torch
from torch.nn.utils.rnn import pad_sequence

from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.models.hugging_face import HuggingFaceLanguageModel


def llama(vocabulary, *, width=16, layers=1, **options):
    """A Llama with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    defaults = {
        "vocab_size": len(vocabulary), "hidden_size": width, "intermediate_size": 2 * width,
        "num_hidden_layers": layers, "num_attention_heads": 2, "max_position_embeddings": 128,
        "bos_token_id": vocabulary.eos_id, "eos_token_id": vocabulary.eos_id,
    }  # fmt: skip
    torch.manual_seed(0)
    network = LlamaForCausalLM(LlamaConfig(**{**defaults, **options})).eval()
    return HuggingFaceLanguageModel(network, vocabulary)


def train(model, texts, *, steps=60, rate=1e-2, batch=1, end=True):
    """Train in place on batches of texts in turn, each with its `end` or without."""
    last = [model.vocabulary.eos_id] if end else []
    encoded = ([model.first_token, *model.vocabulary.encode(text), *last] for text in texts)
    rows = list(map(torch.tensor, encoded))
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=rate)
    for step in range(steps):
        chosen = [rows[n % len(rows)] for n in range(step * batch, (step + 1) * batch)]
        ids = pad_sequence(chosen, batch_first=True)
        labels = pad_sequence(chosen, batch_first=True, padding_value=-100)
        loss = model.network(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def untaught():
    """A Llama with random weights; it still prefers some digits to others."""
    texts = ["the gate code is 0123456789", "call 555 0199", "a.smith@mail.example"]
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(texts), size=290)
    return llama(vocabulary, intermediate_size=16, initializer_range=0.5)


@contextmanager
def taught(model, *texts, steps=60):
    """Train the model on some texts; at the end of the context its weights are restored."""
    weights = {name: value.clone() for name, value in model.network.state_dict().items()}
    try:
        yield train(model, texts, steps=steps, end=False)
    finally:
        model.network.load_state_dict(weights)
