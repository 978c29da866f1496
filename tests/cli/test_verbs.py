"""From a signature to a verb: what is parsed, shown, refused, and repeated from a file."""

import json
from dataclasses import replace
from inspect import signature

import pytest

from tests.reports.made_claims import made_claim, with_claim
from tests.workflows.example import refit
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.cli.error_lines import UsageError
from vestige.cli.verbs import OUT, Verb
from vestige.errors import DataError


@pytest.fixture
def verb():
    """The verb of the example; `verb.seen` holds the arguments of its calls."""
    seen = []
    made = Verb(refit, show=lambda found, output: seen.append(found.arguments))
    object.__setattr__(made, "seen", seen)
    return made


def test_words_reach_the_workflow(verb, tmp_path):
    verb(["d", "--from", "x", "--null", "a", "--null=-b", "--epochs=3", "--out", f"{tmp_path}/run"])
    [arguments] = verb.seen
    assert arguments["from_"] == "x"
    assert arguments["null"] == ("a", "-b")
    assert arguments["training"].epochs == 3
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["command"][:3] == ["vestige", "refit", "d"]
    assert run["arguments"] == {"data": "d", "from": "x", "null": ["a", "-b"], "epochs": 3}


def test_the_last_of_an_option_counts(verb, tmp_path):
    verb(["d", "--epochs", "3", "--epochs", "4", "--out", f"{tmp_path}/run"])
    assert verb.seen[0]["training"].epochs == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("d --epochs 2.5", "--epochs must be a whole number."),
        ("d --epochs SECRET", "--epochs must be a whole number."),
        ("d --epochs 0", "--epochs must be at least 1."),
        ("d --seed -1", "--seed must be at least 0."),
        ("d --epochs 1000000001", "--epochs must be at most 1,000,000,000."),
        ("d --clip nan", "--clip must be a finite number."),
        ("d --optimizer SECRET", "--optimizer must be one of adam, sgd."),
        ("d --optimizer none", "--optimizer must be one of adam, sgd."),
        ("d --other-shapes=SECRET", "--other-shapes takes no value but true or false."),
        ("d --no-other-shapes", "There is no option --no-other-shapes. Did you mean"),
        ("d --nope=SECRET", "There is no option --nope."),
        ("d --epoch 3", "There is no option --epoch. Did you mean --epochs?"),
        ("d SECRET SECRET", "Got 2 unexpected extra argument(s). Text of several words"),
        ("d --out", "--out must come with a value."),
        ("", "Missing DATA, --out."),
    ],
)
def test_a_usage_error_names_the_option_and_quotes_nothing(verb, words, message):
    with pytest.raises(UsageError) as caught:
        verb(words.split())
    assert str(caught.value).startswith(message)
    assert "SECRET" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", "1e3"], "--epochs must be a whole number."),
        (["--epochs", ""], "--epochs must be a whole number."),
        (["--epochs="], "--epochs must be a whole number."),
        (["--epochs", "True"], "--epochs must be a whole number."),
        (["--epochs", "0x10"], "--epochs must be a whole number."),
        (["--epochs", "9" * 5000], "--epochs must be a whole number."),
        (["--epochs", "3", "--epochs", "SECRET"], "--epochs must be a whole number."),
        (["--epochs=--seed"], "--epochs must be a whole number."),
        (["--epochs", "--seed", "3"], "--epochs must come with a value, got the option --seed."),
        (["--from", "--seed=SECRET"], "--from must come with a value, got the option --seed."),
        (["--null"], "--null must come with a value."),
        (["--null", "SECRET", "SECRET"], "Got 1 unexpected extra argument(s)."),
        (["--clip", "1e400"], "--clip must be a finite number."),
        (["--other-shapes", "SECRET"], "Got 1 unexpected extra argument(s)."),
        (["--", "--epochs"], "Got 1 unexpected extra argument(s)."),
        (["--null.0", "SECRET"], "There is no option --null.0. Did you mean --null?"),
        (["--training.epochs", "3"], "There is no option --training.epochs."),
        (["--EPOCHS", "3"], "There is no option --EPOCHS."),
        (["---epochs", "3"], "There is no option ---epochs. Did you mean --epochs?"),
        (["-e"], "There is no option -e."),
        (["-"], "There is no option -."),
        (["--my SECRET"], "A word that begins with a dash is no option of this verb."),
        (["--te\x1b[31mxt", "a"], "A word that begins with a dash is no option of this verb."),
    ],
)
def test_a_hostile_command_line_is_refused_in_a_line(verb, words, message):
    with pytest.raises(UsageError) as caught:
        verb(["d", *words])
    assert str(caught.value).startswith(message)
    assert "SECRET" not in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["d", "--from=--epochs"], "from_", "--epochs"),
        (["d", "--from", "-b"], "from_", "-b"),
        (["d", "--from", ""], "from_", ""),
        (["d", "--from", "none"], "from_", "none"),
        (["d", "--device", "None"], "device", "None"),
        (["d", "--text", "a b\tc"], "text", "a b\tc"),
        (["d", "--null", "", "--null", "a,b"], "null", ("", "a,b")),
        (["d", "--null", "[/]", "--null", '["x"]', "--null", "{"], "null", ("[/]", '["x"]', "{")),
        (["d", "--other-shapes=false"], "other_shapes", False),
        (["d", "--seed", "1", "--seed", "2"], "seed", 2),
        (["--", "-d"], "data", "-d"),
        ([""], "data", ""),
    ],
)
def test_values_arrive_as_they_were_typed(verb, tmp_path, words, name, value):
    verb(["--out", f"{tmp_path}/run", *words])
    assert verb.seen[0][name] == value


