"""The example notebook runs as it stands, without a network, and shows what is stored in it."""

import ast

import nbformat
import pytest

from tests.docs.notebook import NOTEBOOK, executed


def shown(notebook: nbformat.NotebookNode) -> list[list[dict[str, str]]]:
    """What each cell of code shows, by kind."""
    cells = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    return [[dict(output.get("data", output)) for output in outputs] for outputs in cells]


def kinds(notebook: nbformat.NotebookNode) -> list[list[set[str]]]:
    """Without what stands on standard error: progress, where a machine is slow."""
    return [
        [set(output) for output in outputs if output.get("name") != "stderr"]
        for outputs in shown(notebook)
    ]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> nbformat.NotebookNode:
    return executed(NOTEBOOK, tmp_path_factory.mktemp("notebook"))


@pytest.fixture(scope="module")
def stored() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.mark.slow
def test_it_runs_and_shows_the_kinds_of_things_that_are_stored(fresh, stored):
    assert kinds(fresh) == kinds(stored)


@pytest.mark.slow
def test_it_finds_what_it_planted_and_whom_it_learnt(fresh):
    texts = [output.get("text/plain", "") for outputs in shown(fresh) for output in outputs]
    [frame] = [text for text in texts if "score" in text and "phrase " in text]
    assert "station mirror six lifts four kettle" in frame
    flagged, users = ast.literal_eval(texts[-2])
    assert flagged > users / 2


def test_its_pictures_are_in_it_and_no_path_of_a_machine(stored):
    everything = [output for outputs in shown(stored) for output in outputs]
    assert sum("image/svg+xml" in output for output in everything) == 2
    assert not any("/lib/python" in str(output) for output in everything)
