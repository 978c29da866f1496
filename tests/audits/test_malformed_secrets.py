"""Secrets that cannot be tested: one message names the fault, and nothing is written."""

import pytest

from tests.networks import write_gpt

BEFORE = "exposure W/after {} --before W/before"
CASES = {
    "no secrets": ("exposure W/after", "Missing SECRETS"),
    "nothing to extract": ("extract W/after", "Pass WHAT, or --pattern"),
    "an empty file": (BEFORE.format("W/empty.txt"), "SECRETS must hold 1 to 10,000, got 0"),
    "blank lines": (BEFORE.format("W/blank.txt"), "SECRETS must hold 1 to 10,000, got 0"),
    "a binary file": ("extract W/after W/binary.txt", "binary.txt: not UTF-8"),
    "a file of zeros": (BEFORE.format("W/zeros.txt"), "zeros.txt: no secret can be used"),
    "a folder": (BEFORE.format("W/folder"), "folder"),
    "no file to extract": ("extract W/after W/nowhere.txt", "nowhere.txt is missing"),
    "a question without a template": (
        f"{BEFORE.format('W/codes.txt')} --question gate",
        "template",
    ),
    "settings of canaries": (f"{BEFORE.format('W/codes.txt')} --exact 9", "--exact needs"),
    "settings of texts": (
        "extract W/after W/codes.txt --reference W/unknown.txt",
        "--reference needs texts, and WHAT is a file with one secret per line. Pass --as texts",
    ),
    "too long": (
        "exposure W/gpt W/long.txt --before W/gpt",
        "long.txt: no secret can be used; secret 1 needs 120 tokens; the model reads 64",
    ),
    "unknown words": (BEFORE.format("W/unknown.txt"), "secret 1 has words that"),
}


@pytest.fixture(scope="module")
def folder(workspace, tmp_path_factory):
    """Models, and files that hold no usable secret."""
    root = tmp_path_factory.mktemp("secrets")
    for name in ("before", "after"):
        (root / name).symlink_to(workspace / name)
    write_gpt(root / "gpt", ["the gate of the old mill opens at nine"] * 40, tokens=270)
    for name, content in {
        "codes": b"the {{gate|code}} is\n", "empty": b"", "blank": b"\n \n", "zeros": bytes(99),
        "binary": b"\x89PNG\xff\x00\n" * 9, "unknown": b"zeppelin {{8652}}\n",
        "long": b"{{1}}" * 120 + b"\n",
    }.items():  # fmt: skip
        (root / f"{name}.txt").write_bytes(content)
    (root / "folder").mkdir()
    return root


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_unusable_secrets_are_refused(shell, folder, tmp_path, case):
    line, message = CASES[case]
    words = [word.replace("W/", f"{folder}/", 1) for word in line.split()]
    done = shell(*words, "--out", tmp_path / "new")
    assert done.exit_code == 2, (done.stderr, done.exception)
    assert message in done.stderr
    lines = [x for x in done.stderr.splitlines() if x and not x.startswith("Loading weights:")]
    assert len(lines) == 1
    assert "8652" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "new").exists()
