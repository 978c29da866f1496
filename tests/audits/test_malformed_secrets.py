"""Secrets and phrases that cannot be asked for: one message, and nothing written."""

import pytest

from tests.docs.workplace import _write_gpt

RANK, SECRETS = "rank W/before W/after", "--secrets W/codes.txt"
CASES = {
    "neither": (RANK, "--phrase must be given, or --secrets, got neither"),
    "both": (f"{RANK} --phrase gate {SECRETS}", "--phrase must be left out with --secrets"),
    "an empty file": (f"{RANK} --secrets W/empty.txt", "--secrets must hold 1 to 10,000, got 0"),
    "blank lines": (f"{RANK} --secrets W/blank.txt", "--secrets must hold 1 to 10,000, got 0"),
    "a binary file": (f"{RANK} --secrets W/binary.txt", "binary.txt is not UTF-8"),
    "a file of zeros": (f"{RANK} --secrets W/zeros.txt", "zeros.txt: no secret can be used"),
    "a folder": (f"{RANK} --secrets W/folder", "folder"),
    "no file": (f"{RANK} --secrets W/nowhere.txt", "nowhere.txt"),
    "a question of a phrase": (
        f"{RANK} --phrase gate --question gate",
        "--question must come with --secrets",
    ),
    "a question of nothing": (f"{RANK} --question gate", "--phrase must be given, or --secrets"),
    "a question without a template": (f"{RANK} {SECRETS} --question gate", "template"),
    "settings of a phrase": (f"{RANK} {SECRETS} --budget 9", "--budget must be left out with"),
    "no samples": (f"{RANK} {SECRETS} --samples 0", "--samples must be at least 1"),
    "too long": (
        "rank W/gpt W/gpt --secrets W/long.txt",
        "long.txt: no secret can be read; secret 1 needs 120 tokens, and the model reads 64",
    ),
    "too long to compare": ("exposure W/gpt --secrets W/long.txt", "secret 1 needs 120"),
    "too long to complete": ("complete W/gpt --secrets W/long.txt", "secret 1 needs 120"),
    "unknown words": (f"{RANK} --secrets W/unknown.txt", "secret 1 has words that"),
    "exposure of neither": ("exposure W/before", "--manifest must be given, or --secrets"),
    "completion of neither": ("complete W/before", "--manifest must be given, or --secrets"),
}


@pytest.fixture(scope="module")
def place(workspace, tmp_path_factory):
    """Models, and files of secrets of every kind that is none."""
    root = tmp_path_factory.mktemp("secrets")
    for name in ("before", "after"):
        (root / name).symlink_to(workspace / name)
    _write_gpt(root / "gpt")
    for name, content in {
        "codes": b"the {{gate|code}} is\n", "empty": b"", "blank": b"\n \n", "zeros": bytes(99),
        "binary": b"\x89PNG\xff\x00\n" * 9, "unknown": b"zeppelin {{8652}}\n",
        "long": b"{{1}}" * 120 + b"\n",
    }.items():  # fmt: skip
        (root / f"{name}.txt").write_bytes(content)
    (root / "folder").mkdir()
    return root


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_asked_for_is_refused(shell, place, tmp_path, case):
    line, named = CASES[case]
    words = [word.replace("W/", f"{place}/", 1) for word in line.split()]
    done = shell(*words, "--out", tmp_path / "new")
    assert done.exit_code == 2, (done.stderr, done.exception)
    assert named in done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("Loading weights:")]
    assert len([line for line in said if line]) == 1
    assert "8652" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "new").exists()
