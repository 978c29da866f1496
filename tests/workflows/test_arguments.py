"""Arguments of a call as its record has them, whatever was given in Python."""

import json
import time
from collections import UserList
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest

from tests.workflows.example import Averaged, Clipped, Trained, Training, refit
from vestige.data.corpus import Corpus
from vestige.workflows.arguments import COMMAND, Call, flat, keywords, verb_of


def recorded(data="d", **named):
    return refit(data, **named).record["arguments"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("text", "text"),
        (Path("some/file"), "some/file"),
        (PurePosixPath("/a/b"), "/a/b"),
        (Corpus.from_texts(["a secret"]), "<Corpus>"),
        (Trained({}), "<Trained>"),
        (SimpleNamespace(secret="gate"), "<SimpleNamespace>"),
        ({"a": 1}, "<dict>"),
        ({1, 2}, "<set>"),
        (b"bytes", [98, 121, 116, 101, 115]),
        (["a", Path("b"), Trained({})], ["a", "b", "<Trained>"]),
        (("a", ("b", Path("c"))), ["a", ["b", "c"]]),
        (UserList([Path("a")]), ["a"]),
        (7, 7),
        (0.5, 0.5),
        (True, True),
        (len, "<builtin_function_or_method>"),
    ],
)
def test_a_value_is_recorded_as_json_has_it_and_an_object_by_its_class(given, expected):
    found = recorded(given)["data"]
    assert found == expected
    assert json.loads(json.dumps(found)) == expected


def test_what_has_its_default_is_left_out_however_it_is_given():
    assert recorded(null=[]) == recorded(null=()) == recorded(seed=0, text="text") == {"data": "d"}
    assert recorded(training=Training(epochs=2)) == {"data": "d"}
    assert recorded(training=Training())["epochs"] is None  # 2 is the signature's own


def test_a_kind_without_settings_is_recorded_by_its_name_alone():
    assert recorded(defence=Averaged()) == {"data": "d", "defence": "averaged"}
    assert recorded(defence=Clipped(epsilon=2.0)) == {
        "data": "d", "defence": "clipped", "epsilon": 2.0
    }  # fmt: skip


def test_a_class_that_is_no_registered_kind_is_recorded_by_its_class():
    @dataclass(frozen=True)
    class Own:
        rounds: int = 9

    assert recorded(defence=Own()) == {"data": "d", "defence": "<Own>", "rounds": 9}


def test_a_parameter_with_an_underscore_is_recorded_by_its_option():
    assert recorded(from_=Path("m")) == {"data": "d", "from": "m"}


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"null": ("a", "b"), "seed": 3},
        {"training": Training(epochs=5, optimizer="sgd")},
        {"training": Training(epochs=None)},
        {"defence": Clipped(epsilon=8.0, clip=0.5), "other_shapes": True},
        {"defence": Averaged(epsilon=1.0, rounds=7), "from_": "m"},
    ],
)
def test_recorded_arguments_call_the_workflow_alike(named):
    first = refit("d", **named)
    assert refit(**keywords(refit, first.record["arguments"])) == first


def test_keywords_leaves_out_what_is_not_given():
    assert keywords(refit, {}) == {}
    assert keywords(refit, {"seed": 0}) == {"seed": 0}


def test_an_option_of_no_parameter_is_no_argument():
    with pytest.raises(KeyError, match="lamp"):
        keywords(refit, {"lamp": 1})


def test_a_configuration_keeps_the_signatures_values_where_one_is_set():
    assert keywords(refit, {"optimizer": "adam"})["training"] == Training(
        epochs=2, optimizer="adam"
    )


def test_a_call_holds_parameters_and_nothing_else_of_its_locals():
    def fit(a: int, *, b: int = 2): ...

    assert dict(Call.of(fit, {"a": 1, "b": 3, "c": 4}).arguments) == {"a": 1, "b": 3}


def test_a_call_knows_how_long_it_takes():
    began = time.monotonic() - 5
    assert 5 <= Call(refit, {}, began).seconds < 60


def test_the_record_names_the_command_line_only_where_there_is_one():
    assert refit("d").record["command"] == []
    token = COMMAND.set(("vestige", "refit", "d"))
    try:
        assert refit("d").record["command"] == ["vestige", "refit", "d"]
    finally:
        COMMAND.reset(token)


def test_a_record_has_seed_models_and_data_and_leaves_the_result_as_it_was():
    bare = Trained({})
    call = Call(refit, Call.of(refit, dict.fromkeys(_names(), None)).arguments)
    found = call.record(bare, configuration={"a": 1}, seed=4, models={"m": 1})
    assert (found.record["seed"], found.record["models"], found.record["data"]) == (4, {"m": 1}, {})
    assert found.record["configuration"] == {"a": 1}
    assert bare.record != found.record
    assert found == bare


def _names():
    from vestige.workflows.parameters import parameters_of

    return parameters_of(refit)


def test_a_parameter_of_python_alone_is_not_in_a_record():
    assert "monitor" not in flat(refit, {**dict.fromkeys(_names(), None), "data": "d"})


def test_a_verb_is_its_workflow_with_hyphens():
    assert verb_of(refit) == "refit"
    assert verb_of(SimpleNamespace(__name__="train_on_all")) == "train-on-all"
