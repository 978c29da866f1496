"""Parallel files: pairs of utterances, and translated talks."""

import numpy as np
import pytest

from vestige.data.formats.parallel import read_pairs, read_sated
from vestige.data.formats.reading import read_corpus
from vestige.errors import DataError


def files(tmp_path, part="chat.test", **contents):
    tmp_path.mkdir(exist_ok=True)
    for ending, content in contents.items():
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / f"{part}.{ending}").write_bytes(data)
    return tmp_path


@pytest.mark.parametrize("name", ["", "chat.test.enc", "chat.test.dec"])
def test_line_n_answers_line_n_and_half_pairs_are_left_out(name, tmp_path):
    files(tmp_path, enc="Hi.\nWho?\n \nEnd?\n", dec="Hello.\r\nMe.\r\nYes.\r\nEnd.\r\n")
    for corpus in (read_pairs(tmp_path / name), read_corpus(tmp_path / name)):
        assert list(corpus) == ["Hello.", "Me.", "End."]
        assert corpus.sources == ["Hi.", "Who?", "End?"]
        assert corpus.users is None


def test_several_pairs_of_files_are_one_corpus(tmp_path):
    for name in ("b", "a"):
        files(tmp_path, name, enc=f"ask {name}\n", dec=f"say {name}\n")
    assert list(read_pairs(tmp_path)) == ["say a", "say b"]


@pytest.mark.parametrize(
    ("contents", "says"),
    [
        ({"dec": "a\nb\n"}, "chat.test.enc does not exist"),
        ({"enc": "a\nb\n"}, "chat.test.dec does not exist"),
        ({"enc": "Hi.\nWho?\n", "dec": "a\n"}, "(chat.test.enc 2, chat.test.dec 1)"),
        ({"enc": "Hi.\nWho?\n", "dec": "a\n"}, "line 2 is missing"),
        ({"enc": "Hi.\nWho?\n", "dec": "\n\n"}, "has no text"),
        ({"txt": "a\n"}, "has no pairs"),
    ],
)
def test_halves_that_do_not_fit_are_named(contents, says, tmp_path):
    files(tmp_path, **contents)
    with pytest.raises(DataError) as caught:
        read_corpus(tmp_path, format="pairs")
    assert says in str(caught.value)


def test_a_file_that_is_no_half_is_named(tmp_path):
    with pytest.raises(DataError, match="has no pairs"):
        read_corpus(files(tmp_path, "a", txt="a\n") / "a.txt", format="pairs")


@pytest.mark.data
def test_the_real_pairs_are_thirty_thousand_less_the_blank_ones(real):
    corpus = read_corpus(real / "cornell_movie" / "tf_chatbot.test.enc")
    assert len(corpus) == 29_941


# Talks.

EN = "it &apos;s here .\nthank you .\nwell &amp; good\n"
FR = "c&apos; est ici .\nmerci .\nbien\n"
TALKS = "ann_talk\nann_talk\nbob_talk\n"


def talks(path, en=EN, fr=FR, usr=TALKS, part="dev"):
    return files(path, part, en=en, fr=fr, usr=usr)


def test_a_talk_is_a_user_and_french_is_what_is_predicted(tmp_path):
    corpus = read_sated(talks(tmp_path))
    assert list(corpus) == ["c' est ici .", "merci .", "bien"]
    assert corpus.sources == ["it 's here .", "thank you .", "well & good"]
    assert corpus.users == ["ann_talk", "ann_talk", "bob_talk"]
    assert corpus.labels == ["dev"] * 3


def test_the_endings_give_the_direction(tmp_path):
    corpus = read_sated(talks(tmp_path), source="fr", target="en")
    assert (list(corpus)[1], (corpus.sources or [])[1]) == ("thank you .", "merci .")
    named = read_corpus(tmp_path, text_column="en", source_column="fr")
    assert named.fingerprint() == corpus.fingerprint()


def test_parts_follow_one_another_and_training_comes_first(tmp_path):
    for part in ("test", "train", "dev"):
        talks(tmp_path, part=part)
    labels = read_sated(tmp_path).labels or []
    assert labels == ["train"] * 3 + ["dev"] * 3 + ["test"] * 3
    for ending in ("en", "fr", "usr"):
        assert set(read_sated(tmp_path / f"test.{ending}").labels or []) == {"test"}


def test_a_pair_that_is_not_whole_is_left_out(tmp_path):
    corpus = read_sated(talks(tmp_path, en="here\n \nwell\n", usr="ann\n\nbob\n"))
    assert (list(corpus), corpus.users) == (["c' est ici .", "bien"], ["ann", "bob"])


def test_blank_lines_at_one_end_are_of_no_account(tmp_path):
    plain = read_sated(talks(tmp_path)).fingerprint()
    assert read_sated(talks(tmp_path, en=EN + "\n\n")).fingerprint() == plain


@pytest.mark.parametrize("name", ["", "talks", "talks/en-fr", "talks/en-fr/dev.en"])
def test_talks_are_recognised_wherever_they_are_named(name, tmp_path):
    (tmp_path / "talks").mkdir()
    (tmp_path / "talks" / "README.txt").write_text("about\n")
    talks(tmp_path / "talks" / "en-fr")
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
        ({"fr": b"ici\nd\xe9j\xe0\nbien\n"}, "dev.fr, line 2, byte 2"),
        ({"usr": "ann\n\nbob\n"}, "dev.usr, line 2: the talk has no name"),
        ({"en": "", "fr": "", "usr": ""}, "has no text"),
    ],
)
def test_a_fault_names_folder_and_line(changed, says, tmp_path):
    with pytest.raises(DataError) as caught:
        read_sated(talks(tmp_path, **changed))
    assert says in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("ending", ["en", "fr"])
def test_a_missing_language_is_named(ending, tmp_path):
    (talks(tmp_path) / f"dev.{ending}").unlink()
    with pytest.raises(DataError, match=rf"dev\.{ending} does not exist"):
        read_sated(tmp_path)


def test_a_folder_without_talks_and_one_language_twice_are_refused(tmp_path):
    with pytest.raises(DataError, match="has no file of talks"):
        read_sated(tmp_path)
    with pytest.raises(ValueError, match="must be two languages, got 'en' for both"):
        read_sated(tmp_path, target="en")


@pytest.mark.data
def test_the_real_talks_have_four_pairs_each(real):
    corpus = read_corpus(real / "sated")
    names, owner = corpus.owners()
    assert (len(corpus), len(names)) == (7548, 1887)
    assert set(np.bincount(owner).tolist()) == {4}
    assert len(read_corpus(real / "sated" / "en-fr" / "dev.fr")) == 3774
