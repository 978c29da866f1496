"""Planted canaries among the rows that a trainer reads, found by their text.

The rows may have been shuffled, filtered, split or packed after planting, so that positions of the
manifest no longer hold. A trainer may also cut or mask them: exposure of canaries that a training
never learned is low, and would be read as "no leak".
"""

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from vestige.data.canaries.texts import Manifest
from vestige.errors import DataError, VestigeError
from vestige.integrations.rows import MOST, Rows
from vestige.training.batches import IGNORED

REMEDY = (
    "Train on the output of `plant`, with `max_length` above the length of a canary; pack "
    "without cutting texts (packing_strategy='bfd'); if the loss covers only completions or "
    "answers, plant in them (`role`)."
)


def require_arrival(trainer: Any, search: "CanarySearch") -> None:
    """Check that the loss of a trainer counts every token of every planted canary.

    Copies are looked for at their positions in the manifest. If one is missing there, copies are
    counted in the first `MOST` rows.

    Warns:
        UserWarning: some copies are split over two rows, or missing.

    Raises:
        DataError: all copies of a canary are split, cut off, masked or missing.
    """
    rows = Rows.of(trainer, trainer.train_dataset)
    if rows is None:
        return
    if search.learned_in_place(rows):
        return
    found = search.copies(rows, range(min(MOST, len(rows))))
    missing = {phrase for phrase in search.positions if not found.learned[phrase]}
    masked = {phrase for phrase in missing if found.read[phrase]}
    split = {phrase for phrase in missing - masked if found.split[phrase]}
    if masked or (missing and rows.all_known):
        raise DataError(
            f"{len(missing)} of {len(search.positions)} planted canaries do not reach the loss: "
            f"{len(masked)} are masked in the labels, {len(missing - masked)} are whole in no row"
            + (f" ({len(split)} split over two rows)" if split else ""),
            remedy=REMEDY,
        )
    copies = sum(map(len, search.positions.values()))
    whole, parts = found.learned.total(), 0
    for phrase, places in search.positions.items():  # two other rows can form a phrase by chance
        parts += min(found.split[phrase], max(0, len(places) - found.learned[phrase]))
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


class Copies(NamedTuple):
    """Copies by phrase: whole in a row, of these in the loss, and split over two rows."""

    read: Counter[str]
    learned: Counter[str]
    split: Counter[str]


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

    def learned_in_place(self, rows: Rows) -> bool:
        """Whether the loss counts all of each copy in the row that the manifest names."""
        return all(
            place < len(rows)
            and any(phrase in self._text(learned) for _, learned in _tokens(rows.inputs([place])))
            for phrase, places in self.positions.items()
            for place in places
        )

    def copies(self, rows: Rows, numbers: Iterable[int]) -> Copies:
        """Copies in consecutive rows."""
        found, before = Copies(Counter(), Counter(), Counter()), ""
        for number in numbers:
            for read, learned in _tokens(rows.inputs([number])):
                text, counted = self._text(read), self._text(learned)
                for phrase in self.positions:
                    found.read[phrase] += text.count(phrase)
                    found.learned[phrase] += counted.count(phrase)
                    rest = len(phrase) - 1
                    over = before[-rest:] + text[:rest] if before and rest else ""
                    found.split[phrase] += phrase in over
                before = text
        return found

    def anywhere(self, rows: Rows, number: int) -> bool:
        """Whether a row has a canary, or at one of its ends half of one or more."""
        texts = [self._text(read) for read, _ in _tokens(rows.inputs([number]))]
        return any(_holds(text, phrase) for text in texts for phrase in self.positions)

    def _text(self, ids: list[int]) -> str:
        return "".join(self._tokenizer.decode(ids).split()).casefold()


def _holds(text: str, phrase: str) -> bool:
    sizes = range(-(-len(phrase) // 2), len(phrase))
    return phrase in text or any(
        text.endswith(phrase[:size]) or text.startswith(phrase[-size:]) for size in sizes
    )


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
