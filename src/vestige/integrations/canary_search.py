"""Planted canaries among the rows that a trainer reads, found by their text.

The rows may have been shuffled, filtered, split or packed after planting, so that positions of the
manifest no longer hold. A trainer may also cut or mask them: exposure of canaries that a training
never learned is low, and would be read as "no leak".
"""

import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

from vestige.data.canaries.texts import Manifest
from vestige.errors import DataError, VestigeError
from vestige.integrations.rows import MOST, Rows
from vestige.training.batches import IGNORED

REMEDY = (
    "Train on the output of `plant`, with `max_length` above the length of a canary; pack "
    "without cutting texts (packing_strategy='bfd'); if the loss covers only completions or "
    "answers, plant in them (`role`)."
)


class CanarySearch:
    """Finds the planted canaries of a manifest, whatever their blanks and capitals.

    Attributes:
        positions: of the copies of each planted phrase, in the manifest.

    Raises:
        VestigeError: there is no tokenizer.
    """

    def __init__(self, manifest: Manifest, tokenizer: Any) -> None:
        if tokenizer is None:
            raise VestigeError(
                "the trainer has no tokenizer",
                remedy="Pass it to the trainer as `processing_class`.",
            )
        self._tokenizer = tokenizer
        self.positions = {
            self._text(tokenizer(one.phrase, add_special_tokens=False)["input_ids"]): one.positions
            for one in manifest.canaries
            if one.positions
        }

    def texts(self, rows: Rows, number: int) -> Iterator[tuple[str, str]]:
        """Text of a row without blanks, and the part of it that the loss counts."""
        for read, learned in _tokens(rows.inputs([number])):
            yield self._text(read), self._text(learned)

    def _text(self, ids: list[int]) -> str:
        return "".join(self._tokenizer.decode(ids).split()).casefold()


def require_arrival(trainer: Any, search: CanarySearch) -> None:
    """Check that the loss of a trainer counts every token of every planted canary.

    Copies are looked for at their positions in the manifest. If one is missing there, copies are
    counted in the first `MOST` rows.

    Warns:
        UserWarning: some copies are split over two rows, or missing.

    Raises:
        DataError: all copies of a canary are split, cut off, masked or missing.
    """
    rows = Rows.of(trainer, trainer.train_dataset)
    if rows is None or _in_place(search, rows):
        return
    read, learned, split = _copies(search, rows)
    missing = [phrase for phrase in search.positions if not learned[phrase]]
    masked = sum(read[phrase] > 0 for phrase in missing)
    over_two = sum(split[phrase] > 0 and not read[phrase] for phrase in missing)
    if masked or (missing and rows.all_known):
        raise DataError(
            f"{len(missing)} of {len(search.positions)} planted canaries do not reach the loss: "
            f"{masked} are masked in the labels, {len(missing) - masked} are whole in no row"
            + (f" ({over_two} split over two rows)" if over_two else ""),
            remedy=REMEDY,
        )
    copies = sum(map(len, search.positions.values()))
    whole, parts = learned.total(), 0
    for phrase, places in search.positions.items():  # two other rows can form a phrase by chance
        parts += min(split[phrase], max(0, len(places) - learned[phrase]))
    if rows.all_known and whole < copies:
        problem = (
            f"of {copies} copies of planted canaries {whole} reach the loss whole, {parts} are "
            f"split over two rows, and {copies - whole - parts} are whole nowhere"
        )
    elif parts:
        problem = (
            f"in the first {MOST:,} rows {whole} copies of planted canaries reach the loss whole, "
            f"and {parts} are split over two rows"
        )
    else:
        return
    warnings.warn(f"{problem}: the results are those of fewer copies. {REMEDY}", stacklevel=2)


def _in_place(search: CanarySearch, rows: Rows) -> bool:
    """Whether the loss counts all of each copy in the row that the manifest names."""
    return all(
        place < len(rows) and any(phrase in learned for _, learned in search.texts(rows, place))
        for phrase, places in search.positions.items()
        for place in places
    )


def _copies(search: CanarySearch, rows: Rows) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Copies in the first rows: whole in one, of these in the loss, and split over two."""
    whole, learned, split = Counter[str](), Counter[str](), Counter[str]()
    before = ""
    for number in range(min(MOST, len(rows))):
        for text, counted in search.texts(rows, number):
            for phrase in search.positions:
                whole[phrase] += text.count(phrase)
                learned[phrase] += counted.count(phrase)
                rest = len(phrase) - 1
                split[phrase] += bool(before and rest) and phrase in before[-rest:] + text[:rest]
            before = text
    return whole, learned, split


def _tokens(inputs: dict[str, Any]) -> Iterator[tuple[list[int], list[int]]]:
    """Tokens of each row without padding, and those of them that the loss counts.

    The first token of a text is never predicted, so a collator may mask it or not.
    """
    ids = inputs["input_ids"]
    labels = inputs.get("labels", ids)
    begins = ids.new_zeros(ids.shape, dtype=bool)
    begins[:, 0] = True
    if inputs.get("position_ids") is not None:  # texts that are packed side by side
        begins |= inputs["position_ids"] == 0
    mask = inputs.get("attention_mask")
    inside = begins | True if mask is None or mask.shape != ids.shape else mask.bool()
    for row, kept, counted in zip(ids, inside, (labels != IGNORED) | begins, strict=True):
        yield row[kept].tolist(), row[kept & counted].tolist()
