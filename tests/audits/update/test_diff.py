"""`diff` end to end, by command and in Python: rows, records, what is shown and refused."""

import html
import json
import math
from itertools import pairwise

import numpy as np
import pytest

import vestige
from tests.cli.conftest import table_model
from vestige import NullOptions, results
from vestige.audits.update.report import phrases
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import load_model, save_model
from vestige.models.table import TableModel
from vestige.reports.report import report_of
from vestige.results import run_of


def searched(shell, workspace, out, *words):
    done = shell("diff", workspace / "before", workspace / "after", "--out", out, *words)
    assert done.finished, (done.stderr, done.exception)
    return done


SMALL = ["--length", 6, "--min-length", 2, "--delta", 0.02, "--device", "cpu"]


@pytest.mark.slow
def test_the_verb_saves_what_the_library_finds_and_what_was_asked(shell, workspace, tmp_path):
    words = ["--size", 0.2, "--length", 12, "--min-length", 2, "--score", "differential"]
    done = searched(shell, workspace, tmp_path / "run", *words, "--json")
    models = [load_model(workspace / name) for name in ("before", "after")]
    found = vestige.diff(*models, size=0.2, length=12, min_length=2, score="differential")
    assert found.rows
    run = results.load(tmp_path / "run")
    assert (run.result, run.rows) == ("UpdateDiff", list(results.plain(found.rows)))
    assert json.loads(done.stdout) == run.summary == results.plain(found.summary)
    assert [row["rank"] for row in run.rows] == list(range(1, len(run.rows) + 1))
    told = run.run
    assert told["command"][:2] == ["vestige", "diff"]
    assert told["configuration"]["search"]["max_tokens"] == 12
    assert told["configuration"]["search"]["sampling"]["samples"] == 80
    assert told["configuration"]["score"]["name"] == "differential"
    assert told["models"]["before"]["sha256"] != told["models"]["after"]["sha256"]


@pytest.mark.slow
def test_an_update_that_promotes_nothing_is_told_in_words(shell, workspace, tmp_path):
    same = ["diff", workspace / "before", workspace / "before", "--out", tmp_path / "run"]
    done = shell(*same)
    assert done.exit_code == 3
    assert "Both models are the same." in done.stdout
    assert "The search found no promoted phrase" in done.stdout
    assert "use --phrase or vestige exposure" in done.stdout
    assert "\nPhrases\n" not in done.stdout
    for words in ("Plan: 1 search, ", "Searched: ", "after the beginning of a document"):
        assert words in done.stderr
    page = shell("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert page.finished, page.stderr
    assert "Searched: " in html.unescape((tmp_path / "page.html").read_text("utf-8"))


@pytest.mark.slow
def test_removed_swaps_the_roles(shell, workspace, tmp_path):
    searched(shell, workspace, tmp_path / "a", "--removed")
    swapped = ["diff", workspace / "after", workspace / "before", "--out", tmp_path / "b"]
    assert shell(*swapped).finished
    assert results.load(tmp_path / "a").rows == results.load(tmp_path / "b").rows


@pytest.fixture(scope="module")
def nulls(tmp_path_factory):
    """A folder of nineteen null models of the workspace's `before`."""
    folder = tmp_path_factory.mktemp("nulls")
    for seed in range(19):
        save_model(table_model(["the", "code", "gate", "of", "is"], 100 + seed), folder / f"{seed}")
    return folder


@pytest.mark.slow
def test_a_folder_of_nineteen_null_models_is_compared_with(shell, workspace, nulls, tmp_path):
    words = ["--size", 0.2, "--length", 3, "--min-length", 2, "--null", nulls]
    done = searched(shell, workspace, tmp_path / "run", *words)
    run = results.load(tmp_path / "run")
    assert run.summary["null_searches"] == 19
    assert run.summary["verdict"] == "undecided"  # these tables are too weak for an audit
    assert run.summary["claim"]["test"]["least"] == 0.05
    assert len(set(run.run["models"]["nulls"]["sha256"])) == 19
    assert "19 null models" in done.stdout
    page = shell("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert page.finished, page.stderr
    shown = html.unescape((tmp_path / "page.html").read_text("utf-8"))
    for sentence in phrases(run.summary):
        assert sentence in done.stdout
        assert sentence in shown


@pytest.mark.slow
def test_phrases_are_withheld_on_the_terminal_unless_they_are_wanted(shell, workspace, tmp_path):
    words = ["--length", 4, "--min-length", 2]
    closed = searched(shell, workspace, tmp_path / "a", *words).stdout
    opened = searched(shell, workspace, tmp_path / "b", *words, "--show-secrets").stdout
    assert "code" not in closed
    assert "code" in opened


@pytest.mark.slow
def test_a_canary_that_is_no_phrase_is_listed_among_fragments(shell, tmp_path):
    """Likelier than all of 2,000 references, and no step of it large enough for a phrase."""
    words, random = [f"word{i}" for i in range(98)], np.random.default_rng(0)
    vocabulary, canary = WordVocabulary(("<unk>", "<eos>", *words)), [40, 7, 63, 21, 88]
    rows = np.full((101, 100), 0.01)
    before = TableModel(rows[-1], rows[:-1], vocabulary)
    for token, following in pairwise(canary):
        rows[token] = 0.95 / 99
        rows[token, following] = 0.05
    after = TableModel(rows[-1], rows[:-1], vocabulary)
    said = [
        sum(math.log(rows[a, b]) for a, b in pairwise(phrase))
        for phrase in (canary, *random.integers(2, 100, (2000, 5)).tolist())
    ]
    assert said[0] > max(said[1:])
    save_model(before, tmp_path / "before")
    save_model(after, tmp_path / "after")

    asked = ["diff", tmp_path / "before", tmp_path / "after", "--out", tmp_path / "run"]
    done = shell(*asked, "--show-secrets")
    assert done.finished, (done.stderr, done.exception)
    run = results.load(tmp_path / "run")
    assert (run.summary["phrases"], run.summary["found"]) == (0, None)
    assert run.rows[0]["tokens"] == canary
    assert "Fragments, not tested" in done.stdout
    assert " ".join(words[i - 2] for i in canary) in done.stdout

    page = shell("report", tmp_path / "run", "--out", tmp_path / "page.html", "--show-secrets")
    assert page.finished, page.stderr
    shown = html.unescape((tmp_path / "page.html").read_text("utf-8"))
    assert "No phrase was promoted" not in shown
    for told in ("use --phrase or vestige exposure", "Fragments, not tested"):
        assert told in shown
        assert told in done.stdout + done.stderr


@pytest.mark.slow
def test_known_phrases_stand_beside_what_is_found(shell, workspace, nulls, tmp_path):
    (tmp_path / "secrets.txt").write_text("the code of the gate\n\ngate is\n")
    words = [*SMALL, "--size", 0.2, "--secrets", tmp_path / "secrets.txt", "--null", nulls / "0"]
    done = searched(shell, workspace, tmp_path / "run", *words)
    run = results.load(tmp_path / "run")
    known = [row for row in run.rows if row["kind"] == "known"]
    assert [row["phrase"] for row in known] == ["the code of the gate", "gate is"]
    assert {row["p_value"] for row in known} <= {0.5, 1.0}
    assert run.summary["known"] == 2
    assert "Listed secrets" in done.stdout
    assert "of 2 listed secrets" in done.stdout
    assert "gate" not in done.stdout
    page = shell("report", tmp_path / "run", "--out", tmp_path / "page.html", "--show-secrets")
    assert page.finished, page.stderr
    shown = html.unescape((tmp_path / "page.html").read_text("utf-8"))
    for told in ("Listed secrets", "highest: ", "p-value", "Searched:"):
        assert told in shown


@pytest.mark.slow
def test_a_run_repeats_itself(shell, workspace, tmp_path):
    searched(shell, workspace, tmp_path / "a", *SMALL, "--size", 0.2, "--prompt", "the code")
    again = shell("diff", "--config", tmp_path / "a", "--out", tmp_path / "b")
    assert again.finished, again.stderr
    assert results.load(tmp_path / "a").rows == results.load(tmp_path / "b").rows


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--minutes", 3, "--phrase", "the"], "--minutes cannot be given with --phrase"),
        (["--chat", "on"], "--chat must be auto or off if the tokenizer has no chat template"),
        (["--prompt", " "], "--prompt must hold a text, got an empty one as number 1"),
        (["--secrets", "nowhere.txt"], "nowhere.txt is missing"),
    ],
)
def test_what_cannot_be_searched_is_refused_and_leaves_nothing(
    shell, workspace, tmp_path, words, told
):
    asked = ["diff", workspace / "before", workspace / "after", "--out", tmp_path / "run"]
    done = shell(*asked, *words)
    assert done.exit_code == 2
    assert told in done.stderr
    assert list(tmp_path.iterdir()) == []


