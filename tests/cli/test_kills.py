"""What is killed, started twice, out of disk or asked to end loses nothing: a few of each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = Path(__file__).parents[2] / "benchmarks" / "kills.py"


def found(*words):
    """What the benchmark found, by what it tried and of which command."""
    command = [sys.executable, KILLS, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    parts = json.loads(done.stdout.splitlines()[-1])
    return [row for rows in parts.values() if isinstance(rows, list) for row in rows]


@pytest.mark.long
def test_no_command_loses_anything():
    tried = found("--times", 1)
    assert len(tried) > 40
    assert [one for one in tried if one["faults"]] == []
