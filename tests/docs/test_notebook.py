"""The example notebook runs without a network and gives the stored outputs."""

import ast

import nbformat
import pytest

from tests.docs.notebook import NOTEBOOK, executed


def outputs_of(notebook: nbformat.NotebookNode) -> list[list[dict[str, str]]]:
    """The outputs of each code cell, by type."""
    cells = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    return [[dict(output.get("data", output)) for output in outputs] for outputs in cells]


def types(notebook: nbformat.NotebookNode) -> list[list[set[str]]]:
    """The types of outputs, without progress on standard error."""
    return [
        [set(output) for output in outputs if output.get("name") != "stderr"]
        for outputs in outputs_of(notebook)
    ]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> nbformat.NotebookNode:
    return executed(NOTEBOOK, tmp_path_factory.mktemp("notebook"))


@pytest.fixture(scope="module")
def stored() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.mark.slow
def test_the_notebook_runs_and_gives_outputs_of_the_stored_types(fresh, stored):
    assert types(fresh) == types(stored)


@pytest.mark.slow
def test_the_notebook_finds_the_planted_phrase_and_flags_users(fresh):
    texts = [output.get("text/plain", "") for outputs in outputs_of(fresh) for output in outputs]
    [frame] = [text for text in texts if "score" in text and "phrase " in text]
    assert "station mirror six lifts four kettle" in frame
    flagged, users = ast.literal_eval(texts[-2])
    assert flagged > users / 2


def test_the_stored_notebook_has_its_pictures_and_no_paths(stored):
    outputs = [output for cell in outputs_of(stored) for output in cell]
    assert sum("image/svg+xml" in output for output in outputs) == 2
    assert not any("/lib/python" in str(output) for output in outputs)
