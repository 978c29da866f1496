"""Replies in films, chats and comments."""

import json

from tests.data.formats.test_faults import packed
from tests.data.formats.test_formats import write
from vestige.data.formats.dialogue import read_cornell, read_reddit, read_ubuntu_irc
from vestige.data.formats.reading import read_corpus

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


def film(path, rows, tail=b""):
    path.write_bytes("".join(SEP.join(row) + "\r\n" for row in rows).encode("cp1252") + tail)
    return path


def test_a_reply_answers_the_line_before_it_by_another_character(tmp_path):
    film(tmp_path / "movie_lines.txt", SPOKEN)
    assert set(read_cornell(tmp_path).labels) == {"m0"}  # without the characters, a film's id
    characters = [("u0", "ANN", "m0", "first film", "f", "1"), ("u2", "ANN", "m1", "x", "?", "?")]
    film(tmp_path / "movie_characters_metadata.txt", characters)
    for source in (tmp_path, tmp_path / "movie_lines.txt"):
        assert read_corpus(source).fingerprint() == read_cornell(tmp_path).fingerprint()
    corpus = read_cornell(tmp_path)
    assert list(corpus) == ["Once more.", "How are you?", "Fine."]
    assert corpus.sources == ["Never.", "Hello.", "How are you?"]
    assert corpus.users == ["u0", "u1", "u0"]
    assert corpus.labels == ["first film"] * 3
    for cut in ("L9 +++$+++ u1 +++$+++ m0 +++$+++ BOB +++$+++ I was rea", "L9 +++$+++ u1 +++$"):
        film(tmp_path / "movie_lines.txt", SPOKEN, cut.encode())  # takes no part
        assert read_cornell(tmp_path).fingerprint() == corpus.fingerprint()
    # A file of conversations decides where there is one.
    listed = [("u0", "u1", "m0", "['L10', 'L11']"), ("u0", "u1", "m0", "['L3', 'L12', 'L99']")]
    film(tmp_path / "movie_conversations.txt", listed)
    corpus = read_cornell(tmp_path)
    assert (corpus.sources, list(corpus)) == (["Hello.", "Never."], ["How are you?", "Fine."])


def test_lines_without_words_and_invalid_bytes(tmp_path):
    rows = [("L1", "u0", "m0", "A", "Hm."), ("L2", "u1", "m0", "B", ""), *SPOKEN]
    assert "Hm." not in read_cornell(film(tmp_path / "movie_lines.txt", rows)).sources
    lines = [
        b"L1 +++$+++ u0 +++$+++ m0 +++$+++ A +++$+++ I\x92m \xe9\n",
        "L2 +++$+++ u1 +++$+++ m0 +++$+++ B +++$+++ déjà\n".encode(),
        b"L3 +++$+++ u0 +++$+++ m0 +++$+++ A +++$+++ so\x81\n",
    ]
    (tmp_path / "movie_lines.txt").write_bytes(b"".join(lines))
    corpus = read_cornell(tmp_path / "movie_lines.txt")
    assert (corpus.sources, list(corpus)) == (["I’m é", "déjà"], ["déjà", "so\x81"])


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


def chat(path, messages=MESSAGES):
    rows = [
        {"log": log, "time": "01:00", "user": user, "text": text} for log, user, text in messages
    ]
    path.write_bytes(packed("".join(json.dumps(row) + "\n" for row in rows)))
    return path


def test_a_reply_answers_the_last_message_of_the_user_it_names(tmp_path):
    path = chat(tmp_path / "m.jsonl.gz")
    (tmp_path / "LICENSE.txt").write_text("free\n")
    for corpus in (read_ubuntu_irc(path), read_corpus(path), read_corpus(tmp_path)):
        assert list(corpus) == ["look in /var/log", "thanks a lot", "and now?"]
        assert corpus.sources == ["it is gone", "look in /var/log", "I talk to myself"]
        assert corpus.users == ["bob", "Ann", "dee"]
        assert corpus.labels == ["a"] * 3
    plain = read_corpus(path, user_column="user")  # unless a column is named
    assert (list(plain), plain.sources) == ([text for _, _, text in MESSAGES], None)
    assert plain.users[:2] == ["ann", "bob"]
    messages = [("a", "ann", "hi"), ("b", "bob", "ann: hi"), ("a", "cy", "ann: hello")]
    assert read_ubuntu_irc(chat(path, messages)).users == ["cy"]  # a name of another log is none


def test_comments_have_author_and_subreddit(tmp_path):
    about = {"id": "x", "author": "ann", "subreddit": "College", "thread": "t", "created": 1}

    def comments(*bodies):
        return "".join(json.dumps(about | {"body": body}) + "\n" for body in bodies)

    write(tmp_path / "one", c__jsonl__gz=packed(comments("hi\nyou", "  ", "bye")))
    for source in (tmp_path / "one", tmp_path / "one" / "c.jsonl.gz"):
        corpus = read_reddit(source)
        assert list(corpus) == ["hi\nyou", "bye"]
        assert corpus.users == ["ann", "ann"]
        assert corpus.labels == ["College", "College"]
    write(tmp_path / "two", b__jsonl=comments("b"), a__jsonl=comments("a"))
    assert list(read_reddit(tmp_path / "two")) == ["a", "b"]
