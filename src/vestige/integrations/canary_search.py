"""Find planted canaries by their text in the rows of a trainer.

The rows may have been shuffled, filtered, split or packed after planting, so that the positions of
the manifest are no longer valid. A trainer may also truncate or mask canaries. Canaries that a
training does not learn have a low exposure, which would look like "no leak".
"""

import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

from vestige.data.canaries.texts import Manifest
from vestige.errors import DataError, VestigeError
from vestige.integrations.rows import MAX_ROWS, Rows
from vestige.training.batches import IGNORED

REMEDY = (
    "Train on the output of `plant`, with `max_length` above the length of a canary; pack "
    "without cutting texts (packing_strategy='bfd'); if the loss covers only completions or "
    "answers, plant in them (`role`)."
)


class CanarySearch:
    """Finds the planted canaries of a manifest, ignoring spaces and case.

    Attributes:
        positions: positions of the copies in the manifest, by planted phrase.

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
            self._text(
                tokenizer(canary.phrase, add_special_tokens=False)["input_ids"]
            ): canary.positions
            for canary in manifest.canaries
            if canary.positions
        }

    def texts(self, rows: Rows, index: int) -> Iterator[tuple[str, str]]:
        """Normalized texts of a row, each with the part that the loss counts."""
        for tokens, learned in _row_tokens(rows.inputs([index])):
            yield self._text(tokens), self._text(learned)

    def _text(self, ids: list[int]) -> str:
        return "".join(self._tokenizer.decode(ids).split()).casefold()


def require_arrival(trainer: Any, search: CanarySearch) -> None:
    """Check that the loss of a trainer counts all tokens of all planted canaries.

    The check reads the positions of the manifest. If a copy is missing there, it counts the copies
    in the first `MAX_ROWS` rows.

    Warns:
        UserWarning: some copies are split over two rows or missing.

    Raises:
        DataError: all copies of a canary are split, cut off, masked or missing.
    """
    rows = Rows.of(trainer, trainer.train_dataset)
    if rows is None or _are_at_positions(search, rows):
        return
    whole_copies, learned_copies, split_copies = _count_copies(search, rows)
    missing = [phrase for phrase in search.positions if not learned_copies[phrase]]
    masked = sum(whole_copies[phrase] > 0 for phrase in missing)
    split = sum(split_copies[phrase] > 0 and not whole_copies[phrase] for phrase in missing)
    if masked or (missing and rows.all_known):
        raise DataError(
            f"{len(missing)} of {len(search.positions)} planted canaries do not reach the loss: "
            f"{masked} are masked in the labels, {len(missing) - masked} are whole in no row"
            + (f" ({split} split over two rows)" if split else ""),
            remedy=REMEDY,
        )
    planted = sum(map(len, search.positions.values()))
    arrived, parts = learned_copies.total(), 0
    for phrase, positions in search.positions.items():  # two unrelated rows can form a phrase
        parts += min(split_copies[phrase], max(0, len(positions) - learned_copies[phrase]))
    if rows.all_known and arrived < planted:
        problem = (
            f"of {planted} copies of planted canaries {arrived} reach the loss whole, {parts} are "
            f"split over two rows, and {planted - arrived - parts} are whole nowhere"
        )
    elif parts:
        problem = (
            f"in the first {MAX_ROWS:,} rows {arrived} copies of planted canaries reach the loss "
            f"whole, and {parts} are split over two rows"
        )
    else:
        return
    warnings.warn(f"{problem}: the results are those of fewer copies. {REMEDY}", stacklevel=2)


def _are_at_positions(search: CanarySearch, rows: Rows) -> bool:
    """Whether the loss counts each copy at its position in the manifest."""
    return all(
        position < len(rows)
        and any(phrase in learned for _, learned in search.texts(rows, position))
        for phrase, positions in search.positions.items()
        for position in positions
    )


def _count_copies(
    search: CanarySearch, rows: Rows
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Copies in the first rows by phrase: complete in a row, counted by the loss, and split."""
    whole, learned, split = Counter[str](), Counter[str](), Counter[str]()
    previous = ""
    for index in range(min(MAX_ROWS, len(rows))):
        for text, learned_text in search.texts(rows, index):
            for phrase in search.positions:
                whole[phrase] += text.count(phrase)
                learned[phrase] += learned_text.count(phrase)
                overlap = len(phrase) - 1
                if previous and overlap:
                    split[phrase] += phrase in previous[-overlap:] + text[:overlap]
            previous = text
    return whole, learned, split


def _row_tokens(inputs: dict[str, Any]) -> Iterator[tuple[list[int], list[int]]]:
    """Tokens of each row without padding, and the tokens that the loss counts.

    The first token of a text counts even if it is masked, because it is never predicted.
    """
    ids = inputs["input_ids"]
    labels = inputs.get("labels", ids)
    is_first = ids.new_zeros(ids.shape, dtype=bool)
    is_first[:, 0] = True
    if inputs.get("position_ids") is not None:  # packed texts
        is_first |= inputs["position_ids"] == 0
    mask = inputs.get("attention_mask")
    is_text = is_first | True if mask is None or mask.shape != ids.shape else mask.bool()
    is_learned = (labels != IGNORED) | is_first
    for row, text, learned in zip(ids, is_text, is_learned, strict=True):
        yield row[text].tolist(), row[text & learned].tolist()
