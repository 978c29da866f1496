"""A monitor that records its messages, and one finished training of text and one of pairs."""

import pytest

from tests.cli.conftest import shell, tiny_encoder
from tests.monitors import RecordingMonitor
from tests.preparation.trainings import trained

__all__ = ["shell", "tiny_encoder"]


@pytest.fixture
def monitor():
    return RecordingMonitor()


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    """A training on text."""
    return trained(tmp_path_factory.mktemp("plain") / "out")


@pytest.fixture(scope="session")
def pairs(tmp_path_factory):
    """A training on questions with their answers."""
    return trained(tmp_path_factory.mktemp("pairs") / "out", task="dialogue")
