"""`--config`: hostile files are refused by name. That runs repeat is in the contract."""

import os

import pytest


@pytest.fixture
def refuse(refit, tmp_path):
    """What a file with some content is refused with."""

    def ask(name, text):
        (tmp_path / name).write_text(text)
        words = ["d", "--config", f"{tmp_path / name}", "--out", f"{tmp_path}/run"]
        code, record, _, said = refit(words)
        assert (code, record) == (2, None), said
        assert "SECRET" not in said
        assert said.count("\n") == 1
        assert not (tmp_path / "run").exists()
        return said

    return ask


BOMB = "a: &a [SECRET, x]\n" + "".join(
    f"{chr(97 + n)}: &{chr(97 + n)} [{', '.join([f'*{chr(96 + n)}'] * 9)}]\n" for n in range(1, 20)
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("bomb.yaml", BOMB, "bomb.yaml: 'a' is no option"),
        ("bomb.yaml", "x: &x [SECRET]\nnull: [*x, *x]", "bomb.yaml: 'x' is no option"),
        ("lists.yaml", "null: [[SECRET]]", "--null must be text"),
        ("tag.yaml", "epochs: !!python/object/apply:os.system ['SECRET']", "not YAML at line 1"),
        ("two.yaml", "epochs: 1\n---\nepochs: 2", "is not YAML at line"),
        ("deep.yaml", "[" * 3000, "cannot be read: it is nested too deeply"),
        ("deep.json", "[" * 100_000, "cannot be read: it is nested too deeply"),
        (
            "large.yaml",
            "data: " + "x" * 2**20,
            "has 1,048,582 bytes; at most 1,048,576 are expected.",
        ),
        ("twice.yaml", "batch-size: 1\nbatch_size: 2", "twice.yaml sets 'batch-size' twice"),
        ("twice.toml", "epochs = 1\nepochs = 2", "cannot be read: TOMLDecodeError"),
        ("table.toml", "[training]\nepochs = 3", "'training' is no option"),
        ("date.toml", "text = 2020-01-01", "--text must be text, in quotation marks"),
        ("bytes.yaml", "text: !!binary aGVsbG8=", "--text must be text"),
        ("octal.yaml", "text: 0123", "--text must be text"),
        ("yes.yaml", "text: yes", "--text must be text"),
        ("yes.yaml", "epochs: yes", "--epochs must be a whole number"),
        ("text.yaml", "epochs: 'SECRET'", "--epochs must be a whole number"),
        ("point.json", '{"epochs": 2.5}', "--epochs must be a whole number"),
        ("nan.json", '{"clip": NaN}', "--clip must be above 0"),
        (
            "long.json",
            '{"epochs": ' + "9" * 4000 + "}",
            "--epochs must be at least 1 and at most",
        ),
        ("longer.json", '{"epochs": ' + "9" * 5000 + "}", "cannot be read: ValueError"),
        ("choice.yaml", "optimizer: SECRET", "--optimizer must be one of adam, sgd"),
        ("choice.yaml", "optimizer: off", "--optimizer must be one of adam, sgd"),
        ("again.yaml", "config: other.yaml", "again.yaml: 'config' is no option"),
        ("escape.json", '{"\\u001b[31m": 1}', "is no option"),
        ("half.json", '{"epochs": 1', "cannot be read"),
        ("empty.yaml", "", "holds no options by name"),
    ],
)
def test_a_hostile_file_is_refused_by_its_name_and_key(refuse, name, text, said):
    assert said in refuse(name, text)


def test_a_file_that_is_none_is_refused_at_once(refit, tmp_path):
    os.mkfifo(tmp_path / "fifo.yaml")
    (tmp_path / "folder").mkdir()
    for name, said in (
        ("fifo.yaml", "is a named pipe, not a file"),
        ("missing.yaml", "missing.yaml is missing"),
        ("folder", "run.json is missing"),
    ):
        words = ["d", "--config", f"{tmp_path / name}", "--out", f"{tmp_path}/run"]
        code, record, _, err = refit(words)
        assert (code, record) == (2, None)
        assert said in err


def test_what_makes_a_value_of_text_is_left_as_it_is(refit, tmp_path):
    (tmp_path / "a.json").write_text('{"data": "--out", "text": "none", "null": ["-x", ""]}')
    _, record, _, _ = refit(["--config", f"{tmp_path / 'a.json'}", "--out", f"{tmp_path}/run"])
    given = record["arguments"]
    assert (given["data"], given["text"], given["null"]) == ("--out", "none", ["-x", ""])
