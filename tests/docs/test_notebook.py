"""The example notebook runs as it stands, without a network, and shows what is stored in it."""

import re

import nbformat
import pytest

from tests.docs.notebook import NOTEBOOK, executed


def shown(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """The texts that each cell shows, without their numbers: those depend on the processor."""
    cells = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    texts = [
        [
            str(output.get("data", output).get("text/plain", output.get("text")))
            for output in outputs
        ]
        for outputs in cells
    ]
    return [[re.sub(r"[-+\d.e%]+|\s+", " ", text) for text in cell] for cell in texts]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> nbformat.NotebookNode:
    return executed(NOTEBOOK, tmp_path_factory.mktemp("notebook"))


@pytest.mark.slow
def test_it_shows_what_is_stored(fresh):
    assert shown(fresh) == shown(nbformat.read(NOTEBOOK, as_version=4))


@pytest.mark.slow
def test_it_finds_what_it_planted_and_whom_it_learnt(fresh):
    shown = str([cell.get("outputs") for cell in fresh.cells])
    assert "nine seven two" in shown
    assert "members found" in shown


def test_its_pictures_are_in_it():
    outputs = str([cell.get("outputs") for cell in nbformat.read(NOTEBOOK, as_version=4).cells])
    assert outputs.count("image/svg+xml") >= 2
    assert "Traceback" not in outputs
