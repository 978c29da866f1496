import gzip
from pathlib import Path

import pytest

from vestige.data.loaders.plain_text import read_plain_text
from vestige.errors import DataError


def test_every_line_is_a_document_and_blank_lines_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeff one two \r\n\n  \nthrée".encode())
    assert list(read_plain_text(path)) == ["one two", "thrée"]


def test_gzip_reads_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert list(read_plain_text(path)) == ["one", "two"]


def test_what_is_not_utf8_is_named_with_line_and_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\nna\xefve\n")
    with pytest.raises(DataError, match=r"a\.txt, line 2, byte 3 \(0xef\)") as caught:
        read_plain_text(path)
    assert "iconv" in caught.value.remedy


@pytest.mark.parametrize("content", [b"", b"\n \n\t\n"])
def test_a_file_without_text_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.txt has no text"):
        read_plain_text(tmp_path / "a.txt")


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_plain_text(tmp_path / "none.txt")
    with pytest.raises(DataError, match="is a folder"):
        read_plain_text(tmp_path)


@pytest.mark.parametrize("cut", [-9, -3])
def test_a_cut_gzip_is_named(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n" * 100)[:cut])
    with pytest.raises(DataError, match=r"a\.txt\.gz is incomplete"):
        read_plain_text(path)


def test_a_gzip_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(b"plain")
    with pytest.raises(DataError, match="not a gzip file"):
        read_plain_text(tmp_path / "a.txt.gz")
