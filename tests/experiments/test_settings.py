"""What a table needs, read: parts of the size asked for, canaries with their frequencies."""

from dataclasses import replace
from pathlib import Path

import pytest

from vestige.experiments.settings import chosen_canaries, prepare
from vestige.experiments.updates.paper_tables import SMOKE


def words(corpus) -> int:
    return sum(len(text.split()) for text in corpus)


def test_a_part_is_validated_on_a_text_that_fits_it(tmp_path: Path) -> None:
    setting = replace(SMOKE.table1["table1"].setting, words=1500)
    material = prepare(setting, tmp_path, None, extra_words=[300])
    assert words(material.original) == pytest.approx(1500, abs=6)
    assert words(material.extras[0]) == pytest.approx(300, abs=6)
    assert words(material.validation) == pytest.approx(300, abs=6)
    whole = prepare(replace(setting, words=None), tmp_path, None)
    assert words(whole.validation) > 600


def test_given_phrases_come_with_the_frequencies_of_the_text(tmp_path: Path) -> None:
    material = prepare(SMOKE.table1["table1"].setting, tmp_path, None)
    text = " ".join(material.original).split()
    word = text[0]
    planted, control = chosen_canaries(
        material, {"mixed": f"{word} {word}"}, {"mixed": word}, copies=7
    )
    assert planted.frequencies == (text.count(word),) * 2
    assert (planted.copies, control.copies) == (7, 0)
