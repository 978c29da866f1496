"""A table survives being saved, and its page cannot be broken by a cell."""

from pathlib import Path

import pytest

from reproduction.tables import Table, load_table, markdown
from vestige import results
from vestige.errors import RunError

TABLE = Table(
    name="one",
    title="One",
    note="A note.",
    columns=("phrase", "score"),
    entries=({"phrase": "a|b", "score": 1.5}, {"phrase": "c", "score": None, "more": [1, 2]}),
)


def test_a_saved_table_is_found_again(tmp_path: Path) -> None:
    assert load_table(tmp_path / "none", configuration={}) is None
    results.save(TABLE, tmp_path / "run", run={"configuration": {"k": 1}})
    found = load_table(tmp_path / "run", configuration={"k": 1})
    assert found is not None
    assert found.columns == TABLE.columns
    assert list(found.rows()) == list(TABLE.rows())
    with pytest.raises(RunError, match="another configuration"):
        load_table(tmp_path / "run", configuration={"k": 2})


def test_every_row_of_the_page_has_a_cell_for_each_column() -> None:
    lines = markdown([TABLE]).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert rows[2:] == ["| a\\|b | 1.50 |", "| c |  |"]
