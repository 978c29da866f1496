"""The peak against memory whose size is known."""

import mmap
from dataclasses import replace

import pytest
import torch

from vestige import memory as peak_memory
from vestige.memory import PeakMemory
from vestige.training.config import TrainingConfig
from vestige.training.loop import train

CPU = torch.device("cpu")
CONFIG = TrainingConfig(seed=3, epochs=1, batch_size=4, sequence_length=5, checkpoint_every=4)


def pages(mib):
    """Memory that is new to the process: what a library frees, the C library may keep."""
    held = mmap.mmap(-1, mib << 20)
    for start in range(0, len(held), mmap.PAGESIZE):
        held[start] = 1
    return held


@pytest.fixture
def _told():
    if PeakMemory(CPU).mib() is None:
        pytest.skip("this system does not tell how large a process was")


@pytest.mark.usefixtures("_told")
def test_what_came_and_went_is_counted_and_what_was_there_before_is_not():
    before = pages(64)
    memory = PeakMemory(CPU)
    passing = pages(96)
    assert memory.mib() == pytest.approx(96, abs=8)
    passing.close()
    assert memory.mib() == pytest.approx(96, abs=8)
    anew = PeakMemory(CPU)
    assert anew.mib() < 8
    before.close()


def test_where_nobody_tells_it_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(peak_memory, "_PROCESS", tmp_path / "absent")
    assert PeakMemory(CPU).mib() is None
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "status").write_text("Name:\tpython\n")
    assert PeakMemory(CPU).mib() is None


@pytest.mark.usefixtures("_told")
def test_a_training_says_what_it_took_unless_it_was_resumed(make_model, make_text, tmp_path):
    history = train(make_model(), make_text(), config=CONFIG, directory=tmp_path)
    assert history.peak_memory_mib >= 0
    resumed = train(make_model(), make_text(), config=CONFIG, directory=tmp_path, resume=True)
    assert resumed.peak_memory_mib is None


@pytest.mark.usefixtures("_told")
def test_a_step_that_takes_memory_shows(make_model, make_text):
    from vestige.training.steps import plain_step

    plain = plain_step()

    def wasteful(model, batch, state):
        pages(48).close()
        return plain(model, batch, state)

    history = train(
        make_model(), make_text(), config=replace(CONFIG, max_grad_norm=None), step=wasteful
    )
    assert 40 < history.peak_memory_mib < 80
