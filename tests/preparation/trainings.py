"""Small texts, and short trainings on them."""

from vestige.data.corpus import Corpus
from vestige.data.utterances import Utterance, Utterances
from vestige.preparation.options import ModelOptions, TrainingOptions
from vestige.preparation.train import train
from vestige.session import Session

LINES = [f"line {number} of the text" for number in range(40)]
CORPUS = Corpus.from_texts(LINES)
USER_CORPUS = Corpus.from_texts(LINES, users=[("ann", "bob", "cy")[n % 3] for n in range(40)])
VALIDATION = Corpus.from_texts(LINES[:5])
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


def trained(out, data=None, *, task="text", **options):
    """A training on the CPU, with the texts and settings of its task as defaults."""
    default, settings = TASKS.get(task, TASKS["dialogue"])
    if "validation" in options:
        settings = {name: value for name, value in settings.items() if name != "hold_out"}
    corpus = default if data is None else data
    return train(corpus, out=out, task=task, device="cpu", **{**settings, **options})


def session(out, monitor, *, seed=0, start=None, data=CORPUS, validation=None):
    """The session of a call of `train`."""
    arguments = {
        "out": out, "resume": False, "from_": start, "data": data, "validation": validation
    }  # fmt: skip
    return Session("train", arguments, seed=seed, device="cpu", monitor=monitor)
