"""Hugging Face models and LoRA adapters go through the same loop as our own networks."""

import json

import pytest
import torch
from safetensors.torch import load_file

from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.subwords import SubwordVocabulary
from vestige.models.checkpoints import load_model
from vestige.models.lora import add_lora
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import evaluate
from vestige.training.loop import train
from vestige.training.steps import plain_step

CONFIG = TrainingConfig(
    seed=3, epochs=3, batch_size=2, sequence_length=8, learning_rate=0.01, checkpoint_every=3
)
LINES = ["the quick brown fox jumps over the lazy dog", "the cat sat on the mat"] * 6


class Killed(BaseException):
    """What no `except Exception` catches."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A GPT-2 as users have it, its head tied to its embedding."""
    from transformers import GPT2Config, GPT2LMHeadModel

    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(LINES), size=270)
    shape = GPT2Config(
        vocab_size=len(vocabulary),
        n_positions=16,
        n_embd=8,
        n_layer=1,
        n_head=2,
        bos_token_id=vocabulary.eos_id,
        eos_token_id=vocabulary.eos_id,
    )
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("gpt2")
    GPT2LMHeadModel(shape).save_pretrained(place)
    vocabulary.save(place)
    return place


def fresh(folder, kind):
    model = load_model(folder, device="cpu")
    torch.manual_seed(1)  # of the adapter's own weights
    return add_lora(model, rank=2) if kind == "adapter" else model


def text(model):
    return encode(Corpus.from_texts(LINES), model.vocabulary)


@pytest.mark.parametrize("kind", ["gpt2", "adapter"])
def test_it_learns_and_an_interruption_does_not_show(folder, tmp_path, kind):
    def dying_step(at):
        plain, taken = plain_step(max_grad_norm=5.0), []

        def step(model, batch, state):
            if len(taken) == at:
                raise Killed
            taken.append(1)
            return plain(model, batch, state)

        return step

    def run(directory, die_at=None):
        model = fresh(folder, kind)
        data, step = text(model), dying_step(die_at)
        train(model, data, config=CONFIG, directory=directory, step=step, resume=True)
        return model

    untrained = fresh(folder, kind)
    before = evaluate(untrained, text(untrained), sequence_length=8).perplexity
    whole = run(tmp_path / "whole")
    with pytest.raises(Killed):
        run(tmp_path / "cut", die_at=10)
    resumed = run(tmp_path / "cut")

    assert evaluate(whole, text(whole), sequence_length=8).perplexity < before
    assert left_behind(tmp_path / "cut") == left_behind(tmp_path / "whole")
    read_back = load_model(tmp_path / "cut", device="cpu")
    ids = torch.tensor([text(whole).tokens[:8].tolist()])
    for model in (resumed, read_back):
        assert model(ids)[0].equal(whole(ids)[0])


def left_behind(directory):
    """Checkpoint and records, without the seconds that they took."""
    history = json.loads((directory / "history.json").read_text())
    tensors = load_file(directory / "checkpoint.safetensors")
    held = {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
    return held, [{**record, "seconds": None} for record in history]


def test_an_adapters_checkpoint_holds_the_adapter_alone(folder, tmp_path):
    model = fresh(folder, "adapter")
    train(model, text(model), config=CONFIG, directory=tmp_path)
    held = load_file(tmp_path / "checkpoint.safetensors")
    names = [name for name in held if name.startswith("model.")]
    assert names
    assert all("lora" in name for name in names)