def test_help_is_the_docstring_with_flags(verb, capsys):
    verb(["--help"])
    said = capsys.readouterr().out
    assert "Train a model on DATA, or continue one with --from." in said
    flowing = " ".join(said.replace("│", " ").split())
    assert "Passes over the data; see --batch-size. [at least 1] [default: 2]" in flowing
    assert "Examples:" in said
    assert "vestige refit corpus.txt --out model" in said
    assert ">>>" not in said
    panels = ["Arguments", "Options", "Training", "Defence", "Reading the data", "Output"]
    places = [said.index(f"╭─ {title} ") for title in panels]
    assert places == sorted(places)


TOP = replace(OUT, name="top", flags=("--top",), type=int, default=5)


def test_an_output_that_is_optional_is_written_only_where_it_is_named(tmp_path, capsys):
    shown = []
    outputs = (replace(OUT, default=None), TOP)
    verb = Verb(refit, show=lambda found, output: shown.append(output.more["top"]), outputs=outputs)
    verb(["d"])
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == ""
    verb(["d", "--top", "7", "--out", f"{tmp_path}/run"])
    assert (tmp_path / "run" / "run.json").is_file()
    assert "vestige report" in capsys.readouterr().err
    assert shown == [5, 7]


def test_a_verb_may_save_in_its_own_way(tmp_path):
    verb = Verb(refit, show=lambda *_: None, save=lambda found, out: found.save(out / "run"))
    verb(["d", "--out", f"{tmp_path}/here"])
    assert (tmp_path / "here" / "run" / "run.json").is_file()


def test_parameters_in_a_message_become_options(verb):
    message = verb.in_flags("`from_` must come with `data` and `epochs`, not `cpu`")
    assert message == "--from must come with DATA and --epochs, not `cpu`"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "data: d\nbatch-size: 8\nnull: [a, b]\nother_shapes: true\n"),
        ("a.toml", 'data = "d"\nbatch_size = 8\nnull = ["a", "b"]\nother_shapes = true\n'),
        (
            "a.json",
            '{"data": "d", "batch_size": 8, "null": ["a", "b"], "other_shapes": true}',
        ),
    ],
)
def test_a_file_sets_what_options_set(verb, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    verb(["--config", f"{tmp_path / name}", "--null", "c", "--out", f"{tmp_path}/run"])
    [arguments] = verb.seen
    assert arguments["data"] == "d"
    assert arguments["training"].batch_size == 8
    assert arguments["null"] == ("c",)  # what the command line says wins
    assert arguments["other_shapes"] is True


def test_a_run_directory_repeats_the_run(verb, tmp_path):
    first, again = f"{tmp_path}/first", f"{tmp_path}/again"
    verb(["d", "--defence", "clipped", "--epsilon", "8", "--other-shapes", "--out", first])
    verb(["--config", first, "--out", again])
    assert verb.seen[0] == verb.seen[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch: 3", "sets 'epoch', which is no option of vestige refit"),
        ("epochs: many", "--epochs must be a whole number"),
        ("epochs: 0", "--epochs must be at least 1"),
        ("epochs: [1, 2]", "--epochs takes one value, not a list"),
        ("other_shapes: 1", "--other-shapes must be true or false"),
        ("[1, 2]", "holds no options by name"),
        ("{", "is not YAML at line 1"),
        ("verb: rank\narguments: {}", "is of another verb than vestige refit"),
        ("command: []\nresult: Trained", "does not say with which options it was made"),
    ],
)
def test_a_file_that_cannot_be_followed_is_named(verb, tmp_path, text, message):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(DataError, match=r"a\.yaml") as caught:
        verb(["d", "--config", f"{tmp_path / 'a.yaml'}", "--out", f"{tmp_path}/run"])
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("verdict", "code"), [(NO_LEAK, 0), (LEAK, 1), (UNDECIDED, 3)])
def test_a_verb_prints_its_verdict_first_and_ends_with_its_code(
    verb, tmp_path, capsys, verdict, code
):
    claim = made_claim("diff", verdict)

    def claimed(**given):
        return with_claim(refit(**given), claim)

    claimed.__signature__, claimed.__doc__ = signature(refit), refit.__doc__
    claimed.__annotations__, claimed.__name__ = refit.__annotations__, refit.__name__
    judged = Verb(claimed, show=lambda found, output: print("A table."))
    assert judged(["d", "--out", f"{tmp_path}/run"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{verdict.upper()}  Exposure: 7.5 bits (95% CI 6.9 to 8.1); p = ")
    failed = ["✗ The check “powerful” of diff failed."] if verdict == UNDECIDED else []
    assert lines[1 : 1 + len(failed)] == failed
    assert lines[-2].startswith("Checks passed: alive, different")
    assert lines[-1] == "A table."
    assert judged(["d", "--json", "--out", f"{tmp_path}/json"]) == code
    assert json.loads(capsys.readouterr().out)["verdict"] == verdict
    told = replace(judged, code_of=lambda found: 0)
    assert told(["d", "--out", f"{tmp_path}/told"]) == 0


def test_a_verb_without_a_verdict_ends_with_0(verb, tmp_path):
    assert verb(["d", "--out", f"{tmp_path}/run"]) == 0
