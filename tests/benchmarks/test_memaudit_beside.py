"""The comparison with memaudit in its smallest form; without memaudit, what to install."""

import json
import sys
import tempfile
from importlib.util import find_spec

import numpy as np
import pytest
from check_calibration.world import DEVELOPMENT
from memaudit_beside import __main__ as command
from memaudit_beside import peer, releases
from memaudit_beside.tables import counted, tables

WORDS = ["".join(chr(97 + int(digit)) * 2 for digit in f"{number:03}") for number in range(400)]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture(scope="module")
def memaudit():
    if find_spec("memaudit") is None:
        pytest.skip(peer.MISSING)
    peer.require_memaudit()


@pytest.fixture(scope="module")
def world(memaudit):
    from memaudit_beside.worlds import World

    sides = (sentences(seed) for seed in range(3))
    return World.of(*sides, epochs=1)


def sentences(seed):
    drawn = np.random.default_rng(seed).integers(len(WORDS), size=(400, 12))
    return [" ".join(WORDS[word] for word in line) for line in drawn]


@pytest.mark.parametrize("stage", command.SEEDS)
def test_without_memaudit_every_stage_says_what_to_install(stage, monkeypatch, capsys):
    monkeypatch.setattr(peer, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["memaudit_beside", stage])
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert "pip install --no-deps memaudit==0.2.0" in capsys.readouterr().err


def test_of_the_demo_both_find_the_planted_and_no_control(memaudit):
    from memaudit_beside import demo

    found = {row["question"]: row for row in demo.rows(0, search=False)}
    assert found["membership"]["detected"] == found["membership"]["of"] == 16
    assert found["regurgitation"]["of controls"] == 0
    assert found["exposure, planted"]["found"] == 16
    assert found["exposure, controls"]["found"] == 0
    assert found["complete, controls"]["word for word"] == 0
    assert found["membership of texts"]["verdict"] == "leak"
    assert found["membership of texts, controls"]["verdict"] != "leak"
    both = (found["regurgitation"], found["complete, planted"])
    assert all(row["word for word"] >= 12 for row in both)


def test_one_training_is_watched_by_both(world):
    from memaudit_beside import trials

    theirs, ours, *crossed = trials.repeated(world, seed=0, copies=16)
    assert [row["of"] for row in (theirs, ours, *crossed)] == [16] * 4
    assert theirs["detected"] > 8
    assert [row["verdict"] for row in (ours, *crossed)] == ["leaks", "used", "used"]
    assert all(row["seconds"] > 0 for row in (theirs, ours))


def test_of_what_nobody_read_each_question_is_answered_once(world):
    from memaudit_beside import trials

    rows = trials.null(world, seed=0)
    asked = [(row["tool"], row["question"], *map(row.get, ("score", "reference"))) for row in rows]
    assert len(set(asked)) == len(rows) == 9
    assert [row["found_unsaid"] for row in rows if "found_unsaid" in row] == [0]


def test_both_refuse_what_cannot_be_learnt(world):
    from memaudit_beside import mistakes

    found = {(row["mistake"], row["tool"]): row for row in mistakes.rows(world, seed=0)}
    for tool in ("memaudit", "vestige"):
        refused = [name for name, one in found if one == tool and found[name, one]["refused"]]
        assert refused == list(mistakes.CASES)[1:4]


def test_a_table_counts_lines_with_exact_intervals(tmp_path):
    row = {"stage": "null", "tool": "one", "question": "texts", "alarm": False}
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row | {'seed': seed})}\n" for seed in range(20)))
    most = 100 * (1 - 0.025 ** (1 / 20))  # the binomial's own: (1 - p) ** 20 = 0.025
    assert counted(0, 20) == f"0 of 20 (0.0 to {most:.1f} %)"
    assert tables([file]) == f"null, one, texts: 20 answers; alarm {counted(0, 20)}"


def test_fine_tunes_of_a_class_are_those_with_the_lowest_numbers(tmp_path):
    kinds = [("leaky", 1, "plain"), ("leaky", 20, "plain"), ("clean", 0, "wrong")]
    lines = [
        {"number": number, "kind": kind, "copies": copies, "variant": variant, "corpus": "irc"}
        for number in (30, 20, 10)
        for number, (kind, copies, variant) in enumerate(kinds, number)
    ]
    lines.append(lines[0] | {"number": 0, "corpus": DEVELOPMENT[0]})
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = [(releases.class_of(row), row["number"]) for row in releases.chosen(tmp_path)]
    assert found == [
        ("20 copies", 11), ("20 copies", 21), ("1 copy", 10), ("1 copy", 20), ("clean, wrong", 12)
    ]  # fmt: skip


@pytest.mark.parametrize("files", [[], ["one", "another"]])
def test_the_check_stage_wants_one_world(files, monkeypatch, capsys):
    monkeypatch.setattr(command, "require_memaudit", lambda: None)
    monkeypatch.setattr(sys, "argv", ["memaudit_beside", "check", *files])
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert "check needs one folder" in capsys.readouterr().err
