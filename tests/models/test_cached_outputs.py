"""Outputs are cached in a folder of their own."""

import pytest

from vestige.errors import RunError
from vestige.models.token_statistics import cached_outputs
from vestige.monitor import SILENT
from vestige.store import KEPT, Store


def test_a_missing_folder_is_made_and_none_is_temporary(tmp_path):
    with cached_outputs(tmp_path / "new", SILENT) as outputs:
        assert outputs.folder == tmp_path / "new"
    with cached_outputs(None, SILENT) as outputs:
        temporary = outputs.folder
        assert temporary.is_dir()
    assert not temporary.exists()


@pytest.mark.parametrize("there", ["dataset_info.json", "0123456789abcdeg", "data"])
def test_a_folder_of_something_else_is_refused_and_left_as_it_is(tmp_path, there):
    (tmp_path / there).mkdir()
    message = f"{tmp_path} holds {there}"
    with pytest.raises(RunError, match=message) as refused, cached_outputs(tmp_path, SILENT):
        pass
    assert "`statistics`" in refused.value.remedy
    assert [path.name for path in tmp_path.iterdir()] == [there]


@pytest.mark.parametrize("there", ["0123456789abcdef", "0123456789abcdef.sqlite-wal", ".DS_Store"])
def test_a_folder_of_statistics_and_answers_is_used_again(tmp_path, there):
    (tmp_path / there).mkdir()
    with cached_outputs(tmp_path, SILENT) as outputs:
        assert outputs.folder == tmp_path


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("cached", [False, True])
def test_an_interruption_says_what_is_cached(tmp_path, error, cached):
    def interrupted():
        with (
            cached_outputs(tmp_path, SILENT) as outputs,
            Store(outputs.folder / "0.sqlite", shared=True) as store,
        ):
            store.update({"text": 1} if cached else {})
            raise error

    with pytest.raises(error) as raised:
        interrupted()
    assert getattr(raised.value, "__notes__", []) == ([KEPT] if cached else [])
