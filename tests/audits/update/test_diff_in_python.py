"""`diff` called from Python: with paths, with loaded models, and both."""

import pytest

from tests.cli.conftest import table_model
from vestige import NullOptions, diff
from vestige.models.checkpoints import save_model
from vestige.reports.report import report_of
from vestige.results import run_of

WORDS = ["the", "code", "gate", "of", "is"]


@pytest.fixture
def models(tmp_path):
    """Two snapshots and two null models, by name; each lies in `tmp_path` as well."""
    names = ("before", "after", "null-0", "null-1")
    made = {name: table_model(WORDS, seed) for seed, name in enumerate(names, 2)}
    for name, model in made.items():
        save_model(model, tmp_path / name)
    return made


def test_models_and_paths_say_the_same(models, tmp_path):
    of_paths = diff(
        tmp_path / "before",
        str(tmp_path / "after"),
        null=[tmp_path / "null-0", tmp_path / "null-1"],
        length=3,
        min_length=2,
    )
    of_models = diff(
        models["before"],
        models["after"],
        null=[models["null-0"], tmp_path / "null-1"],
        length=3,
        min_length=2,
    )
    assert of_paths.rows
    assert of_paths.summary == of_models.summary
    assert of_paths.rows == of_models.rows


def test_the_record_says_which_nulls(models, tmp_path):
    found = diff(
        models["before"], tmp_path / "after", null=[models["null-0"], tmp_path / "null-1"], top=3
    )
    nulls = found.record["models"]["nulls"]
    assert nulls["path"] == [None, str(tmp_path / "null-1")]
    assert len(set(nulls["sha256"])) == 2
    assert found.record["verb"] == "diff"
    given = {
        "before": "<TableModel>",
        "after": str(tmp_path / "after"),
        "null": ["<TableModel>", str(tmp_path / "null-1")],
        "top": 3,
    }
    assert {name: found.record["arguments"][name] for name in given} == given


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 1}, "`length` must be greater than or equal to 2"),
        ({"length": 5, "min_length": 6}, "`length` must be at least `min_length`, got 5 and 6"),
        ({"score": "loud"}, "`score` must be one of differential, relative, smoothed"),
        ({"budget": 9}, "`budget` needs `phrase`"),
        ({"phrase": "the code", "minutes": 2}, "`minutes` cannot be given with `phrase`"),
        ({"phrase": "the code", "prompt": "the"}, "`prompt` cannot be given with `phrase`"),
        ({"nulls": 3}, "`nulls` needs `clean`"),
        ({"training": NullOptions(epochs=3)}, "`epochs` needs `clean`"),
        ({"clean": "text", "null": "nulls"}, "`null` cannot be given with `clean`"),
        ({"clean": "text", "removed": True}, "`removed` cannot be given with `clean`"),
    ],
)
def test_an_option_without_the_one_that_it_needs_is_refused(models, settings, message):
    with pytest.raises(ValueError, match=message):
        diff(models["before"], models["after"], **settings)


def test_texts_that_python_gives_are_redacted_on_the_page(models):
    found = diff(
        models["before"], models["after"], size=0.1, prompt="the code", prompts=["the gate of"],
        secrets=["the code of the gate"],
    )  # fmt: skip
    for show_secrets in (False, True):
        facts = repr(report_of(run_of(found), show_secrets=show_secrets).settings)
        assert ("the gate of" in facts) == show_secrets
        assert ("the code" in facts) == show_secrets
