"""An audit's directory belongs to one audit, and stays only if something in it cost time."""

import json

import pytest

from vestige.errors import RunError
from vestige.store import Store
from vestige.workflows.audit_directory import (
    ANSWERS,
    IDENTITY,
    RUN,
    SHADOWS,
    STATISTICS,
    check_out,
    claimed,
    finished_audit,
)

AUDIT = {"format": 2, "texts": "a", "reference": "b"}


def interrupted(out, *, leaving=None):
    """An audit that is interrupted after it has written a file."""
    with claimed(out, AUDIT):
        if leaving is not None:
            path, content = leaving
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, dict):
                with Store(out / path, shared=True) as store:
                    store.update(content)
            else:
                (out / path).write_text(content)
        raise KeyboardInterrupt


def test_a_directory_that_is_missing_or_empty_is_free(tmp_path):
    check_out(tmp_path / "new")
    check_out(tmp_path)


def test_a_file_and_anothers_directory_are_refused_and_left_alone(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match="file is a file"):
        check_out(tmp_path / "file")
    with pytest.raises(RunError, match="holds something, but no audit"):
        check_out(tmp_path)
    assert (tmp_path / "file").read_text() == "mine"


def test_an_audit_writes_what_decides_it_before_it_works(tmp_path):
    with claimed(tmp_path / "out", AUDIT):
        assert json.loads((tmp_path / "out" / IDENTITY).read_text()) == AUDIT


def test_a_directory_in_which_nothing_was_kept_is_gone_again(tmp_path):
    with pytest.raises(KeyboardInterrupt) as caught:
        interrupted(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    assert not getattr(caught.value, "__notes__", [])


@pytest.mark.parametrize(
    "leaving",
    [
        (f"{SHADOWS}/one/model.json", "{}"),
        (f"{RUN}/summary.json", "{}"),
        (ANSWERS, {'answer/[null, "a"]': ["b"]}),
        (ANSWERS, {"statistics": {}}),
        (ANSWERS, {"spent": {}, "about/model": "small", "new/{}": "[]"}),
        (f"{STATISTICS}/0123456789abcdef.sqlite", {"a": 1}),
    ],
)
def test_what_cost_time_or_queries_is_kept_and_it_is_told(tmp_path, leaving):
    with pytest.raises(KeyboardInterrupt) as caught:
        interrupted(tmp_path / "out", leaving=leaving)
    assert (tmp_path / "out" / leaving[0]).is_file()
    assert caught.value.__notes__ == ["The same command goes on: nothing is trained or asked twice"]
    with claimed(tmp_path / "out", AUDIT):
        pass


@pytest.mark.parametrize(
    "leaving",
    [
        ("ranks/one.npz", "x"),
        (ANSWERS, {"sent": [3, 1]}),
        (ANSWERS, {"spent": {}, "about/model": "small"}),
        (f"{STATISTICS}/0123456789abcdef.sqlite", {}),
    ],
)
def test_what_cost_nothing_is_not_kept(tmp_path, leaving):
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "out", leaving=leaving)
    assert not (tmp_path / "out").exists()


def test_another_audit_is_told_what_differs(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "out", leaving=(f"{SHADOWS}/one/x", ""))
    other = {**AUDIT, "texts": "c", "reference": "d"}
    with (
        pytest.raises(RunError, match="holds another audit: texts, reference differs"),
        claimed(tmp_path / "out", other),
    ):
        pytest.fail("it began")
    assert json.loads((tmp_path / "out" / IDENTITY).read_text()) == AUDIT


def test_a_directory_without_a_run_holds_no_finished_audit(tmp_path):
    with pytest.raises(RunError):
        finished_audit(tmp_path)
