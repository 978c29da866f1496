import shutil
import stat
import sys
from pathlib import Path

import pytest

from vestige.data.corpus import Corpus
from vestige.errors import DataError
from vestige.experiments.provenance.obfuscation import Apertium, back_translated, words_kept


def command(tmp_path: Path, body: str) -> str:
    """A program that stands for apertium, with what it is told in `said` and `argv`."""
    path = tmp_path / "apertium"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nargv, said = sys.argv[1:], sys.stdin.read()\n{body}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_every_text_comes_back_in_its_place(tmp_path: Path) -> None:
    body = "print(said.upper(), end='')"
    translate = Apertium("eng-spa", command=command(tmp_path, body))
    assert translate(["one\n\ntwo ", "", " ", "drei é"]) == ["ONE TWO", "", "", "DREI É"]
    assert translate(["", " "]) == ["", ""]


def test_the_direction_is_told_and_unknown_words_are_not_marked(tmp_path: Path) -> None:
    translate = Apertium("spa-eng", command=command(tmp_path, "print(*argv)"))
    assert translate(["x"]) == ["-u -f txt spa-eng"]


def test_texts_that_run_together_are_translated_in_smaller_parts(tmp_path: Path) -> None:
    body = "print(said.replace('b\\n\\n', 'b '), end='')"
    translate = Apertium("eng-spa", command=command(tmp_path, body))
    assert translate(["a", "b", "c", "d"]) == ["a", "b", "c", "d"]


def test_one_text_is_one_text_whatever_its_translation_looks_like(tmp_path: Path) -> None:
    translate = Apertium("eng-spa", command=command(tmp_path, "print('a\\n\\nb')"))
    assert translate(["c"]) == ["a b"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("print('no such mode', file=sys.stderr); sys.exit(1)", "failed with code 1: no such mode"),
        ("pass", "failed with code 0"),
        ("import time; time.sleep(60)", "did not translate: TimeoutExpired"),
    ],
)
def test_a_command_that_fails_is_named(body: str, says: str, tmp_path: Path) -> None:
    translate = Apertium("eng-spa", command=command(tmp_path, body), timeout=3)
    with pytest.raises(DataError, match=says):
        translate(["hello"])


def test_a_command_that_is_not_installed_is_named_with_its_package() -> None:
    with pytest.raises(DataError, match="apertium-of-nowhere is not installed") as caught:
        Apertium("eng-spa", command="apertium-of-nowhere")(["hello"])
    assert "apertium-eng-spa" in caught.value.remedy


@pytest.mark.peer
@pytest.mark.skipif(
    shutil.which("apertium") is None, reason="apertium is not installed: make peers"
)
def test_the_real_apertium_goes_to_spanish_and_back() -> None:
    corpus = Corpus.from_texts(["I see so many adults that could benefit from this.", "lol"] * 20)
    try:
        made = back_translated(corpus, Apertium("eng-spa"), Apertium("spa-eng"))
    except DataError as error:
        pytest.skip(str(error))
    assert len(made) == 40
    assert 0.2 < words_kept(corpus, made) < 1
