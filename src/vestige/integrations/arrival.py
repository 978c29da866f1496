"""Whether planted canaries reach the loss: a trainer may cut, split, mask, or never see them.

Exposure of canaries that a training never learnt is low, and would be read as "no leak".
"""

import warnings
from typing import Any

from vestige.data.manifest import Manifest
from vestige.errors import DataError
from vestige.integrations.canary_search import CanarySearch, Copies
from vestige.integrations.row_losses import MOST, Rows

REMEDY = (
    "Train on the output of `plant`, with `max_length` above the length of a canary; pack "
    "without cutting texts (packing_strategy='bfd'); if the loss covers only completions or "
    "answers, plant in them (`role`)."
)


def require_arrival(trainer: Any, sealed: Manifest, tokenizer: Any) -> None:
    """Check that every planted canary stands whole among the tokens that the loss counts.

    Copies are looked for at the manifest's places. Where one is not there, the rows were shuffled,
    filtered or packed: copies are then counted in the first `MOST` rows.

    Args:
        trainer: of Transformers, with the training set as it reads it.
        sealed: the manifest.
        tokenizer: of the model.

    Warns:
        UserWarning: copies are split over two rows, or missing.

    Raises:
        DataError: some canaries are split in all copies, cut off, masked, or not there.
    """
    rows = Rows.read_by(trainer, trainer.train_dataset)
    if rows is None:
        return
    search = CanarySearch(sealed, tokenizer)
    if search.learnt_at_their_places(rows):
        return
    found = search.copies(rows, range(min(MOST, len(rows))))
    missing = {phrase for phrase in search.places if not found.learnt[phrase]}
    masked = {phrase for phrase in missing if found.read[phrase]}
    split = {phrase for phrase in missing - masked if found.split[phrase]}
    if masked or (missing and rows.all_known):
        raise DataError(
            f"{len(missing)} of {len(search.places)} planted canaries do not reach the loss: "
            f"{len(masked)} are masked in the labels, {len(missing - masked)} are whole in no row"
            + (f" ({len(split)} split over two rows)" if split else ""),
            remedy=REMEDY,
        )
    _warn(search, found, rows)


def _warn(search: CanarySearch, found: Copies, rows: Rows) -> None:
    copies = sum(map(len, search.places.values()))
    whole, split = found.learnt.total(), 0
    for phrase, places in search.places.items():  # neighbours may say a phrase by chance
        split += min(found.split[phrase], max(0, len(places) - found.learnt[phrase]))
    if rows.all_known and whole < copies:
        told = (
            f"of {copies} copies of planted canaries {whole} reach the loss whole, {split} are "
            f"split over two rows, and {copies - whole - split} are whole nowhere"
        )
    elif split:
        told = (
            f"in the first {MOST:,} rows {whole} copies of planted canaries reach the loss whole, "
            f"and {split} are split over two rows"
        )
    else:
        return
    warnings.warn(f"{told}: the results are those of fewer copies. {REMEDY}", stacklevel=3)
