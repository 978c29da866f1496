"""Lists of texts that are compared: read alike, none of their texts in two of them."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from vestige.workflows.options import CorpusLike

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus


def read_lists(given: Mapping[str, CorpusLike], **columns: object) -> "dict[str, Corpus]":
    """The corpora by name.

    Args:
        given: each by the name of its parameter.
        columns: how they are read, as `open_corpus` takes it.

    Raises:
        DataError: one holds no text, or a text stands in two of them.
    """
    from vestige.errors import DataError
    from vestige.workflows.inputs import open_corpus

    lists = {name: open_corpus(data, **columns) for name, data in given.items()}
    for name, corpus in lists.items():
        if not len(corpus):
            raise DataError(f"`{name}` holds no text", remedy="Give a file with a text a row.")
    for name, other in combinations(lists, 2):
        if both := set(lists[name]) & set(lists[other]):
            raise DataError(
                f"{len(both)} texts stand in both `{name}` and `{other}`",
                remedy=f"Leave them out of one: `{other}` must be other texts.",
            )
    return lists


def require_tokens(name: str, rows: Sequence[Sequence[int]]) -> None:
    """Refuse texts of which nothing is left.

    Raises:
        DataError: a text has no token.
    """
    from vestige.errors import DataError

    if empty := [place for place, ids in enumerate(rows, start=1) if not ids]:
        raise DataError(
            f"text {empty[0]} of `{name}` has no token of the model's vocabulary",
            remedy="Leave it out.",
        )
