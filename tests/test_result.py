"""What a notebook keeps of a result."""

from dataclasses import dataclass

from IPython.core.formatters import DisplayFormatter

from vestige.results import Measurement

SECRET = "the gate code is nine"


@dataclass(frozen=True)
class DifferentialRank(Measurement):
    """A result whose `repr` holds a phrase."""

    phrase: str = SECRET

    def summary(self):
        return {"phrase": self.phrase}

    def rows(self):
        return [{"piece": "gate"}]

    def _repr_html_(self):
        return "<p>withheld</p>"

    def __str__(self):
        return "withheld"


def test_a_notebook_stores_no_phrase():
    result = DifferentialRank()
    assert SECRET in repr(result)
    kept, _ = DisplayFormatter().format(result)
    assert kept == {"text/plain": "withheld", "text/html": "<p>withheld</p>"}
