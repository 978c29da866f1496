import json

import pytest

from tests.cli.refusals import refused, table
from vestige.data.canaries.texts import Manifest
from vestige.data.formats.reading import read_corpus

LISTED = 20


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


@pytest.fixture
def mail(tmp_path):
    """Twelve letters of three people, one of whom has no name."""
    words = "ash beech cedar date elm fig gum hazel ivy jasmine kale lime maple nettle oak".split()  # noqa: SIM905
    rows = [
        {"text": " ".join(words[(i + j) % 15] for j in range(6)), "from": ["ann", "bob", ""][i % 3]}
        for i in range(12)
    ]
    path = tmp_path / "mail.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_every_user_has_canaries_of_their_own(shell, mail, tmp_path):
    done = shell(
        "plant", mail, "--user", "from", "--per-user", "--repetitions", "1,3", "--controls", 4,
        "--out", tmp_path / "out", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["canaries"], summary["controls"], summary["users"]) == (4, 4, 2)
    assert summary["copies"] == 2 * (1 + 3)
    canaries = Manifest.load(tmp_path / "out" / "manifest.json").canaries
    owned = sorted((one.user, one.copies) for one in canaries if one.planted)
    assert owned == [("ann", 1), ("ann", 3), ("bob", 1), ("bob", 3)]
    copy = read_corpus(tmp_path / "out" / "corpus.jsonl", user_column="user")
    for one in canaries:
        theirs = [who for text, who in zip(copy, copy.users, strict=True) if text == one.phrase]
        assert theirs == [one.user] * one.copies
    assert shell("plant", tmp_path / "out", "--verify").exit_code == 0


def test_a_user_has_the_papers_repetitions_unless_others_are_asked_for(shell, mail, tmp_path):
    shell("plant", mail, "--user", "from", "--per-user", "--out", tmp_path / "out")
    canaries = Manifest.load(tmp_path / "out" / "manifest.json").canaries
    assert [one.copies for one in canaries if one.user == "ann"] == [1, 2, 5, 6, 20]
    assert sum(one.control for one in canaries) == 100


def test_a_fair_coin_decides_which_canaries_are_planted(shell, mail, tmp_path):
    done = shell("plant", mail, "--coin-flip", 60, "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.stderr
    canaries = Manifest.load(tmp_path / "out" / "manifest.json").canaries
    heads = sum(one.planted for one in canaries)
    assert len(canaries) == 60
    assert 15 < heads < 45
    assert {one.copies for one in canaries} == {0, 1}
    assert {one.pattern for one in canaries} == {"coin-flip"}


def test_many_canaries_are_counted_and_not_all_listed(shell, mail, tmp_path):
    done = shell("plant", mail, "--coin-flip", 60, "--out", tmp_path / "out", "--show-secrets")
    assert done.stdout.count("coin-flip") == LISTED
    assert "60 canaries and controls" in done.stdout


def test_redacted_canaries_are_counted_by_kind(shell, mail, tmp_path):
    done = shell("plant", mail, "--coin-flip", 60, "--copies", 4, "--out", tmp_path / "out")
    canaries = Manifest.load(tmp_path / "out" / "manifest.json").canaries
    rows = [line.split() for line in done.stdout.splitlines() if "coin-flip" in line]
    planted = sum(one.planted for one in canaries)
    assert sorted(rows) == sorted(
        [["coin-flip", "4", str(planted)], ["coin-flip", "control", str(60 - planted)]]
    )


@pytest.mark.slow
@pytest.mark.parametrize(("words", "says"), table("plant"))
def test_options_that_do_not_fit_are_refused(shell, mail, tmp_path, words, says):
    given = ["plant", mail, *words.split(), "--out", tmp_path / "out"]
    refused(shell, given, *says, unchanged=lambda: list(tmp_path.iterdir()))
    assert not (tmp_path / "out").exists()
