"""The directory of a training: whose it is, and what is left of it after a failure."""

import pytest

from vestige.errors import RunError
from vestige.training.directory import (
    CHECKPOINT,
    DATA,
    IDENTITY,
    LEDGER,
    RECORDS,
    check_repeats,
    claimed,
)

GOES_ON = "The same command with --resume continues from the last checkpoint"


def failed(out, error, *, write=()):
    """The error of a training that writes some files and then fails."""

    def train():
        with claimed(out, resume=False):
            for name in write:
                (out / name).parent.mkdir(parents=True, exist_ok=True)
                (out / name).write_text("{}")
            raise error

    with pytest.raises(type(error)) as caught:
        train()
    return getattr(caught.value, "__notes__", [])


def test_a_failed_start_leaves_no_directory_and_none_above_it(tmp_path):
    out = tmp_path / "new" / "deep"
    assert failed(out, OSError("full"), write=[IDENTITY, f"{DATA}/training"]) == []
    assert list(tmp_path.iterdir()) == []


def test_an_empty_directory_that_was_there_is_emptied_and_stays(tmp_path):
    failed(tmp_path, ValueError("no"), write=[LEDGER])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "notes"),
    [(OSError("full"), [GOES_ON]), (KeyboardInterrupt(), [GOES_ON]), (ValueError("no"), [])],
)
def test_a_checkpoint_is_kept_and_the_way_on_is_told(tmp_path, error, notes):
    out = tmp_path / "out"
    assert failed(out, error, write=[CHECKPOINT, IDENTITY]) == notes
    assert {one.name for one in out.iterdir()} == {CHECKPOINT, IDENTITY}


def test_only_one_holds_the_directory_until_the_end(tmp_path):
    out = tmp_path / "out"
    with claimed(out, resume=False):
        assert out.is_dir()
        (out / IDENTITY).write_text("{}")
    assert {one.name for one in out.iterdir()} == {IDENTITY}


def test_a_directory_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(RunError, match="out is a file"), claimed(tmp_path / "out", resume=False):
        pass
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize("name", [DATA, LEDGER, RECORDS])
def test_what_comes_before_the_identity_is_gone_on_from(tmp_path, name):
    (tmp_path / name).mkdir()
    with claimed(tmp_path, resume=True):
        pass
    with pytest.raises(RunError, match="never overwritten"), claimed(tmp_path, resume=False):
        pass


def test_leftovers_of_a_killed_process_are_no_training(tmp_path):
    (tmp_path / ".lock").write_text("")
    with claimed(tmp_path, resume=False):
        pass


@pytest.mark.parametrize("resume", [False, True])
def test_several_trainings_may_go_where_nothing_is(tmp_path, resume):
    check_repeats(tmp_path / "missing", resume)
    check_repeats(tmp_path, resume)


def test_a_directory_is_claimed_and_given_back(tmp_path):
    out = tmp_path / "new"
    with pytest.raises(ValueError, match="no"), claimed(out, resume=False):
        raise ValueError("no")
    assert not out.exists()
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    for resume, message in ((False, "never overwritten"), (True, "no training to resume")):
        with pytest.raises(RunError, match=message), claimed(out, resume=resume):
            pass
    (out / IDENTITY).write_text("{}")
    with claimed(out, resume=True):
        assert (out / "mine.txt").exists()


def test_several_trainings_need_a_directory_of_their_own(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / IDENTITY).write_text("{}")
    with pytest.raises(RunError, match="never overwritten"):
        check_repeats(tmp_path / "one", resume=False)
    with pytest.raises(RunError, match="holds one training"):
        check_repeats(tmp_path / "one", resume=True)
