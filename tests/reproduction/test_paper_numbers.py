"""The papers' numbers: all there, and each file read as what it says."""

from importlib.resources import files
from pathlib import Path

import pytest

from reproduction import paper_numbers as module
from reproduction.nlu import paper_tables as nlu
from reproduction.paper_numbers import paper_numbers
from reproduction.regularization import paper_tables as regularization
from reproduction.updates import paper_tables as updates


def test_the_updates_paper_is_whole() -> None:
    sizes = {name: len(rows) for name, rows in updates.PAPER.items()}
    assert sizes == {"table1": 44, "table2": 16, "tables3-4": 40, "table5": 10, "rq5": 3}
    assert updates.PAPER["table1"]["ptb", "rnn", "all-low", 50] == {"score": 3.94}
    assert updates.PAPER["table2"]["two-stage", 100, "1:100K"] == {"score": 0.26}
    scores = [row["score"] for name in ("table1", "table2") for row in updates.PAPER[name].values()]
    assert all(-5 <= score <= 5 for score in scores)
    table5 = [score for row in updates.PAPER["table5"].values() for score in row.values()]
    assert (len(table5), table5.count(None)) == (100, 1)  # the copy of the paper lacks one
    assert updates.PAPER["rq5"][None,]["score"] == 3.94


def test_the_extraction_paper_is_whole() -> None:
    sizes = {name: len(rows) for name, rows in nlu.PAPER.items()}
    assert sizes == {"table2": 19, "table3": 63, "table4": 5, "utility": 3}
    assert nlu.PAPER["table2"]["pin", 4, 1000] == {"accuracy": 0.5, "hamming": 0.18}
    assert nlu.PAPER["table3"][1000, "D+ES+CE", "call"] == {"hamming": 0.95}
    assert all(0 <= row["hamming"] <= 1 for row in nlu.PAPER["table3"].values())


def test_the_regularization_paper_is_whole() -> None:
    known = regularization.PAPER_TABLE1
    assert len(known) == 12
    assert known["avocado", "low", "unmitigated"] == {"paper_training": 36.8, "paper_test": 51.3}
    assert regularization.PAPER_GAPS[("dp",)] == {"gap": 29.0}


@pytest.mark.parametrize("text", ["a,b\n1,2\n1,3\n", "a,b\n1\n", "a,b\n1,2,3\n"])
def test_a_table_with_a_key_twice_or_a_ragged_row_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "paper_table.csv").write_text(text)
    monkeypatch.setattr(module, "files", lambda _: tmp_path)
    with pytest.raises(ValueError, match=r"paper_table.csv must have"):
        paper_numbers("mine", "table", key=1)


def test_every_file_of_numbers_is_packaged_and_has_no_duplicate_column() -> None:
    root = files("reproduction")
    tables = [file for paper in root.iterdir() if paper.is_dir() for file in paper.iterdir()]
    heads = [t.read_text("utf-8").split("\n")[0] for t in tables if t.name.endswith(".csv")]
    assert len(heads) >= 11
    for head in heads:
        assert len(set(head.split(","))) == len(head.split(","))
