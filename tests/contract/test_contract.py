"""The contract of every verb: a verdict is given only where its conditions hold.

`python -m tests.contract.test_contract [FILE]` prints the matrix, and writes it as JSON.
"""

import json
import sys
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.contract.verbs import verbs
from tests.contract.world import World
from vestige.claims import UNDECIDED
from vestige.errors import VestigeError

WORLD = World()
TABLE = verbs(WORLD)


def outcome(answer):
    """The verdict, "crash: …" for what is no refusal, and the seconds that it took."""
    started = time.perf_counter()
    try:
        found = answer()
    except (VestigeError, ValueError) as error:  # a refusal in one line decides nothing
        found = UNDECIDED if "\n" not in str(error).strip() else f"crash: {type(error).__name__}"
    except Exception as error:
        found = f"crash: {type(error).__name__}: {error}"
    return found, time.perf_counter() - started


@pytest.fixture(scope="module", autouse=True)
def _made(tmp_path_factory):
    WORLD.make(tmp_path_factory.mktemp("contract") / "world")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("verb", "condition"),
    [(verb, condition) for verb, cases in TABLE.items() for condition in cases],
)
def test_no_verb_says_more_than_its_conditions_allow(verb, condition):
    answer, allowed = TABLE[verb][condition]
    found, _ = outcome(answer)
    assert found in allowed


def main(output: str | None = None) -> None:
    """Print the matrix: verb, condition, what came out, what may."""
    matrix = {}
    with TemporaryDirectory() as folder:
        WORLD.make(Path(folder) / "world")
        for verb, cases in TABLE.items():
            for condition, (answer, allowed) in cases.items():
                found, seconds = outcome(answer)
                right = "right" if found in allowed else "WRONG"
                matrix[f"{verb}|{condition}"] = [right, found, sorted(allowed), round(seconds, 1)]
                print(
                    f"{verb:28} {condition:28} {right} {found:15.60} {seconds:5.1f} s", flush=True
                )
    wrong = sum(row[0] == "WRONG" for row in matrix.values())
    print(json.dumps({"cells": len(matrix), "wrong": wrong}))
    if output:
        Path(output).write_text(json.dumps(matrix, indent=1))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main(*sys.argv[1:])
