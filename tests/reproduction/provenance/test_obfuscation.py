"""Texts are changed by synonyms or by translation and back-translation."""

import shutil
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.provenance import obfuscation
from reproduction.provenance.obfuscation import (
    PARTS,
    apertium,
    back_translated,
    read_wordnet,
    with_synonyms,
)
from vestige.data.corpus import Corpus
from vestige.errors import DataError

CORPUS = Corpus.from_texts(
    ["The big car.", "don't, BIG!", ""], users=["ann", "bob", "bob"], sources=["big", "", "x"]
)


def test_only_words_with_synonyms_change_and_keep_their_case() -> None:
    changed = with_synonyms(CORPUS, {"big": ["large"], "don": ["father"]}, seed=0)
    assert list(changed) == ["The large car.", "don't, LARGE!", ""]
    assert (changed.users, changed.sources) == (CORPUS.users, CORPUS.sources)
    changed = with_synonyms(Corpus.from_texts(["Big I"]), {"big": ["large"], "i": ["me"]}, seed=0)
    assert list(changed) == ["Large Me"]


def test_synonyms_are_sampled_with_the_seed() -> None:
    corpus = Corpus.from_texts(["a"] * 300)
    choices = {"a": ["x", "y"]}
    changed = [list(with_synonyms(corpus, choices, share=0.5, seed=seed)) for seed in (0, 0, 1)]
    assert changed[0] == changed[1] != changed[2]
    # 150 and 75 expected, standard deviations 8.7 and 7.5.
    assert abs(changed[0].count("a") - 150) < 40
    assert abs(changed[0].count("x") - 75) < 35


def test_reversed_texts_keep_their_users() -> None:
    corpus = Corpus.from_texts(["a b c"], users=["ann"])
    changed = obfuscation.obfuscation("reversed")(corpus)
    assert (list(changed), changed.users) == (["c b a"], ["ann"])


@given(st.lists(st.text(max_size=30), max_size=6), st.floats(0.01, 1))
def test_without_synonyms_texts_are_unchanged(texts: list[str], share: float) -> None:
    texts = [text.encode(errors="ignore").decode() for text in texts]
    corpus = Corpus.from_texts(texts)
    assert with_synonyms(corpus, {}, share=share, seed=0).fingerprint() == corpus.fingerprint()


def test_texts_are_translated_back_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obfuscation, "BATCH", 2)
    sizes: list[int] = []

    def translate(texts: list[str]) -> list[str]:
        sizes.append(len(texts))
        return [text.upper() for text in texts]

    corpus = Corpus.from_texts([f"t {i}" for i in range(5)], users=list("abcde"))
    changed = back_translated(corpus, translate, lambda texts: [t + "!" for t in texts])
    assert list(changed) == [f"T {i}!" for i in range(5)]
    assert (changed.users, sizes) == (corpus.users, [2, 2, 1])
    blank = back_translated(CORPUS, lambda texts: texts, lambda texts: [" "] * len(texts))
    assert blank.fingerprint() == CORPUS.fingerprint()


# Apertium.


def command(tmp_path: Path, body: str) -> str:
    """A program instead of apertium, with its input in `text` and its arguments in `argv`."""
    path = tmp_path / "apertium"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nargv, text = sys.argv[1:], sys.stdin.read()\n{body}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("body", "texts", "expected"),
    [
        ("print(text.upper(), end='')", ["a\n\nb ", "", " ", "c é"], ["A B", "", "", "C É"]),
        ("print(text)", ["", " "], ["", ""]),
        ("print(*argv)", ["x"], ["-u -f txt eng-spa"]),
        ("print(text.replace('b\\n\\n', 'b '), end='')", list("abcd"), list("abcd")),
        ("print('a\\n\\nb')", ["c"], ["a b"]),
    ],
)
def test_each_text_has_its_translation(tmp_path, body, texts, expected) -> None:
    assert apertium(texts, "eng-spa", command=command(tmp_path, body)) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.exit(1)", "did not translate: CalledProcessError"),
        ("pass", "gave no text"),
        ("import time; time.sleep(60)", "did not translate: TimeoutExpired"),
        (None, "did not translate: FileNotFoundError"),
    ],
)
def test_a_failing_command_is_named(body: str | None, message: str, tmp_path: Path) -> None:
    program = "apertium-of-nowhere" if body is None else command(tmp_path, body)
    with pytest.raises(DataError, match=message) as error:
        apertium(["hello"], "eng-spa", command=program, timeout=3)
    assert "apertium-eng-spa" in error.value.remedy


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.skipif(
    shutil.which("apertium") is None, reason="apertium is not installed: make peers"
)
def test_apertium_translates_to_spanish_and_back() -> None:
    corpus = Corpus.from_texts(["I see so many adults that could benefit from this.", "lol"] * 20)
    try:
        changed = obfuscation.obfuscation("apertium")(corpus)
    except DataError as error:
        pytest.skip(str(error))
    assert len(changed) == 40
    before, after = (set(" ".join(texts).split()) for texts in (corpus, changed))
    assert 0.2 * len(before) < len(before & after) < len(before)


