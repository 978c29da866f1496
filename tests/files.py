"""Write JSON lines, and damaged copies of folders."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_rows(path: Path, rows: Iterable[Any]) -> Path:
    """Write each row as a line of JSON."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def damaged_copy(sound: Path, copy: Path, file: str, content: str | bytes | None) -> None:
    """Copy a folder with one file replaced, or missing if the content is None."""
    shutil.copytree(sound, copy)
    (copy / file).unlink()
    if content is not None:
        (copy / file).write_bytes(content.encode() if isinstance(content, str) else content)
