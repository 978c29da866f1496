from pathlib import Path

import pytest

from vestige.errors import DataError
from vestige.experiments.provenance.obfuscation import PARTS, read_wordnet

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
