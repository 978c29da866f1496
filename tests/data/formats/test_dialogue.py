"""Film scripts, chats, comments."""

import gzip
import json

import pytest

from vestige.data.formats.dialogue import read_cornell, read_reddit, read_ubuntu_irc
from vestige.data.formats.reading import read_corpus
from vestige.errors import DataError

SEP = " +++$+++ "
# As in the release: the last line of a conversation comes first.
SPOKEN = [
    ("L12", "u0", "m0", "ANN", "Fine."),
    ("L11", "u1", "m0", "BOB", "How are <u>you</u>?"),
    ("L10", "u0", "m0", "ANN", "Hello."),
    ("L5", "u0", "m0", "ANN", "And then?"),
    ("L4", "u0", "m0", "ANN", "Once more."),
    ("L3", "u1", "m0", "BOB", "Never."),
    ("L13", "u2", "m1", "ANN", "Another film."),
]
CHARACTERS = [("u0", "ANN", "m0", "first film", "f", "1"), ("u2", "ANN", "m1", "second", "?", "?")]


def film(path, rows, tail=b""):
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes("".join(SEP.join(row) + "\r\n" for row in rows).encode("cp1252") + tail)
    return path


def films(tmp_path):
    film(tmp_path / "movie_lines.txt", SPOKEN)
    film(tmp_path / "movie_characters_metadata.txt", CHARACTERS)
    return tmp_path


def test_a_reply_answers_the_line_before_it_by_another_character(tmp_path):
    corpus = read_cornell(films(tmp_path))
    assert list(corpus) == ["Once more.", "How are you?", "Fine."]
    assert corpus.sources == ["Never.", "Hello.", "How are you?"]
    assert corpus.users == ["u0", "u1", "u0"]
    assert corpus.labels == ["first film"] * 3


def test_a_file_of_conversations_decides_where_there_is_one(tmp_path):
    films(tmp_path)
    listed = [("u0", "u1", "m0", "['L10', 'L11']"), ("u0", "u1", "m0", "['L3', 'L12', 'L99']")]
    film(tmp_path / "movie_conversations.txt", listed)
    corpus = read_cornell(tmp_path)
    assert corpus.sources == ["Hello.", "Never."]
    assert list(corpus) == ["How are you?", "Fine."]


def test_without_the_characters_a_film_is_its_id(tmp_path):
    corpus = read_cornell(film(tmp_path / "movie_lines.part.txt", SPOKEN))
    assert set(corpus.labels or []) == {"m0"}


@pytest.mark.parametrize(
    "cut", ["L9 +++$+++ u1 +++$+++ m0 +++$+++ BOB +++$+++ I was rea", "L9 +++$+++ u1 +++$"]
)
def test_a_last_line_that_is_cut_takes_no_part(cut, tmp_path):
    whole = read_cornell(film(tmp_path / "movie_lines.txt", SPOKEN)).fingerprint()
    film(tmp_path / "movie_lines.txt", SPOKEN, cut.encode())
    assert read_cornell(tmp_path).fingerprint() == whole


def test_windows_text_utf8_and_odd_bytes_are_all_read(tmp_path):
    lines = [
        b"L1 +++$+++ u0 +++$+++ m0 +++$+++ A +++$+++ I\x92m \xe9\n",
        "L2 +++$+++ u1 +++$+++ m0 +++$+++ B +++$+++ déjà\n".encode(),
        b"L3 +++$+++ u0 +++$+++ m0 +++$+++ A +++$+++ so\x81\n",
    ]
    path = tmp_path / "movie_lines.txt"
    path.write_bytes(b"".join(lines))
    corpus = read_cornell(path)
    assert (corpus.sources, list(corpus)) == (["I’m é", "déjà"], ["déjà", "so\x81"])


def test_a_line_without_words_breaks_the_conversation(tmp_path):
    rows = [("L1", "u0", "m0", "A", "Hm."), ("L2", "u1", "m0", "B", ""), *SPOKEN]
    assert "Hm." not in (read_cornell(film(tmp_path / "movie_lines.txt", rows)).sources or [])


def test_the_folder_and_the_file_are_recognised(tmp_path):
    for name in ("", "movie_lines.txt"):
        assert len(read_corpus(films(tmp_path) / name)) == 3


@pytest.mark.parametrize(
    ("name", "row", "says"),
    [
        ("movie_lines.txt", ("L1", "u0", "m0", "ANN"), "line 8: 4 fields; 5"),
        ("movie_lines.txt", ("1045", "u0", "m0", "ANN", "Hi."), "expected a line number such"),
        ("movie_lines.txt", ("L10", "u0", "m0", "ANN", "Hi."), "L10 occurs twice"),
        ("movie_characters_metadata.txt", ("u0", "ANN"), "line 8: 2 fields; 6"),
        (
            "movie_conversations.txt",
            ("u0", "u1", "m0", "[L1, L2]"),
            "line 8: its last field is not a list",
        ),
        ("movie_conversations.txt", ("u0", "u1", "m0", "['L1', "), "is not a list of lines"),
    ],
)
def test_a_fault_names_file_and_line(name, row, says, tmp_path):
    good = {
        "movie_lines.txt": SPOKEN,
        "movie_characters_metadata.txt": CHARACTERS[:1] * 7,
        "movie_conversations.txt": [("u0", "u1", "m0", "['L10', 'L11']")] * 7,
    }
    for other, rows in good.items():
        film(tmp_path / other, [*rows, row] if other == name else rows)
    with pytest.raises(DataError) as caught:
        read_cornell(tmp_path)
    assert says in str(caught.value)
    assert f"{name}, line 8" in str(caught.value)


