"""Options that only some tasks have are refused with the others, wherever they are declared."""

from dataclasses import dataclass

import pytest
from cyclopts import Parameter

from vestige.cli.options import flags_of
from vestige.preparation.options import reject_others
from vestige.preparation.train import ONLY, train
from vestige.session import Session

TASKS = {("text", "pairs"): ("width",), ("nlu",): ("column",)}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Shape:
    """Shape."""

    width: int | None = None
    depth: int = 2


DEFAULTS = {"task": "text", "shape": Shape(), "column": "tokens", "seed": 0}


def refused(**given):
    run = Session("learn", {**DEFAULTS, **given}, defaults=DEFAULTS)
    reject_others(run, run.arguments["task"], TASKS)


@pytest.mark.parametrize(
    "arguments",
    [
        {"task": "text", "shape": Shape(width=4), "seed": 3},
        {"task": "pairs", "shape": Shape(width=4, depth=1)},
        {"task": "nlu", "shape": Shape(depth=9), "column": "words"},
        {"task": "text", "shape": Shape(), "column": "tokens"},
    ],
)
def test_options_of_the_task_and_defaults_of_others_are_let_through(arguments):
    refused(**arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"task": "text", "column": "words"}, "`column` needs `task` nlu"),
        ({"task": "nlu", "shape": Shape(width=4)}, "`width` needs `task` text or pairs"),
    ],
)
def test_an_option_of_another_task_is_refused_with_the_tasks_that_have_it(arguments, says):
    with pytest.raises(ValueError, match=f"^{says}$"):
        refused(**arguments)


def test_the_options_of_one_task_exist():
    known = {name.rstrip("_") for name in flags_of(train)}
    assert {name for names in ONLY.values() for name in names} <= known
