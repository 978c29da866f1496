"""What rows give away: counts against their definitions, by hand."""

import json
from pathlib import Path

import pytest
from update_pairs import tables
from update_pairs.measures import (
    Truth,
    above,
    coverage,
    false_alarm,
    found,
    judged,
    recalled,
    verbatim,
)
from update_pairs.protocol import Found, Row
from update_pairs.searches import Kept

SECRET, OTHER = (1, 2, 3, 4, 5), (7, 8, 9, 10)
KNOWN = Truth(
    secrets={SECRET: 20, OTHER: 5},
    added=frozenset({(1, 2, 3, 4), (2, 3, 4, 5), (7, 8, 9, 10)}),
)


def test_a_secret_is_recalled_in_runs_of_three() -> None:
    rows = [Row((1, 2, 9, 4, 5), 3.0), Row((0, 2, 3, 4), 2.0)]
    assert recalled(rows[:1], KNOWN, 20) == (0, 5)
    assert recalled(rows, KNOWN, 20) == (3, 5)
    assert recalled(rows, KNOWN, 5) == (0, 4)


def test_coverage_counts_each_added_gram_once() -> None:
    rows = [Row((1, 2, 3, 4), 2.0), Row((1, 2, 3, 4, 6), 1.0)]
    # (1 2 3 4) twice, (2 3 4 6) once
    assert coverage(rows, KNOWN) == (1, 2)
    assert verbatim(rows, KNOWN) == 2
    assert verbatim([Row((2, 3, 4, 6), 1.0)], KNOWN) == 0


def test_found_rows_are_above_all_null_phrases() -> None:
    nulls = [(float(i),) for i in range(19)]
    rows = [Row(SECRET, 18.5), Row(OTHER, 18.0)]
    assert found(rows, nulls) == rows[:1]
    assert found(rows, nulls[:18]) == []
    assert found([Row(SECRET, 18.5, fragment=True)], nulls) == []
    counts = judged(rows, KNOWN, nulls)
    assert (counts["found"], counts["found_verbatim"]) == (1, 1)
    assert judged(rows, KNOWN, nulls[:18])["found"] is None


def test_rows_above_the_nulls_of_their_kind_are_counted_apart() -> None:
    rows = [Row(SECRET, 3.0), Row(OTHER, 2.0), Row(OTHER, 9.0, fragment=True)]
    assert above(rows, [(2.0, 1.0), (0.5,), ()]) == rows[:1]
    counts = judged(rows, KNOWN, [], [(2.0, 1.0), (0.5,)])
    assert (counts["above"], counts["above_verbatim"], counts["found"]) == (1, 1, None)
    assert judged(rows, KNOWN, [])["above"] is None


def test_a_false_alarm_needs_19_others() -> None:
    nulls = [(float(i),) for i in range(19)]
    assert false_alarm([Row(OTHER, 18.5)], nulls) is True
    assert false_alarm([Row(OTHER, 17.5)], nulls) is False
    assert false_alarm([Row(OTHER, 99.0)], nulls[:5]) is None


def test_shares_are_of_sums_over_texts() -> None:
    made = [
        {"text": "a", "hit": 1, "all": 4},
        {"text": "a", "hit": 2, "all": 4},
        {"text": "b", "hit": 8, "all": 8},
    ]
    assert tables.share(made, "hit", "all").startswith("0.69 (")
    assert tables.share(made[:2], "hit", "all") == "0.38"
    assert tables.share([], "hit", "all") == "–"


def test_differences_of_recall_are_on_the_same_pairs() -> None:
    def record(method: str, text: str, hits: int) -> tables.Record:
        told = {f"recall_x{copies}_{top}": 0 for copies in (20, 5, 1) for top in (10, 50)}
        sizes = {f"secret_tokens_x{copies}": 10 for copies in (20, 5, 1)}
        more = {"recall_x20_50": hits}
        return {"method": method, "text": text, "kind": "k", **told, **sizes, **more}

    made = [record("hybrid", "a", 6), record("hybrid", "b", 3), record("CDD", "a", 3)]
    assert tables.duels_table(made)[1] == ["CDD", "1", "1", "1", "+0.00", "+0.10"]
    made.append(record("CDD", "b", 6))
    assert tables.duels_table(made)[1][:4] == ["CDD", "2", "1", "1"]
    assert tables.duels_table(made)[1][5].startswith("+0.00 (")


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """Twenty pairs of five texts, without models, and null searches of one phrase each."""
    folder = Kept(pairs=tmp_path / "pairs", searches=tmp_path / "found")
    for number in range(20):
        name = f"t{number % 5}-k{number // 5}"
        (folder.pairs / name).mkdir(parents=True)
        (folder.pairs / name / "facts.json").write_text(json.dumps({}))
        folder._keep(
            folder.file("hybrid", name, "null", 0),
            Found(rows=(Row(OTHER, float(number)),), before=2, after=3),
            0.1,
        )
    return folder


def test_one_null_search_of_twenty_is_above_the_others(kept: Kept) -> None:
    told = tables.alarms(kept, "hybrid", [0])
    assert [one["alarm"] for one in told].count(True) == 1
    assert next(one["kind"] for one in told if one["alarm"]) == "k3"
    rows = tables.alarms_table(told)
    assert rows[-1] == ["hybrid", "all", "20", "1"]


def test_a_search_that_was_kept_is_read_again(kept: Kept) -> None:
    read = kept.found("hybrid", "t0-k0", "null", 0)
    assert read is not None
    assert read.rows == (Row(OTHER, 0.0),)
    assert read.null_scores == (0.0,)
    assert kept.found("CDD", "t0-k0", "null", 0) is None
