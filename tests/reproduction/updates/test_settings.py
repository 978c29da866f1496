"""What a table needs, read: parts of the size asked for, canaries with their frequencies."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reproduction.papers import settings_of
from reproduction.runner import RECORD, run_trials
from reproduction.updates.settings import Snapshot, extended, prepare
from vestige.errors import TrainingError

SETTING = settings_of("updates", "table1", "smoke").setting


def words(corpus) -> int:
    return sum(len(text.split()) for text in corpus)


@pytest.mark.slow
def test_a_part_is_validated_on_a_text_that_fits_it(tmp_path: Path) -> None:
    setting = replace(SETTING, words=1500)
    material = prepare(setting, tmp_path, None, extra_words=[300])
    assert words(material.original) == pytest.approx(1500, abs=6)
    assert words(material.extras[0]) == pytest.approx(300, abs=6)
    assert words(material.validation) == pytest.approx(300, abs=6)
    whole = prepare(replace(setting, words=None), tmp_path, None)
    assert words(whole.validation) > 600


def test_given_phrases_come_with_the_frequencies_of_the_text(tmp_path: Path) -> None:
    material = prepare(SETTING, tmp_path, None)
    text = " ".join(material.original).split()
    word = text[0]
    planted, control = material.canaries({"mixed": f"{word} {word}"}, {"mixed": word}, copies=7)
    assert planted.frequencies == (text.count(word),) * 2
    assert (planted.copies, control.copies) == (7, 0)


def test_each_extra_text_holds_the_smaller_ones(tmp_path: Path) -> None:
    setting = replace(SETTING, words=1000)
    material = extended(setting, tmp_path, None, [50, 20])
    assert material.percents == (0, 20, 50)
    sizes = [sum(map(words, material.extra(percent))) for percent in material.percents]
    assert sizes == pytest.approx([0, 200, 500], abs=12)
    assert material.extra(50)[:1] == material.extra(20)
    assert words(material.extras[-1]) == pytest.approx(500, abs=6)
    with pytest.raises(ValueError, match="words must be given"):
        extended(replace(setting, words=None), tmp_path, None, [50])


@pytest.fixture
def chain(tmp_path: Path) -> list[Snapshot]:
    """A snapshot, and one that continues it, the later one first."""
    setting = replace(SETTING, words=300)
    material = prepare(setting, tmp_path, None)
    first = material.snapshot("first", material.original, seed=0)
    return [material.snapshot("second", material.original, seed=1, start=first), first]


def test_a_snapshot_comes_after_the_one_that_it_continues(chain: list[Snapshot]) -> None:
    second, first = chain
    run_trials([second])
    before, after = (dict(one.model().named_parameters()) for one in (first, second))
    assert any(not before[name].equal(after[name]) for name in before)
    history = json.loads((second.directory / "history.json").read_text())
    kept = min(history, key=lambda record: record["validation_perplexity"])
    assert second.result()["perplexity"] == kept["validation_perplexity"]
    assert second.result()["epoch"] == kept["epoch"]
    assert second.result()["precision"] == "float32"


def test_a_training_of_an_earlier_version_is_taken_over(chain: list[Snapshot]) -> None:
    first = chain[1]
    run_trials([first])
    weights = first.directory / "model" / "model.safetensors"
    made = weights.stat().st_mtime_ns
    (first.directory / RECORD).unlink()  # earlier versions wrote none
    run_trials([first])
    assert first.kept
    assert weights.stat().st_mtime_ns == made
    (first.directory / RECORD).unlink()
    with pytest.raises(TrainingError):
        run_trials([replace(first, config=replace(first.config, epochs=1))])


def test_a_model_that_was_cut_off_is_trained_again(chain: list[Snapshot], listener) -> None:
    first = chain[1]
    run_trials([first])
    weights = first.directory / "model" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:100])
    run_trials([first], monitor=listener)
    assert "is damaged" in listener.lines[0]
    assert weights.read_bytes() == whole
