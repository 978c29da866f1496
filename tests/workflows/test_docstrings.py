from tests.workflows.example import refit
from vestige.workflows.docstrings import docstring


def test_a_docstring_in_its_parts():
    told = docstring(refit)
    assert told.summary == "Train a model on `data`, or continue one with `from_`."
    assert told.text.endswith("The `training` goes on where it was.")
    assert told.entries["data"] == "A file or folder."
    assert told.examples == ("vestige refit corpus.txt --out model",)
