import gzip
import json
from pathlib import Path

import pytest

from vestige.data.loaders.reddit import read_reddit
from vestige.errors import DataError

ROW = {"id": "x", "author": "ann", "subreddit": "College", "thread": "t", "created": 1}


def test_comments_have_author_and_subreddit(tmp_path: Path) -> None:
    lines = [json.dumps(ROW | {"body": body}) for body in ("hi\nyou", "  ", "bye")]
    path = tmp_path / "comments.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    for source in (path, tmp_path):
        corpus = read_reddit(source)
        assert list(corpus) == ["hi\nyou", "bye"]
        assert corpus.users == ["ann", "ann"]
        assert corpus.labels == ["College", "College"]


def test_several_files_are_one_corpus(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(ROW | {"body": name}) + "\n")
    assert list(read_reddit(tmp_path)) == ["a", "b"]


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no \.jsonl file"):
        read_reddit(tmp_path)


@pytest.mark.data
def test_half_a_million_real_comments_take_seconds(real: Path) -> None:
    corpus = read_reddit(real / "reddit_college")
    assert len(corpus) == 501_661
    assert corpus.table.nbytes < 200_000_000
