"""One thread, and a GPT-2 as users have it."""

import pytest
import torch

from tests.training.worlds import World
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.subwords import SubwordVocabulary
from vestige.models.checkpoints import load_model
from vestige.models.lora import add_lora
from vestige.training.tasks import TextTask

LINES = ["the quick brown fox jumps over the lazy dog", "the cat sat on the mat"] * 6


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory):
    """A world whose model is a GPT-2 with a tied head, or an adapter on it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(LINES), size=270)
    ends = {"bos_token_id": vocabulary.eos_id, "eos_token_id": vocabulary.eos_id}
    shape = GPT2Config(
        vocab_size=len(vocabulary), n_positions=16, n_embd=8, n_layer=1, n_head=2, **ends
    )
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("gpt2")
    GPT2LMHeadModel(shape).save_pretrained(folder)
    vocabulary.save(folder)

    def world(kind):
        def fresh():
            model = load_model(folder, device="cpu")
            torch.manual_seed(1)  # of the adapter's own weights
            return add_lora(model, rank=2) if kind == "adapter" else model

        return World(
            fresh, TextTask(encode(Corpus.from_texts(LINES), vocabulary), None), load_model
        )

    return world
