"""What is kept of texts stands in a folder of its own."""

import pytest

from vestige.attacks.texts.statistics_cache import StatisticsCache
from vestige.errors import RunError
from vestige.monitor import SILENT


def cache(folder):
    return StatisticsCache.of_model(folder, {"sha256": "0"}, monitor=SILENT)


@pytest.mark.parametrize("there", ["dataset_info.json", "0123456789abcdeg", "data"])
def test_a_folder_of_something_else_is_refused_and_left_as_it_is(tmp_path, there):
    (tmp_path / there).mkdir()
    with pytest.raises(RunError, match=f"{tmp_path} holds {there}") as refused:
        cache(tmp_path)
    assert "`statistics`" in refused.value.remedy
    assert [path.name for path in tmp_path.iterdir()] == [there]


@pytest.mark.parametrize("there", ["0123456789abcdef", "0123456789abcdef.sqlite-wal", ".DS_Store"])
def test_a_folder_of_statistics_and_answers_is_gone_on_with(tmp_path, there):
    (tmp_path / there).mkdir()
    assert cache(tmp_path).file.parent == tmp_path


def test_a_folder_that_is_not_there_is_one_to_be_made(tmp_path):
    assert cache(tmp_path / "new").file.parent == tmp_path / "new"
    assert cache(None).file is None
