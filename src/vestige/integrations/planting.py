"""Canaries planted in a `datasets.Dataset`."""

from os import PathLike
from typing import TYPE_CHECKING, Any

from vestige.errors import DataError

if TYPE_CHECKING:
    from datasets import Dataset


def plant(
    data: "Dataset", *, out: str | PathLike[str], column: str = "text", **settings: Any
) -> "Dataset":
    """A copy of a data set with canaries among its rows.

    Other columns of a row with a canary are None. Rows stay in their order.

    Args:
        data: texts, a row each.
        out: directory to make, with the manifest and the texts, as `vestige plant` makes it.
        column: of the texts.
        settings: of `vestige.plant`, such as `copies`, `controls`, `coin_flip` and `seed`.

    Raises:
        DataError: the data set has no such column of texts.
        RunError: there is something at `out`.
    """
    from datasets import Dataset, concatenate_datasets

    import vestige
    from vestige.data.corpus import Corpus
    from vestige.data.manifest import Manifest

    if column not in data.column_names:
        raise DataError(
            f"the data set has no column {column}; it has {', '.join(data.column_names)}",
            remedy="Name the one with the texts (`column`).",
        )
    planting = vestige.plant(Corpus.from_texts(data[column]), out=out, **settings)
    manifest = planting.manifest
    assert isinstance(manifest, Manifest)  # of running text
    texts, canaries = list(planting.corpus), set(manifest.places)
    rows = Dataset.from_dict(
        {
            name: [texts[place] for place in sorted(canaries)] if name == column
            else [None] * len(canaries)
            for name in data.column_names
        },
        features=data.features,
    )  # fmt: skip
    old, new = iter(range(len(data))), iter(range(len(data), len(data) + len(canaries)))
    order = [next(new if place in canaries else old) for place in range(len(texts))]
    return concatenate_datasets([data, rows]).select(order)
