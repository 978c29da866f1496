from pathlib import Path

import numpy as np
import pytest

from vestige.data.loaders import read_corpus
from vestige.data.loaders.sated import read_sated
from vestige.errors import DataError

EN = "it &apos;s here .\nthank you .\nwell &amp; good\n"
FR = "c&apos; est ici .\nmerci .\nbien\n"
TALKS = "ann_talk\nann_talk\nbob_talk\n"


def folder(path: Path, en: str = EN, fr: str = FR, talks: str = TALKS, part: str = "dev") -> Path:
    path.mkdir(exist_ok=True)
    for ending, content in (("en", en), ("fr", fr), ("usr", talks)):
        (path / f"{part}.{ending}").write_text(content, encoding="utf-8")
    return path


def test_a_talk_is_a_user_and_french_is_what_is_predicted(tmp_path: Path) -> None:
    corpus = read_sated(folder(tmp_path))
    assert list(corpus) == ["c' est ici .", "merci .", "bien"]
    assert corpus.sources == ["it 's here .", "thank you .", "well & good"]
    assert corpus.users == ["ann_talk", "ann_talk", "bob_talk"]
    assert corpus.labels == ["dev"] * 3


def test_the_endings_give_the_direction(tmp_path: Path) -> None:
    corpus = read_sated(folder(tmp_path), source="fr", target="en")
    assert (list(corpus)[1], (corpus.sources or [])[1]) == ("thank you .", "merci .")
    named = read_corpus(tmp_path, text_column="en", source_column="fr")
    assert named.fingerprint() == corpus.fingerprint()


def test_parts_follow_one_another_and_training_comes_first(tmp_path: Path) -> None:
    for part in ("test", "train", "dev"):
        folder(tmp_path, part=part)
    labels = read_sated(tmp_path).labels or []
    assert labels == ["train"] * 3 + ["dev"] * 3 + ["test"] * 3
    for ending in ("en", "fr", "usr"):
        assert set(read_sated(tmp_path / f"test.{ending}").labels or []) == {"test"}


def test_a_pair_that_is_not_whole_is_left_out(tmp_path: Path) -> None:
    corpus = read_sated(folder(tmp_path, en="here\n \nwell\n", talks="ann\n\nbob\n"))
    assert (list(corpus), corpus.users) == (["c' est ici .", "bien"], ["ann", "bob"])


def test_blank_lines_at_one_end_are_of_no_account(tmp_path: Path) -> None:
    plain = read_sated(folder(tmp_path)).fingerprint()
    assert read_sated(folder(tmp_path, en=EN + "\n\n")).fingerprint() == plain


@pytest.mark.parametrize("name", ["", "talks", "talks/en-fr", "talks/en-fr/dev.en"])
def test_talks_are_recognised_wherever_they_are_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "talks").mkdir()
    (tmp_path / "talks" / "README.txt").write_text("about\n")
    folder(tmp_path / "talks" / "en-fr")
    if not name:
        with pytest.raises(DataError, match="no file of a known format"):
            read_corpus(tmp_path)
    else:
        assert (read_corpus(tmp_path / name).users or [])[-1] == "bob_talk"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"fr": "ici\nmerci\n"}, "(dev.usr 3, dev.en 3, dev.fr 2)"),
        ({"fr": "ici\nmerci\n"}, "line 3 is missing"),
        ({"talks": "ann\n\nbob\n"}, "dev.usr, line 2: the talk has no name"),
        ({"en": "", "fr": "", "talks": ""}, "has no text"),
    ],
)
def test_a_fault_names_folder_and_line(changed: dict[str, str], says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_sated(folder(tmp_path, **changed))
    assert says in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("ending", ["en", "fr"])
def test_a_missing_language_is_named(ending: str, tmp_path: Path) -> None:
    (folder(tmp_path) / f"dev.{ending}").unlink()
    with pytest.raises(DataError, match=rf"dev\.{ending} does not exist"):
        read_sated(tmp_path)


def test_text_that_is_no_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    (folder(tmp_path) / "dev.fr").write_bytes(b"ici\nd\xe9j\xe0\nbien\n")
    with pytest.raises(DataError, match=r"dev\.fr, line 2, byte 2"):
        read_sated(tmp_path)


def test_a_folder_without_talks_and_one_language_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no file of talks"):
        read_sated(tmp_path)
    with pytest.raises(ValueError, match="must be two languages, got 'en' for both"):
        read_sated(tmp_path, target="en")


@pytest.mark.data
def test_the_real_talks_have_four_pairs_each(real: Path) -> None:
    corpus = read_corpus(real / "sated")
    names, owner = corpus.owners()
    assert (len(corpus), len(names)) == (7548, 1887)
    assert set(np.bincount(owner).tolist()) == {4}
    assert len(read_corpus(real / "sated" / "en-fr" / "dev.fr")) == 3774
