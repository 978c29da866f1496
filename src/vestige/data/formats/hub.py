"""Data sets of the Hugging Face hub, and those that `datasets` saved to disk."""

import re
from pathlib import Path
from typing import Any

from vestige.data.corpus import Corpus
from vestige.data.formats.reading import ReadOptions
from vestige.data.formats.tables import check_columns, corpus_of, named_columns
from vestige.errors import DataError

_HUB_NAME = re.compile(r"(?P<name>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<config>[^:]+))?(?::(?P<split>.+))?")


def read_hub(name: str, options: ReadOptions) -> Corpus:
    """A data set of the Hugging Face hub, or one that `datasets` saved to disk.

    Args:
        name: "owner/name", with "@configuration" and ":split" where wanted (":train" if not),
            or the folder of a saved data set.
        options: columns, and the number of rows to fetch.

    Raises:
        DataError: it cannot be fetched, or lacks the columns.
    """
    wanted = named_columns(
        text=options.text_column, user=options.user_column, source=options.source_column
    )
    data = _fetched(name, options.limit)
    check_columns(list(wanted.values()), data.column_names, name)
    table = data.select_columns(list(wanted.values())).with_format("arrow")[:]
    return corpus_of(table, wanted, name)


def _fetched(name: str, limit: int | None) -> Any:
    # It takes seconds to import, and only data sets need it.
    import datasets

    match = _HUB_NAME.fullmatch(name)
    try:
        if Path(name).is_dir():
            data = datasets.load_from_disk(name)
            data = data["train"] if isinstance(data, datasets.DatasetDict) else data
            return data if limit is None else data.select(range(min(limit, len(data))))
        if match is None:
            raise ValueError('the name is not of the form "owner/name@configuration:split"')
        split = match["split"] or "train"
        part = split if limit is None else f"{split}[:{limit}]"
        return datasets.load_dataset(match["name"], match["config"], split=part)
    except Exception as error:  # anything from the network, the hub or the files
        raise DataError(
            f"{name} is no file here, and no data set that can be fetched: "
            f"{str(error).splitlines()[0] if str(error) else error!r}",
            remedy="Check the path, the name of the data set, its split and the network.",
        ) from error
