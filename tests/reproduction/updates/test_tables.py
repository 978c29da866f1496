"""All tables of the paper at the smallest scale, computed twice and read back."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from reproduction.papers import compute_tables, settings_of
from reproduction.stages import Work
from reproduction.updates.canary_tables import train_pair
from reproduction.updates.snapshots import prepare
from vestige import results
from vestige.models.checkpoints import load_model

pytestmark = pytest.mark.slow

OTHERS = ["table1-reddit-rnn", "table1-reddit-transformer", "table1-wikitext"]
NAMES = ["table1", *OTHERS, "table2", "tables3-4", "table5", "figure1", "subwords", "rq5"]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all tables."""
    directory = tmp_path_factory.mktemp("updates") / "smoke"
    torch.set_num_threads(1)
    tables = compute_tables("updates", "smoke", directory)
    assert {table.name for table in tables} == set(NAMES)
    return directory


def test_every_table_has_a_run_and_is_on_the_page(smoke: Path) -> None:
    page = (smoke / "tables.md").read_text()
    for name in NAMES:
        run = results.load(smoke / "results" / name)
        assert run.rows
        assert run.summary["title"] in page
    assert (smoke / "figure1.svg").read_text().startswith("<svg")


def test_a_second_call_trains_nothing_and_has_the_same_page(smoke: Path) -> None:
    def stamps() -> dict[Path, int]:
        return {file: file.stat().st_mtime_ns for file in smoke.rglob("*.safetensors")}

    before, page = stamps(), (smoke / "tables.md").read_text()
    shutil.rmtree(smoke / "results" / "table2")
    compute_tables("updates", "smoke", smoke)
    assert stamps() == before
    assert (smoke / "tables.md").read_text() == page


def by_definition(before: Path, after: Path, phrase: str) -> float:
    """Equation 1: the sum of the gains in probability of all tokens."""
    total = 0.0
    for sign, folder in ((1, after), (-1, before)):
        model = load_model(folder)
        state = model.start(1)
        for token in model.vocabulary.encode(phrase):
            total += sign * model.log_probs(state)[0, token].exp().item()
            state = model.advance(state, torch.tensor([token]))
    return total


def folders(smoke: Path, table: str, number: int = 0) -> list[Path]:
    """The models before and after the first update of a table of canaries."""
    planting, work = settings_of("updates", table, "smoke")["planting"], Work(smoke)
    pair = train_pair(planting, prepare(planting.setting, work), planting.copies[0], number)
    return [done.folder for done in work.all(pair)]


def test_the_score_of_a_canary_follows_its_definition(smoke: Path) -> None:
    row = results.load(smoke / "results" / "table1").rows[0]
    before, after = folders(smoke, "table1")
    score = by_definition(before, after, row["phrase"])
    assert row["score"] == pytest.approx(score, abs=1e-6)
    assert (row["trainings"], row["interval"], row["mean_score"]) == (1, None, row["score"])
    trained = json.loads((before / "training.json").read_text())
    assert f"torch.{row['precision']}" == trained["precision"]


def test_the_mean_and_interval_of_a_canary_are_over_its_trainings(smoke: Path) -> None:
    pairs = [folders(smoke, "table1-reddit-rnn", number) for number in (0, 1)]
    for row in results.load(smoke / "results" / "table1-reddit-rnn").rows:
        scores = [by_definition(*pair, row["phrase"]) for pair in pairs]
        assert scores[0] != scores[1]
        assert row["scores"] == pytest.approx(scores, abs=1e-6)
        assert row["mean_score"] == pytest.approx(sum(scores) / 2, abs=1e-6)
        margin = 12.706 * abs(scores[0] - scores[1]) / 2  # Student's t, one degree of freedom
        ends = [sum(scores) / 2 - margin, sum(scores) / 2 + margin]
        assert [*map(float, row["interval"].split(" to "))] == pytest.approx(ends, rel=0.06)


def test_gains_of_the_figure_sum_to_scores_of_the_table(smoke: Path) -> None:
    profile = results.load(smoke / "results" / "figure1").rows
    curves = {(row["pattern"], row["copies"]) for row in profile}
    assert len(curves) == 4
    for row in results.load(smoke / "results" / "table1").rows:
        key = (row["pattern"], row["copies"])
        if key in curves:
            gains = [r["gain"] for r in profile if (r["pattern"], r["copies"]) == key]
            assert sum(gains) == pytest.approx(row["score"], abs=1e-6)


def test_phrases_are_counted_in_the_added_text(smoke: Path) -> None:
    rows = results.load(smoke / "results" / "tables3-4").rows
    assert {row["search"] for row in rows} >= {"group", "vanilla", "group, smoothed"}
    assert all(row["in_added"] >= 0 for row in rows)
    page = (smoke / "tables.md").read_text()
    assert "of the added text's own windows are on topic" in page
    for source, words in (("ours", ""), ("null", " verbatim, null")):
        listed = [row for row in rows if (row["source"], row["search"]) == (source, "group")]
        of_rnn = [row for row in listed if row["model"] == "rnn"]
        count = f"{sum(row['on_topic'] for row in of_rnn)} of {len(of_rnn)}"
        assert f"{words} {count}" in page


def test_private_updates_have_the_requested_epsilon(smoke: Path) -> None:
    none, *private = results.load(smoke / "results" / "rq5").rows
    assert none["defence"] == "none"
    assert none["epsilon"] is None
    for row in private:
        assert 0.95 * row["asked_epsilon"] < row["epsilon"] <= row["asked_epsilon"]
        assert row["steps"] > 0
    assert private[0]["noise_multiplier"] > private[1]["noise_multiplier"]
