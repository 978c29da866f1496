"""Readers of dialogue: films, chats and comments."""

import json

from tests.data.files import packed, write
from vestige.data.formats.dialogue import read_cornell, read_reddit, read_ubuntu_irc
from vestige.data.formats.reading import read_corpus

SEP = " +++$+++ "
# As in the release: the last line of a conversation comes first.
LINES = [
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


def test_a_film_reply_answers_the_preceding_line_of_another_character(tmp_path):
    film(tmp_path / "movie_lines.txt", LINES)
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
    for tail in (b"L9 +++$+++ u1 +++$+++ m0 +++$+++ BOB +++$+++ I was rea", b"L9 +++$+++ u1 +++$"):
        film(tmp_path / "movie_lines.txt", LINES, tail)  # an incomplete last line is ignored
        assert read_cornell(tmp_path).fingerprint() == corpus.fingerprint()
    # A file of conversations takes precedence.
    listed = [("u0", "u1", "m0", "['L10', 'L11']"), ("u0", "u1", "m0", "['L3', 'L12', 'L99']")]
    film(tmp_path / "movie_conversations.txt", listed)
    corpus = read_cornell(tmp_path)
    assert (corpus.sources, list(corpus)) == (["Hello.", "Never."], ["How are you?", "Fine."])


def test_film_lines_without_words_are_omitted_and_invalid_bytes_are_read(tmp_path):
    rows = [("L1", "u0", "m0", "A", "Hm."), ("L2", "u1", "m0", "B", ""), *LINES]
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
    rows = [dict(zip(("log", "user", "text"), message, strict=True)) for message in messages]
    return write(path, packed("".join(json.dumps(row | {"time": "01:00"}) + "\n" for row in rows)))


def test_a_chat_reply_answers_the_last_message_of_the_addressed_user(tmp_path):
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

    path = write(tmp_path / "one" / "c.jsonl.gz", packed(comments("hi\nyou", "  ", "bye")))
    for source in (path.parent, path):
        corpus = read_reddit(source)
        assert list(corpus) == ["hi\nyou", "bye"]
        assert corpus.users == ["ann", "ann"]
        assert corpus.labels == ["College", "College"]
    for name in ("b", "a"):
        write(tmp_path / "two" / f"{name}.jsonl", comments(name))
    assert list(read_reddit(tmp_path / "two")) == ["a", "b"]
