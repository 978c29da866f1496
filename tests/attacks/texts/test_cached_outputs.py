"""Outputs are cached in a folder of their own."""

import pytest

from vestige.attacks.texts.cached_outputs import cached_outputs
from vestige.errors import RunError
from vestige.monitor import SILENT
from vestige.store import KEPT, Store


def test_a_missing_folder_is_made_and_none_is_temporary(tmp_path):
    with cached_outputs(tmp_path / "new", SILENT) as outputs:
        assert outputs.folder == tmp_path / "new"
    with cached_outputs(None, SILENT) as outputs:
        temporary = outputs.folder
        assert temporary.is_dir()
    assert not temporary.exists()


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "data").mkdir()
    with pytest.raises(RunError, match="holds data"), cached_outputs(tmp_path, SILENT):
        pass


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
