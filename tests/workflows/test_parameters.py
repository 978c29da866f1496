from typing import Annotated

import pytest

from tests.workflows.example import Averaged, Clipped, Trained, Training, refit
from vestige._markers import Choices
from vestige.workflows.arguments import keywords
from vestige.workflows.options import Flag
from vestige.workflows.parameters import REQUIRED, options_of

OPTIONS = {option.name: option for option in options_of(refit)}


def test_a_signature_becomes_flat_options_in_its_order():
    assert list(OPTIONS) == [
        *("data", "from", "null", "other_shapes", "epochs", "batch_size", "optimizer"),
        *("defence", "epsilon", "clip", "rounds", "text", "seed", "device"),
    ]
    assert OPTIONS["data"].flags == ()
    assert OPTIONS["data"].shown == "DATA"
    assert OPTIONS["data"].default is REQUIRED
    assert OPTIONS["data"].help == "A file or folder."
    assert OPTIONS["from"].flags == ("--from",)
    assert OPTIONS["from"].parameter == "from_"
    assert OPTIONS["null"].many
    assert OPTIONS["epochs"].default == 2  # of the signature, not of the class
    assert OPTIONS["epochs"].group == "Training"
    assert OPTIONS["optimizer"].choices == ("adam", "sgd")
    assert OPTIONS["defence"].choices == ("none", "clipped", "averaged")
    assert OPTIONS["epsilon"].kinds == ("clipped", "averaged")
    assert OPTIONS["epsilon"].help == "clipped, averaged: Spends at most so much."
    assert OPTIONS["clip"].help == "clipped: The norm."
    assert OPTIONS["clip"].group == "Defence"
    assert OPTIONS["seed"].help == "Decides everything that is drawn."


def test_flat_values_become_the_objects_of_the_call():
    given = keywords(
        refit, {"data": "d", "null": ["a"], "batch_size": 8, "defence": "clipped", "epsilon": 8.0}
    )
    assert given == {
        "data": "d",
        "null": ("a",),
        "training": Training(epochs=2, batch_size=8),
        "defence": Clipped(epsilon=8.0),
    }
    assert keywords(refit, {"data": "d", "defence": "none"}) == {"data": "d", "defence": None}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"clip": 2.0}, "`clip` must come with `defence` clipped, got none"),
        (
            {"defence": "clipped", "rounds": 2},
            "`rounds` must come with `defence` averaged, got clipped",
        ),
        ({"defence": "clipped"}, "`defence` clipped must come with `epsilon`, got none"),
    ],
)
def test_an_option_of_another_kind_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        keywords(refit, {"data": "d", **values})


def test_the_record_says_what_the_command_line_would():
    found = refit(
        "d",
        null=["a"],
        training=Training(epochs=3),
        defence=Averaged(rounds=5),
        seed=1,
    )
    assert found.record["verb"] == "refit"
    assert found.record["arguments"] == {
        "data": "d",
        "null": ["a"],
        "epochs": 3,
        "defence": "averaged",
        "rounds": 5,
        "seed": 1,
    }
    assert refit("d", training=Training(epochs=2)).record["arguments"] == {"data": "d"}


def test_the_arguments_of_a_record_repeat_the_call():
    first = refit("d", training=Training(epochs=3), defence=Averaged(rounds=5))
    again = refit(**keywords(refit, first.record["arguments"]))
    assert again == first
    assert again.record == first.record


def test_an_object_is_recorded_by_its_class():
    assert refit(Trained({})).record["arguments"] == {"data": "<Trained>"}


def test_two_options_of_one_name_are_a_bug():
    def twice(a: int, b: Annotated[int, Flag("--x")], c: Annotated[int, Flag("--x")]): ...

    with pytest.raises(TypeError, match="twice has several options x"):
        options_of(twice)


def test_a_registry_names_the_choices_of_an_option():
    def fit(*, score: Annotated[str, Choices(lambda: ("relative", "smoothed"))] = "smoothed"):
        pass

    [option] = options_of(fit)
    assert option.choices == ("relative", "smoothed")
