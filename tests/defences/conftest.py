"""The tiny documents and models of the private trainings' tests."""

from tests.privacy.conftest import (
    _one_thread,
    plain_but_private,
    table,
    tiny_batch,
    tiny_data,
    tiny_model,
)

__all__ = ["_one_thread", "plain_but_private", "table", "tiny_batch", "tiny_data", "tiny_model"]
