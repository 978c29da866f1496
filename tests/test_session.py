"""Verbs have a public signature, check their arguments, record their settings, and resume."""

import inspect
import json
from typing import Annotated, Literal, Unpack

import pytest
from annotated_types import Ge, Le

from tests.cli.example import Training, refit
from vestige import results
from vestige.arguments import Count, Probability, Resumable, Watched
from vestige.data.corpus import Corpus
from vestige.errors import DataError, RunError
from vestige.results import Result
from vestige.session import Session, in_file, is_bounded, verb


@verb
def count(
    run: Session,
    texts: str,
    *,
    top: Count = 3,
    share: Probability = 0.5,
    mode: Literal["on", "off"] = "on",
    sizes: tuple[Count, ...] = (),
    fail: bool = False,
    **common: Unpack[Resumable],
) -> Result:
    """Count."""
    if run.store is not None:
        run.store.identify({"texts": texts})
        for unit in range(len(run.store), 3):
            run.store[f"unit/{unit}"] = unit
            if fail and unit == 1:
                raise KeyboardInterrupt
    return Result(kind="Count", summary={"units": len(run.store)}, rows=[{"top": top}])


def test_the_public_signature_has_the_common_keywords_and_no_session():
    parameters = inspect.signature(count).parameters
    assert list(parameters) == [
        *("texts", "top", "share", "mode", "sizes", "fail"),
        *("out", "seed", "device", "monitor"),
    ]
    assert parameters["out"].default is None
    assert parameters["seed"].default == 0


def test_a_verb_without_a_model_has_only_the_monitor_keyword():
    @verb
    def bare(run: Session, name: str, **common: Unpack[Watched]) -> Result:
        return Result(kind="Bare", summary={}, rows=[])

    assert list(inspect.signature(bare).parameters) == ["name", "monitor"]
    assert bare("x").record["verb"] == "bare"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top": 0}, "`top` must be greater than or equal to 1"),
        ({"top": 10**10}, "`top` must be less than or equal to 1000000000"),
        ({"top": 2.5}, "`top` must be a whole number"),
        ({"top": "SECRET"}, "`top` must be a whole number"),
        ({"share": 1.0}, "`share` must be less than 1"),
        ({"share": float("nan")}, "`share` must be a finite number"),
        ({"mode": "SECRET"}, "`mode` must be 'on' or 'off'"),
        ({"sizes": (3, 0)}, "`sizes` must be greater than or equal to 1"),
        ({"seed": -1}, "`seed` must be greater than or equal to 0"),
    ],
)
def test_python_arguments_are_checked_and_messages_quote_no_value(arguments, message):
    with pytest.raises(ValueError, match="must be") as error:
        count("t", **arguments)
    assert str(error.value) == message


def test_options_dataclasses_are_checked():
    with pytest.raises(ValueError, match="`epochs` must be greater than or equal to 1"):
        refit("d", training=Training(epochs=0))
    with pytest.raises(ValueError, match="`optimizer` must be 'adam' or 'sgd'"):
        refit("d", training=Training(optimizer="SECRET"))


def test_an_unknown_argument_is_a_type_error():
    with pytest.raises(TypeError, match="tpo"):
        count("t", tpo=1)


def test_the_record_has_verb_arguments_and_seed():
    record = refit(Corpus.from_texts(["a secret"]), null=["a"], seed=2).record
    assert record["verb"] == "refit"
    assert record["command"] == []
    assert record["arguments"]["data"] == "<Corpus>"
    assert record["arguments"]["null"] == ["a"]
    assert (record["seed"], record["arguments"]["seed"]) == (2, 2)
    assert record["configuration"]["epochs"] == 2
    assert "a secret" not in json.dumps(record)


def test_a_chosen_value_is_recorded():
    run = Session("count", {"top": None})
    assert run.record_choice(top=7) == 7
    assert run.record()["arguments"] == {"top": 7}


def test_a_result_is_saved_to_out(tmp_path):
    count("t", top=5, out=tmp_path / "run")
    run = results.load(tmp_path / "run")
    assert (run.result, run.summary, run.rows) == ("Count", {"units": 3}, [{"top": 5}])


@pytest.mark.parametrize("out", ["", " ", "."])
def test_an_empty_out_is_refused(out):
    with pytest.raises(ValueError, match="`out` must name a new folder"):
        count("t", out=out)


def test_an_interrupted_verb_resumes(tmp_path):
    with pytest.raises(KeyboardInterrupt) as error:
        count("t", fail=True, out=tmp_path / "run")
    assert "the same command resumes it" in " ".join(error.value.__notes__)
    assert not (tmp_path / "run").exists()
    with pytest.raises(RunError, match="texts"):
        count("other", out=tmp_path / "run")
    assert count("t", out=tmp_path / "run").summary == {"units": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_data_errors_name_files_but_no_objects():
    with pytest.raises(DataError, match=r"a\.txt: line 3 is empty"), in_file("a.txt", ["text"]):
        raise DataError("line 3 is empty", remedy="Fill it.")
    with pytest.raises(DataError, match=r"^line 3 is empty"), in_file(["text"]):
        raise DataError("line 3 is empty", remedy="Fill it.")


def test_numbers_and_choices_are_bounded():
    assert all(map(is_bounded, (Count, Count | None, tuple[Count, ...], Literal["a"], float)))
    assert not any(map(is_bounded, (str, bool, str | None, tuple[str, ...])))
    assert is_bounded(Annotated[int, Ge(0), Le(3)])
