"""The JSON reader refuses invalid files, and its messages quote no values."""

import json
import os
from pathlib import Path

import pytest

from vestige.data.files import DEEPEST, Count, Excerpt, Schema, read_json, read_object
from vestige.errors import RunError


class Point(Schema):
    name: str
    at: list[Count]


class Part(Excerpt):
    name: str


def error_message(path):
    with pytest.raises(RunError) as caught:
        read_json(path, Point, error=RunError, remedy="Write it again.")
    assert str(path) in caught.value.problem
    assert caught.value.__cause__ is None or "marker" not in str(caught.value.__cause__)
    return str(caught.value)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "point.json"


def test_valid_json_is_read(file):
    file.write_text('{"name": "château", "at": [1, 2]}', "utf-8")
    content = read_json(file, Point, error=RunError, remedy="")
    assert (content.name, content.at) == ("château", [1, 2])


CONTENTS = {
    "nothing": (b"", "not JSON"),
    "half an object": (b'{"name": ', "not JSON"),
    "a list": (b"[]", "a list, not an object"),
    "null": (b"null", "null, not an object"),
    "latin-1": ('{"name": "é"}'.encode("latin-1"), "not UTF-8: byte 11"),
    "UTF-16": ('{"name": "e"}'.encode("utf-16"), "not UTF-8"),
    "a byte-order mark": (b'\xef\xbb\xbf{"name": "a"}', "BOM"),
    "NaN": (b'{"name": "a", "at": [NaN]}', "NaN is not a JSON number"),
    "Infinity": (b'{"name": "a", "at": [-Infinity]}', "-Infinity is not a JSON number"),
    "beyond float64": (b'{"name": "a", "at": [1e999]}', "too large"),
    "a whole number beyond float64": (b'{"a": 1%s}' % (b"0" * 400), "too large"),
    "too many digits": (b'{"a": 1%s}' % (b"0" * 5000), "digits"),
    "a duplicate name": (b'{"name": "a", "name": "b"}', "twice"),
    "half a surrogate pair": (b'{"name": "\\ud800", "at": []}', "surrogate"),
    "half a surrogate pair in a name": (b'{"\\udfff": 1}', "surrogate"),
    "unclosed lists": (b'{"at": %s' % (b"[" * 10**6), "deep"),
    "lists too deep": (b'{"at": %s%s}' % (b"[" * DEEPEST, b"]" * DEEPEST), "deep"),
    "unclosed objects": (b'{"a": ' * 10**5, "deep"),
    "a missing field": (b'{"name": "a"}', '"at": it is missing'),
    "an unknown field": (b'{"name": "a", "at": [], "marker": 1}', "unknown field"),
    "a number as text": (b'{"name": "a", "at": ["7"]}', '"at[0]"'),
    "a truth value as number": (b'{"name": "a", "at": [true]}', '"at[0]"'),
    "a fraction as count": (b'{"name": "a", "at": [0.5]}', '"at[0]"'),
    "a negative count": (b'{"name": "a", "at": [0, -1]}', '"at[1]"'),
    "a count that is too large": (b'{"name": "a", "at": [1000000000000000000]}', '"at[0]"'),
    "a null": (b'{"name": null, "at": []}', '"name"'),
}


@pytest.mark.parametrize(("content", "expected"), CONTENTS.values(), ids=CONTENTS)
def test_invalid_json_is_refused(content, expected, file):
    file.write_bytes(content)
    message = error_message(file)
    assert expected in message
    assert message.endswith("Write it again.")


def test_messages_quote_no_values_and_no_unknown_names(file):
    for content in (
        {"name": ["marker"], "at": "marker"},
        {"name": "marker", "at": ["marker"]},
        {"name": "marker", "at": [], "marker": {"marker": 1}},
    ):
        file.write_text(json.dumps(content))
        assert "marker" not in error_message(file)


def test_an_excerpt_ignores_other_fields(file):
    file.write_text('{"name": "a", "later": [1]}')
    assert read_json(file, Part, error=RunError, remedy="").name == "a"


def test_only_ordinary_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "folder", "link", "nowhere"):
        error_message(tmp_path / name)
    error_message(Path("/dev/zero"))
    error_message(Path("no\0name"))


def test_a_file_that_is_too_large_is_not_read(file):
    with file.open("wb") as stream:
        stream.truncate(2**40)  # a sparse file
    assert "1,099,511,627,776 bytes" in error_message(file)


def test_without_a_schema_all_fields_are_read(file):
    file.write_text('{"a": {"b": [1, 2.5, "c", null, true]}}')
    assert read_object(file, error=RunError, remedy="") == {"a": {"b": [1, 2.5, "c", None, True]}}
