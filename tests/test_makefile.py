"""`make` chooses a suitable Python and names it, or says how to get one."""

import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[1] / "Makefile"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def python(folder: Path, name: str, fit: bool) -> None:
    """A Python that only says whether it will do, and makes an environment of nothing."""
    script = f"""#!/bin/sh
case "$1" in
    -c) exit {0 if fit else 1} ;;
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
    python(tmp_path, "python3.11", fit=False)
    python(tmp_path, "python3.13", fit=True)
    python(tmp_path, "python3", fit=True)
    done = make(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Making env with python3.13, Python of python3.13\n"
    assert (tmp_path / "env" / "bin" / "python").exists()
    assert "up to date" in make(tmp_path).stdout


def test_another_python_can_be_chosen(tmp_path):
    python(tmp_path, "python3.11", fit=True)
    python(tmp_path, "mine", fit=True)
    assert "with mine, Python of mine" in make(
        tmp_path, f"PYTHON={tmp_path / 'mine'}"
    ).stdout.replace(f"{tmp_path}/", "")


@pytest.mark.parametrize("words", [(), ("PYTHON=python3.10",)])
def test_without_a_python_the_message_has_a_remedy(tmp_path, words):
    python(tmp_path, "python3", fit=False)
    python(tmp_path, "python3.10", fit=False)
    done = make(tmp_path, *words)
    assert done.returncode != 0
    assert "Python 3.11 or newer" in done.stderr
    assert "make PYTHON=/path/to/python" in done.stderr
    assert not (tmp_path / "env").exists()
