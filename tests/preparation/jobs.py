"""A call of `train`, a monitor that keeps what it receives, and lines to train on."""

from tests.told import Told
from vestige.data.corpus import Corpus
from vestige.session import Session

__all__ = ["CORPUS", "LINES", "Told", "job"]
LINES = [f"line {number} of the text" for number in range(40)]
CORPUS = Corpus.from_texts(LINES)


def job(out, *, seed=0, start=None, data=CORPUS, validation=None):
    """A call of `train` that begins in `out`, on the CPU."""
    given = {"out": out, "resume": False, "from_": start, "data": data, "validation": validation}
    return Session("train", given, seed=seed, device="cpu", monitor=Told())
