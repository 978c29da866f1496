"""The small documents and models of the tests of private trainings."""

from tests.privacy.conftest import _one_thread, table, tiny_batch, tiny_data, tiny_model

__all__ = ["_one_thread", "table", "tiny_batch", "tiny_data", "tiny_model"]
