"""Small texts, and short trainings on them."""

from vestige.data.corpus import Corpus
from vestige.data.utterances import Utterance, Utterances
from vestige.preparation.options import ModelOptions, TrainingOptions
from vestige.preparation.train import train
from vestige.session import Session

LINES = [f"line {number} of the text" for number in range(40)]
CORPUS = Corpus.from_texts(LINES)
LETTERS = Corpus.from_texts(LINES, users=[("ann", "bob", "cy")[n % 3] for n in range(40)])
HELD = Corpus.from_texts(LINES[:5])
SONGS = Utterances.of(
    Utterance(("play", f"song{number}"), ("O", "B-song"), "Play") for number in range(40)
)
NUMBERS = ["one", "two", "three", "four", "five", "six"]
PAIRS = Corpus.from_texts(
    [f"say {word} now" for word in NUMBERS] * 4,
    sources=[f"dites {word} vite" for word in NUMBERS] * 4,
    users=[f"user {number % 4}" for number in range(24)],
)

SMALL = ModelOptions(layers=1, hidden_size=4)
SHORT = TrainingOptions(epochs=2, batch_size=4, sequence_length=5)
TASKS = {
    "text": (CORPUS, {"model": SMALL, "training": SHORT, "hold_out": 0.3}),
    "nlu": (
        SONGS,
        {
            "model": ModelOptions(layers=1, hidden_size=4, embedding_size=4),
            "training": TrainingOptions(epochs=2),
        },
    ),
    "dialogue": (
        PAIRS,
        {
            "model": ModelOptions(hidden_size=4),
            "training": TrainingOptions(epochs=1, batch_size=8, sequence_length=6),
            "hold_out": 0.3,
        },
    ),
}


def trained(out, data=None, *, task="text", **given):
    """A training on the CPU, on the texts of its task unless it is given others."""
    usual, options = TASKS.get(task, TASKS["dialogue"])
    if "validation" in given:
        options = {name: value for name, value in options.items() if name != "hold_out"}
    own = usual if data is None else data
    return train(own, out=out, task=task, device="cpu", **{**options, **given})


def job(out, monitor, *, seed=0, start=None, data=CORPUS, validation=None):
    """A call of `train` that begins in `out`."""
    given = {"out": out, "resume": False, "from_": start, "data": data, "validation": validation}
    return Session("train", given, seed=seed, device="cpu", monitor=monitor)
