"""`make` chooses a suitable Python and names it, or says how to choose one."""

import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[1] / "Makefile"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def fake_python(folder: Path, name: str, *, suitable: bool) -> None:
    """A program that pretends to be a Python and makes an empty environment."""
    script = f"""#!/bin/sh
case "$1" in
    -c) exit {0 if suitable else 1} ;;
    --version) echo "Python of {name}" ;;
    -m) mkdir -p "$3/bin" && : > "$3/bin/python" ;;
esac
"""
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    for name in ("make", "sh", "mkdir"):
        if not (folder / name).exists():
            (folder / name).symlink_to(shutil.which(name))
    return subprocess.run(
        ["make", "--file", MAKEFILE, *words, "env/bin/python"],
        cwd=folder,
        env={"PATH": str(folder), "VENV": "env"},
        capture_output=True,
        text=True,
    )


def test_the_first_suitable_python_is_used(tmp_path):
    fake_python(tmp_path, "python3.11", suitable=False)
    fake_python(tmp_path, "python3.13", suitable=True)
    fake_python(tmp_path, "python3", suitable=True)
    done = make(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Making env with python3.13, Python of python3.13\n"
    assert (tmp_path / "env" / "bin" / "python").exists()
    assert "up to date" in make(tmp_path).stdout


def test_another_python_can_be_chosen(tmp_path):
    fake_python(tmp_path, "python3.11", suitable=True)
    fake_python(tmp_path, "mine", suitable=True)
    done = make(tmp_path, f"PYTHON={tmp_path / 'mine'}")
    assert f"with {tmp_path / 'mine'}, Python of mine" in done.stdout


@pytest.mark.parametrize("words", [(), ("PYTHON=python3.10",)])
def test_without_a_python_the_message_has_a_remedy(tmp_path, words):
    fake_python(tmp_path, "python3", suitable=False)
    fake_python(tmp_path, "python3.10", suitable=False)
    done = make(tmp_path, *words)
    assert done.returncode != 0
    assert "Python 3.11 or newer" in done.stderr
    assert "make PYTHON=/path/to/python" in done.stderr
    assert not (tmp_path / "env").exists()
