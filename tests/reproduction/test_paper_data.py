"""Every table of the four papers has a caption and settings, and all their numbers are there."""

import json
from importlib.resources import files

import pytest

from reproduction.papers import PAPERS, SCALES, caption, paper_numbers, tables_of
from vestige import results

SIZES = {
    "updates": {"table1": (4, 44), "table2": (3, 16), "tables34": (4, 40), "table5": (1, 10)}
    | {"rq5": (1, 3)},
    "nlu": {"table2": (3, 19), "table3": (3, 63), "table4": (3, 5), "utility": (1, 3)},
    "regularization": {"table1": (3, 12), "figure3c": (1, 3)},
    "provenance": {"table1": (1, 3), "table2": (1, 3), "table3": (3, 42), "table5": (1, 3)},
}
"""Key columns and rows of every file of numbers."""
TABLES = {"updates": 10, "nlu": 7, "regularization": 4, "provenance": 12}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("paper", PAPERS)
def test_every_table_has_settings_in_json_and_a_caption(paper: str, scale: str) -> None:
    titles = set()
    for table in tables_of(paper).values():
        settings = table.settings(scale)
        json.loads(results.to_json(table.configuration(settings)))
        title, note, _ = caption(paper, table.caption, settings)
        assert note.endswith(".")
        assert "{" not in title + note
        titles.add((table.caption, title))
    assert len({title for _, title in titles}) == len(titles)
    assert len(tables_of(paper)) == TABLES[paper]


def test_the_papers_numbers_are_complete() -> None:
    for paper, tables in SIZES.items():
        for table, (key, rows) in tables.items():
            assert len(paper_numbers(paper, table, key=key)) == rows
        folder = files("reproduction").joinpath(paper)
        numbers = [file for file in folder.iterdir() if file.name.endswith(".csv")]
        assert len(numbers) == len(tables)
        for file in numbers:
            header = file.read_text("utf-8").split("\n")[0].split(",")
            assert len(set(header)) == len(header)


def test_numbers_are_those_of_the_papers() -> None:
    updates = paper_numbers("updates", "table2", key=3)
    assert updates["two-stage", 100, "1:100K"] == {"score": 0.26}
    table5 = [s for row in paper_numbers("updates", "table5", key=1).values() for s in row.values()]
    assert (len(table5), table5.count(None)) == (100, 1)  # one is missing in the paper
    assert paper_numbers("updates", "rq5", key=1)[None,]["score"] == 3.94
    nlu = paper_numbers("nlu", "table2", key=3)
    assert nlu["pin", 4, 1000] == {"accuracy": 0.5, "hamming": 0.18}
    assert paper_numbers("nlu", "table3", key=3)[1000, "D+ES+CE", "call"] == {"hamming": 0.95}
    known = paper_numbers("regularization", "table1", key=3)
    assert known["avocado", "low", "unmitigated"] == {"paper_training": 36.8, "paper_test": 51.3}
    assert paper_numbers("regularization", "figure3c", key=1)[("dp",)] == {"gap": 29.0}