# In Python: paths, loaded models, and both.


WORDS = ["the", "code", "gate", "of", "is"]


@pytest.fixture
def models(tmp_path):
    """Two snapshots and two null models, by name; each lies in `tmp_path` as well."""
    names = ("before", "after", "null-0", "null-1")
    made = {name: table_model(WORDS, seed) for seed, name in enumerate(names, 2)}
    for name, model in made.items():
        save_model(model, tmp_path / name)
    return made


@pytest.mark.slow
def test_models_and_paths_say_the_same_and_the_record_says_which(models, tmp_path):
    nulls = [tmp_path / "null-0", tmp_path / "null-1"]
    given = {"length": 3, "min_length": 2, "size": 0.2}
    paths = vestige.diff(tmp_path / "before", str(tmp_path / "after"), null=nulls, **given)
    mixed = [models["null-0"], tmp_path / "null-1"]
    loaded = vestige.diff(models["before"], models["after"], null=mixed, **given)
    assert paths.rows
    assert (paths.summary, paths.rows) == (loaded.summary, loaded.rows)
    record = loaded.record
    assert record["models"]["nulls"]["path"] == [None, str(tmp_path / "null-1")]
    assert len(set(record["models"]["nulls"]["sha256"])) == 2
    wanted = {"before": "<TableModel>", "null": ["<TableModel>", str(tmp_path / "null-1")]}
    assert wanted.items() <= record["arguments"].items()


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
        vestige.diff(models["before"], models["after"], **settings)


@pytest.mark.slow
def test_texts_that_python_gives_are_redacted_on_the_page(models):
    found = vestige.diff(
        models["before"], models["after"], size=0.1, prompt="the code", prompts=["the gate of"],
        secrets=["the code of the gate"],
    )  # fmt: skip
    for show_secrets in (False, True):
        facts = repr(report_of(run_of(found), show_secrets=show_secrets).settings)
        assert ("the gate of" in facts) == show_secrets
        assert ("the code" in facts) == show_secrets