def test_a_folder_without_lines_and_lines_without_replies_are_named(tmp_path):
    with pytest.raises(DataError, match=r"has no movie_lines\*\.txt"):
        read_cornell(tmp_path)
    with pytest.raises(DataError, match="has no text"):
        read_cornell(film(tmp_path / "movie_lines.txt", SPOKEN[3:5]))


@pytest.mark.data
def test_the_real_excerpt_has_the_replies_of_its_films(real):
    corpus = read_corpus(real / "cornell_movie")
    assert len(corpus) == 23_519
    assert len(set(corpus.users or [])) == 899
    assert len(set(corpus.labels or [])) == 59
    assert "I was ready for the next step" not in " ".join(corpus)


# Ubuntu's chat.

MESSAGES = [
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


def chat(path, said=MESSAGES, tail=""):
    rows = [{"log": log, "time": "01:00", "user": user, "text": text} for log, user, text in said]
    content = "".join(json.dumps(row) + "\n" for row in rows) + tail
    path.write_bytes(gzip.compress(content.encode()))
    return path


def test_a_reply_answers_the_last_message_of_whom_it_names(tmp_path):
    corpus = read_ubuntu_irc(chat(tmp_path / "m.jsonl.gz"))
    assert list(corpus) == ["look in /var/log", "thanks a lot", "and now?"]
    assert corpus.sources == ["it is gone", "look in /var/log", "I talk to myself"]
    assert corpus.users == ["bob", "Ann", "dee"]
    assert corpus.labels == ["a"] * 3


def test_a_name_of_another_log_is_no_name(tmp_path):
    said = [("a", "ann", "hi"), ("b", "bob", "ann: hi"), ("a", "cy", "ann: hello")]
    assert read_ubuntu_irc(chat(tmp_path / "m.jsonl.gz", said)).users == ["cy"]


def test_messages_are_recognised_unless_a_column_is_named(tmp_path):
    path = chat(tmp_path / "m.jsonl.gz")
    (tmp_path / "LICENSE.txt").write_text("free\n")
    for source in (tmp_path, path):
        assert read_corpus(source).fingerprint() == read_ubuntu_irc(path).fingerprint()
    plain = read_corpus(path, user_column="user")
    assert (list(plain), plain.sources) == ([text for _, _, text in MESSAGES], None)
    assert (plain.users or [])[:2] == ["ann", "bob"]


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
def test_a_faulty_message_is_named(line, says, tmp_path):
    with pytest.raises(DataError) as caught:
        read_ubuntu_irc(chat(tmp_path / "m.jsonl.gz", tail=f"{line}\n"))
    assert says in str(caught.value)
    assert "m.jsonl.gz" in str(caught.value)


def test_no_messages_no_replies_and_a_cut_file_are_named(tmp_path):
    with pytest.raises(DataError, match="has no file ending in"):
        read_ubuntu_irc(tmp_path)
    with pytest.raises(DataError, match="has no text"):
        read_ubuntu_irc(chat(tmp_path / "m.jsonl.gz", MESSAGES[:3]))
    path = chat(tmp_path / "m.jsonl.gz")
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataError, match="is incomplete"):
        read_ubuntu_irc(path)


@pytest.mark.data
def test_the_real_chat_has_ninety_thousand_replies(real):
    corpus = read_corpus(real / "ubuntu_irc")
    assert len(corpus) == 91_925
    assert corpus.sources is not None


# Reddit's comments.

COMMENT = {"id": "x", "author": "ann", "subreddit": "College", "thread": "t", "created": 1}


def test_comments_have_author_and_subreddit(tmp_path):
    lines = [json.dumps(COMMENT | {"body": body}) for body in ("hi\nyou", "  ", "bye")]
    path = tmp_path / "comments.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    for source in (path, tmp_path):
        corpus = read_reddit(source)
        assert list(corpus) == ["hi\nyou", "bye"]
        assert corpus.users == ["ann", "ann"]
        assert corpus.labels == ["College", "College"]


def test_several_files_of_comments_are_one_corpus(tmp_path):
    with pytest.raises(DataError, match=r"has no \*\.jsonl"):
        read_reddit(tmp_path)
    for name in ("b", "a"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(COMMENT | {"body": name}) + "\n")
    assert list(read_reddit(tmp_path)) == ["a", "b"]


@pytest.mark.data
def test_half_a_million_real_comments_take_seconds(real):
    corpus = read_reddit(real / "reddit_college")
    assert len(corpus) == 501_661
    assert corpus.table.nbytes < 200_000_000
