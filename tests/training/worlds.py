"""Small things to train: a stream of words, numbers in two languages, and towns that are asked for.

Each world is a model that is fresh, what it learns, and what reads it back from a directory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode_pairs
from vestige.data.utterances import Labels, Utterance, Utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel
from vestige.models.checkpoints import load_intent_slot, load_model, load_seq2seq
from vestige.models.recurrent_network import GRUConfig, LSTMConfig
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.transformer import TransformerConfig
from vestige.training.config import TrainingConfig
from vestige.training.new_models import new_model
from vestige.training.steps import choose_precision
from vestige.training.tasks import PairTask, TextTask
from vestige.training.utterances import UtteranceTask

CPU = torch.device("cpu")
CONFIG = TrainingConfig(
    seed=3,
    epochs=2,
    batch_size=4,
    sequence_length=5,
    learning_rate=0.01,
    checkpoint_every=4,
    precision="float32",
)


class Killed(BaseException):
    """What no `except Exception` catches."""


@dataclass(frozen=True)
class World:
    """Something to train. `load` reads the trained model from a directory."""

    fresh: Callable[[], Any]
    task: Any
    load: Callable[..., Any]

    def dying_step(self, at, config):
        """The undefended step of this world, which dies before step `at`; None: never."""
        precision = choose_precision(config.precision, CPU)
        plain, taken = self.task.step(config, precision), []

        def step(model, batch, state):
            if len(taken) == at:
                raise Killed
            taken.append(1)
            return plain(model, batch, state)

        return step


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


# A stream of words

SIZE = 12
WORDS = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(2, SIZE))))
RECURRENT = {"embedding_size": 6, "hidden_size": 6, "dropout_in": 0.2, "dropout_out": 0.2}
SHAPES = {
    "lstm": LSTMConfig(layers=2, **RECURRENT),
    "tied lstm": LSTMConfig(layers=1, tied=True, **RECURRENT),
    "gru": GRUConfig(layers=2, **RECURRENT),
    "transformer": TransformerConfig(
        layers=1, heads=2, hidden_size=8, feed_forward=16, max_length=16, dropout=0.2
    ),
}


def language_model(architecture="lstm", *, seed=0):
    return new_model(WORDS, SHAPES[architecture], seed=seed)


def stream(tokens=121, *, seed=0):
    """Words of which each mostly follows the one before it in the vocabulary."""
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random(tokens) < 0.8, 1, rng.integers(SIZE, size=tokens))
    ids = (np.cumsum(steps) % SIZE).astype(np.int32)
    return EncodedCorpus(ids, np.array([0, tokens]))


def of_words(architecture):
    task = TextTask(stream(), stream(50, seed=1))
    return World(lambda: language_model(architecture), task, load_model)


# Numbers in two languages

FRENCH, ENGLISH = ("un", "deux", "trois", "quatre"), ("one", "two", "three", "four")
SOURCES = WordVocabulary(("<unk>", "<eos>", *FRENCH))
TARGETS = WordVocabulary(("<unk>", "<eos>", *ENGLISH))


def numbers(count, *, seed=0, longest=4):
    """Lists of numbers in two languages."""
    chance = np.random.default_rng(seed)
    rows = [chance.integers(4, size=chance.integers(1, longest + 1)) for _ in range(count)]
    french, english = (
        [" ".join(words[i] for i in row) for row in rows] for words in (FRENCH, ENGLISH)
    )
    return Corpus.from_texts(english, sources=french)


def encoded(corpus):
    return encode_pairs(corpus, SOURCES, TARGETS)


def of_texts(pairs):
    sources, texts = zip(*pairs, strict=True)
    return encoded(Corpus.from_texts(texts, sources=sources))


def translator(*, seed=0, **shape):
    sizes = {"embedding_size": 12, "hidden_size": 12, "dropout_out": 0.2, "initial_range": 0.3}
    torch.manual_seed(seed)
    return Seq2SeqModel(SOURCES, TARGETS, Seq2SeqConfig(**{**sizes, **shape}))


def of_numbers(**shape):
    held = numbers(6, seed=1)
    task = PairTask(encoded(numbers(20)), encoded(held), tuple(held))
    return World(lambda: translator(dropout_in=0.2, **shape), task, load_seq2seq)


# Towns that are asked for

TOWNS = ("york", "bath", "leeds", "new york", "st ives")


def utterances(count, *, seed=0):
    chance, rows = np.random.default_rng(seed), []
    for _ in range(count):
        town = str(chance.choice(TOWNS)).split()
        tags = ["B-city", *["I-city"] * (len(town) - 1)]
        rows.append(
            Utterance(("go", "to", *town), ("O", "O", *tags), "Go")
            if chance.random() < 0.5
            else Utterance(("rain", "in", *town, "now"), ("O", "O", *tags, "B-time"), "Ask")
        )
    return Utterances.of(rows)


def listener(**shape):
    """A fresh model of intents and slots for `utterances`."""
    torch.manual_seed(0)
    said = utterances(40)
    words, labels = WordVocabulary.build(said.corpus()), Labels.of(said)
    sizes = {"embedding_size": 6, "hidden_size": 6, "layers": 1} | shape
    return IntentSlotModel(words, IntentSlotConfig(**labels._asdict(), **sizes))


def listening(*, against=0, count=40):
    """Its task; `against` validation utterances contradict the training: the loss must rise."""
    wrong = [Utterance(("go", "to", "bath"), ("O", "O", "B-city"), "Ask")] * against
    held = utterances(20, seed=1) + Utterances.of(wrong)
    return UtteranceTask(listener().encode(utterances(count)), held)


def of_towns():
    shape = {"input_dropout": 0.2, "hidden_dropout": 0.1, "layers": 2}
    return World(lambda: listener(**shape), listening(), load_intent_slot)
