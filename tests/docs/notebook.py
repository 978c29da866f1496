"""Runs a notebook as a reader does; `python -m tests.docs.notebook` stores its outputs.

OMP_NUM_THREADS=1 python -m tests.docs.notebook
"""

import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from tests.docs.documents import REPOSITORY

NOTEBOOK = REPOSITORY / "docs" / "notebook.ipynb"


def executed(path: Path, folder: Path) -> NotebookNode:
    """The notebook with fresh outputs, run in a folder."""
    notebook = nbformat.read(path, as_version=4)
    environment = {
        **os.environ,
        "IPYTHONDIR": str(folder / ".ipython"),
        "PYTHONWARNINGS": "ignore:IProgress not found",  # progress bars are not drawn
    }
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, kernel_name="python3", timeout=300, resources=resources)
    client.execute(env=environment)
    return notebook


def store(path: Path = NOTEBOOK) -> None:
    """Run a notebook and store its outputs, without metadata that differ from run to run."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = executed(path, Path(folder))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = NotebookNode({"kernelspec": kernel, "language_info": {"name": "python"}})
    for cell in notebook.cells:
        cell.metadata = NotebookNode()
    nbformat.write(notebook, path)


if __name__ == "__main__":
    store()
