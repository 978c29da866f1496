"""Texts with synonyms, or translated there and back."""

import shutil
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.provenance.obfuscation import (
    PARTS,
    Apertium,
    back_translated,
    read_wordnet,
    with_synonyms,
)
from vestige.data.corpus import Corpus
from vestige.errors import DataError

CORPUS = Corpus.from_texts(
    ["The big car.", "don't, BIG!", ""], users=["ann", "bob", "bob"], sources=["big", "", "x"]
)


def test_words_change_and_all_else_stays() -> None:
    changed = with_synonyms(CORPUS, {"big": ["large"], "don": ["father"]}, seed=0)
    assert list(changed) == ["The large car.", "don't, LARGE!", ""]
    assert (changed.users, changed.sources) == (CORPUS.users, CORPUS.sources)


def test_a_capital_at_the_beginning_stays() -> None:
    changed = with_synonyms(Corpus.from_texts(["Big I"]), {"big": ["large"], "i": ["me"]}, seed=0)
    assert list(changed) == ["Large Me"]


def test_synonyms_are_drawn_and_a_seed_decides() -> None:
    corpus = Corpus.from_texts(["a"] * 300)
    choices = {"a": ["x", "y"]}
    made = [list(with_synonyms(corpus, choices, share=0.5, seed=seed)) for seed in (0, 0, 1)]
    assert made[0] == made[1] != made[2]
    # 150 and 75 expected, standard deviations 8.7 and 7.5.
    assert abs(made[0].count("a") - 150) < 40
    assert abs(made[0].count("x") - 75) < 35


@given(st.lists(st.text(max_size=30), max_size=6), st.floats(0.01, 1))
def test_without_synonyms_every_text_is_the_same(texts: list[str], share: float) -> None:
    texts = [text.encode(errors="ignore").decode() for text in texts]
    corpus = Corpus.from_texts(texts)
    assert with_synonyms(corpus, {}, share=share, seed=0).fingerprint() == corpus.fingerprint()


def test_texts_go_there_and_back_in_batches() -> None:
    sizes: list[int] = []

    def there(texts: list[str]) -> list[str]:
        sizes.append(len(texts))
        return [text.upper() for text in texts]

    corpus = Corpus.from_texts([f"t {i}" for i in range(5)], users=list("abcde"))
    made = back_translated(corpus, there, lambda texts: [t + "!" for t in texts], batch=2)
    assert list(made) == [f"T {i}!" for i in range(5)]
    assert (made.users, sizes) == (corpus.users, [2, 2, 1])


def test_what_comes_back_blank_stays_as_it_was() -> None:
    made = back_translated(CORPUS, lambda texts: texts, lambda texts: [" "] * len(texts))
    assert made.fingerprint() == CORPUS.fingerprint()


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (
            lambda texts: texts[1:],
            "the translator there returned 1 texts for 2, from document 0 on",
        ),
        (lambda texts: [*texts, "x"], "returned 3 texts for 2"),
        (lambda texts: "ab", "no list of texts"),
        (lambda texts: [None, "a"], "no list of texts"),
        (lambda texts: np.array(texts), "no list of texts"),
    ],
)
def test_a_translator_that_gives_other_than_it_got_is_refused(there, says: str) -> None:
    with pytest.raises(DataError, match=says):
        back_translated(CORPUS, there, lambda texts: texts, batch=2)
    with pytest.raises(DataError, match=says.replace("there", "back")):
        back_translated(CORPUS, lambda texts: texts, there, batch=2)


@pytest.mark.parametrize("share", [0, -1, 1.1, float("nan")])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"share must lie in \(0, 1\]"):
        with_synonyms(CORPUS, {}, share=share, seed=0)


# Apertium.


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


@pytest.mark.slow
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


@pytest.mark.slow
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
    words, others = ({word for text in one for word in text.split()} for one in (corpus, made))
    assert 0.2 * len(words) < len(words & others) < len(words)


# WordNet.

LICENCE = "  1 This software and database is being provided to you\n"
# As wndb(5) says: words of a meaning in data, meanings of a word in index.
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


def test_synonyms_are_the_plain_words_of_the_commonest_meaning(tmp_path: Path) -> None:
    synonyms = read_wordnet(folder(tmp_path))
    assert synonyms["car"] == ("auto",)  # no railcar, and no motor_car
    assert synonyms["auto"] == ("car",)
    assert synonyms["glad"] == ("happy",)  # without the mark of where it stands


def test_the_part_of_speech_is_the_one_most_seen(tmp_path: Path) -> None:
    assert read_wordnet(folder(tmp_path))["run"] == ("sprint",)


def test_words_of_grammar_and_words_without_synonyms_have_no_entry(tmp_path: Path) -> None:
    # "he" is also helium, and helium's other word is then none.
    assert read_wordnet(folder(tmp_path)).keys() == {"car", "auto", "run", "glad"}


@pytest.mark.parametrize("name", ["index.noun", "data.adv"])
def test_a_missing_file_is_named_with_where_to_get_it(name: str, tmp_path: Path) -> None:
    (folder(tmp_path) / name).unlink()
    with pytest.raises(DataError, match=f"has no {name} of WordNet") as caught:
        read_wordnet(tmp_path)
    assert "wordnet-base" in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "line", "says"),
    [
        ("data.verb", "00000009 38 v zz run 0 000 | fast", "line 3: not a meaning"),
        ("data.verb", "00000009 38 v 03 run 0", "line 3: not a meaning"),
        ("data.verb", "offset 38 v 01 run 0 000", "line 3: not a meaning"),
        ("index.verb", "walk v 1", "line 3: not a word"),
        ("index.verb", "walk v 2 0 1 0 00000006", "line 3: not a word"),
        ("index.verb", "walk v 1 0 1 0 00009999", "no meaning at 00009999 of data.verb"),
        ("index.verb", "walk v 1 0 1 0 \udcff", "line 3, byte 16"),
    ],
)
def test_a_fault_names_file_and_line(name: str, line: str, says: str, tmp_path: Path) -> None:
    file = folder(tmp_path) / name
    file.write_bytes(file.read_bytes() + f"{line}\n".encode(errors="surrogateescape"))
    with pytest.raises(DataError) as caught:
        read_wordnet(tmp_path)
    assert says in str(caught.value)
    assert f"{name}, line 3" in str(caught.value)


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.skipif(
    not Path("/usr/share/wordnet/index.noun").is_file(),
    reason="wordnet-base is not installed: make peers",
)
def test_the_real_wordnet_knows_cars() -> None:
    synonyms = read_wordnet("/usr/share/wordnet")
    assert len(synonyms) > 30_000
    assert "automobile" in synonyms["car"]
    assert "he" not in synonyms
