import gzip
import json
from pathlib import Path

import pytest

from vestige.data.loaders import read_corpus
from vestige.data.loaders.ubuntu_irc import read_ubuntu_irc
from vestige.errors import DataError

SAID = [
    ("a", "ann", "where is the log?"),
    ("a", "bob", "hello"),
    ("a", "ann", "it is gone"),
    ("a", "bob", "ann: look in /var/log"),
    ("a", "Ann", "Bob, thanks a lot"),
    ("b", "cy", "ann: nobody of that name here"),
    ("a", "cy", "bob: "),
    ("a", "ann", "ann: I talk to myself"),
    ("a", "dee", "http: that is no name"),
    ("a", "dee", "ANN: and now?"),
]


def file(path: Path, said: list[tuple[str, str, str]] = SAID) -> Path:
    rows = [{"log": log, "time": "01:00", "user": user, "text": text} for log, user, text in said]
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


def test_a_reply_answers_the_last_message_of_whom_it_names(tmp_path: Path) -> None:
    corpus = read_ubuntu_irc(file(tmp_path / "m.jsonl.gz"))
    assert list(corpus) == ["look in /var/log", "thanks a lot", "and now?"]
    assert corpus.sources == ["it is gone", "look in /var/log", "I talk to myself"]
    assert corpus.users == ["bob", "Ann", "dee"]
    assert corpus.labels == ["a"] * 3


def test_a_name_of_another_log_is_no_name(tmp_path: Path) -> None:
    said = [("a", "ann", "hi"), ("b", "bob", "ann: hi"), ("a", "cy", "ann: hello")]
    assert read_ubuntu_irc(file(tmp_path / "m.jsonl.gz", said)).users == ["cy"]


def test_all_messages_are_documents_when_replies_are_not_wanted(tmp_path: Path) -> None:
    corpus = read_ubuntu_irc(file(tmp_path / "m.jsonl.gz"), replies=False)
    assert list(corpus) == [text for _, _, text in SAID]
    assert (corpus.users or [])[:2] == ["ann", "bob"]
    assert corpus.sources is None


def test_messages_are_recognised_unless_a_column_is_named(tmp_path: Path) -> None:
    path = file(tmp_path / "m.jsonl.gz")
    (tmp_path / "LICENSE.txt").write_text("free\n")
    for source in (tmp_path, path):
        assert read_corpus(source).fingerprint() == read_ubuntu_irc(path).fingerprint()
    plain = read_corpus(path, user_column="user")
    assert (len(plain), plain.sources) == (len(SAID), None)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"log": "a", "user": "ann"', "line 11: invalid JSON"),
        ('{"log": "a", "user": "ann", "text": 7}', 'line 11: "text" is int, not text'),
        ('{"log": "a", "user": ["ann"], "text": "hi"}', '"user" is list, not text'),
        ('"hi"', "line 11: str instead of a JSON object"),
        ('{"log": "a", "user": "ann"}', 'have no "text"; the first is row 11'),
    ],
)
def test_a_fault_names_file_and_line(line: str, says: str, tmp_path: Path) -> None:
    path = file(tmp_path / "m.jsonl.gz")
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + line.encode() + b"\n"))
    with pytest.raises(DataError) as caught:
        read_ubuntu_irc(path)
    assert says in str(caught.value)
    assert "m.jsonl.gz" in str(caught.value)


def test_no_messages_no_replies_and_a_cut_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no messages"):
        read_ubuntu_irc(tmp_path)
    with pytest.raises(DataError, match="has no text"):
        read_ubuntu_irc(file(tmp_path / "m.jsonl.gz", SAID[:3]))
    path = file(tmp_path / "m.jsonl.gz")
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataError, match="is incomplete"):
        read_ubuntu_irc(path)


@pytest.mark.data
def test_the_real_chat_has_ninety_thousand_replies(real: Path) -> None:
    corpus = read_corpus(real / "ubuntu_irc")
    assert len(corpus) == 91_925
    assert corpus.sources is not None
