"""Options that only some tasks have are refused with the others, wherever they are declared."""

from dataclasses import dataclass
from typing import Annotated

import pytest

from vestige.workflows.parameters import options_of
from vestige.workflows.task_options import Only, check_task, refuse_others


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Shape.

    Attributes:
        width: Of a layer.
        depth: In layers.
    """

    width: Annotated[int | None, Only("text", "pairs")] = None
    depth: int = 2


def learn(
    task: str = "text",
    *,
    shape: Shape = Shape(),
    column: Annotated[str, Only("nlu")] = "tokens",
    seed: int = 0,
) -> None:
    """Learn.

    Args:
        task: What.
        shape: How large.
        column: Of words.
        seed: Decides.
    """


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
    refuse_others(learn, arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"task": "text", "column": "words"},
            "`column` must be left out with `task` text: it is an option of `task` nlu",
        ),
        (
            {"task": "nlu", "shape": Shape(width=4)},
            "`width` must be left out with `task` nlu: it is an option of `task` text or pairs",
        ),
    ],
)
def test_an_option_of_another_task_is_refused_with_the_tasks_that_have_it(arguments, says):
    with pytest.raises(ValueError, match=f"^{says}$"):
        refuse_others(learn, arguments)


def test_an_option_that_was_given_is_refused_even_with_its_default():
    options = {option.name: option for option in options_of(learn)}
    assert options["width"].tasks == ("text", "pairs")
    check_task(options["width"], "pairs")
    check_task(options["seed"], "anything")
    with pytest.raises(ValueError, match="`column` must be left out with `task` pairs"):
        check_task(options["column"], "pairs")
