"""A data set with canaries."""

import pytest

from tests.integrations.worlds import DATA
from vestige.integrations.planting import plant


@pytest.fixture(scope="session")
def planted(tmp_path_factory):
    """Rows with canaries, and the folder of their manifest."""
    out = tmp_path_factory.mktemp("planted") / "canaries"
    return plant(DATA, out=out, coin_flip=16, copies=20, length=4), out