# WordNet.

LICENCE = "  1 This software and database is being provided to you\n"
# See wndb(5): data lists the words of a meaning, index the meanings of a word.
DATA = {
    "noun": [
        "00000001 06 n 03 car 0 auto 0 motor_car 1 001 @ 00000009 n 0000 | a vehicle 02 | x",
        "00000002 06 n 02 railcar 0 car 1 000 | on rails",
        "00000003 27 n 02 helium 0 he 0 000 | a gas",
        "00000004 18 n 01 Paris 0 000 | a city",
        "00000005 09 n 02 run 0 streak 0 000 | a series",
    ],
    "verb": ["00000006 38 v 0b run 0 sprint 0 a1 0 b 0 c 0 d 0 e 0 f 0 g 0 h 0 i 0 000 | fast"],
    "adj": ["00000007 00 a 02 glad(p) 0 happy(a) 0 000 | pleased"],
    "adv": ["00000008 02 r 01 gladly 0 000 | with joy"],
}
INDEX = {
    "noun": [
        "car n 2 2 @ ~ 2 2 00000001 00000002  ",
        "auto n 1 0 1 0 00000001  ",
        "helium n 1 0 1 0 00000003  ",
        "he n 1 0 1 0 00000003  ",
        "paris n 1 0 1 0 00000004  ",
        "run n 1 0 1 1 00000005  ",
    ],
    "verb": ["run v 1 0 1 5 00000006  "],
    "adj": ["glad a 1 1 ! 1 1 00000007  "],
    "adv": ["gladly r 1 0 1 0 00000008  "],
}


def folder(path: Path) -> Path:
    for kind, files in (("data", DATA), ("index", INDEX)):
        for part in PARTS:
            content = LICENCE + "".join(f"{line}\n" for line in files[part])
            (path / f"{kind}.{part}").write_text(content)
    return path


def test_synonyms_are_single_words_of_the_most_frequent_meaning(tmp_path: Path) -> None:
    synonyms = read_wordnet(folder(tmp_path))
    # "he" is excluded as a function word, so helium has no synonym left
    assert synonyms.keys() == {"car", "auto", "run", "glad"}
    assert synonyms["car"] == ("auto",)  # not railcar, and not motor_car
    assert synonyms["auto"] == ("car",)
    assert synonyms["glad"] == ("happy",)  # without the mark of its position
    assert synonyms["run"] == ("sprint",)  # the verb is more frequent


@pytest.mark.parametrize("name", ["index.noun", "data.adv"])
def test_a_missing_file_is_named_with_its_package(name: str, tmp_path: Path) -> None:
    (folder(tmp_path) / name).unlink()
    with pytest.raises(DataError, match=f"has no {name} of WordNet.*wordnet-base"):
        read_wordnet(tmp_path)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("data.verb", "00000009 38 v zz run 0 000 | fast"),
        ("data.verb", "00000009"),
        ("index.verb", "walk v 1"),
        ("index.verb", "walk v 1 x 1 0 00000006"),
        ("index.verb", "walk v 1 0 1 0 \udcff"),
    ],
)
def test_an_invalid_line_is_named(name: str, line: str, tmp_path: Path) -> None:
    file = folder(tmp_path) / name
    file.write_bytes(file.read_bytes() + f"{line}\n".encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=f"{name}, line 3"):
        read_wordnet(tmp_path)


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.skipif(
    not Path("/usr/share/wordnet/index.noun").is_file(),
    reason="wordnet-base is not installed: make peers",
)
def test_wordnet_has_synonyms_of_car() -> None:
    synonyms = read_wordnet("/usr/share/wordnet")
    assert len(synonyms) > 30_000
    assert "automobile" in synonyms["car"]
    assert "he" not in synonyms
