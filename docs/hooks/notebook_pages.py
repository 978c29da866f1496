"""A page of the site for each notebook of docs/, with the outputs that stand in it."""

import json
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

SHOWN = ("image/svg+xml", "text/html", "text/plain")
"""The forms of an output, the best first."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put a page of Markdown in place of each notebook."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        notebook = json.loads(file.content_string)
        page = "\n\n".join(part for cell in notebook["cells"] for part in _cell(cell))
        files.append(File.generated(config, file.src_uri.replace(".ipynb", ".md"), content=page))
    return files


def _cell(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [f"```python\n{source}\n```", *(_output(output) for output in cell["outputs"])]


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {"text/plain": output.get("text", "")})
    kind = next(kind for kind in SHOWN if kind in data)
    shown = "".join(data[kind])
    if kind == "text/plain":
        return f"```text\n{shown}\n```"
    if kind == "image/svg+xml":
        return f'<div class="output" markdown="0">\n{shown}\n</div>'
    return f'<div class="output" style="overflow-x: auto" markdown="0">\n{shown}\n</div>'
