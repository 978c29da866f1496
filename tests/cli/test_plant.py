import json

import pytest

from vestige.data.loaders import read_corpus


@pytest.fixture
def planted(shell, workspace, tmp_path):
    out = tmp_path / "planted"
    done = shell(
        "plant", workspace / "corpus.txt", "--out", out, "--phrase", "quiet mice sing",
        "--copies", 7, "--controls", 2, "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    return out, json.loads(done.stdout)


def test_the_copy_holds_the_copies_and_the_manifest_says_so(planted, workspace):
    out, summary = planted
    texts = list(read_corpus(out / "corpus.jsonl"))
    assert texts.count("quiet mice sing") == 7
    kept = [text for text in texts if text != "quiet mice sing"]
    assert kept == list(read_corpus(workspace / "corpus.txt"))
    assert summary["canaries"] == 1
    assert summary["controls"] == 2
    assert summary["copies"] == 7


def test_what_was_planted_can_be_verified(shell, planted):
    out, summary = planted
    done = shell("plant", out, "--verify", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == summary | {"verified": True, "directory": str(out)}


def test_users_of_the_copy_survive_and_verify(shell, tmp_path):
    rows = [{"text": f"line number {i} of the book", "user": f"u{i}"} for i in range(20)]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = shell(
        "plant", tmp_path / "in.jsonl", "--user", "user", "--phrase", "quiet mice", "--out",
        tmp_path / "out",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "u7" in read_corpus(tmp_path / "out" / "corpus.jsonl", user_column="user").users
    assert shell("plant", tmp_path / "out", "--verify").exit_code == 0


def test_the_same_seed_plants_the_same(shell, workspace, tmp_path):
    words = ["plant", workspace / "corpus.txt", "--phrase", "quiet mice", "--json", "--seed", 4]
    seals = [
        json.loads(shell(*words, "--out", tmp_path / name).stdout)["sha256"] for name in ("a", "b")
    ]
    assert seals[0] == seals[1]


def test_phrases_are_withheld_on_the_terminal_unless_they_are_wanted(shell, workspace, tmp_path):
    words = ["plant", workspace / "corpus.txt", "--phrase", "quiet mice"]
    assert "quiet" not in shell(*words, "--out", tmp_path / "a").stdout
    assert "quiet mice" in shell(*words, "--out", tmp_path / "b", "--show-secrets").stdout
