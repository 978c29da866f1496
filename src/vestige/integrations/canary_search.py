"""Planted canaries in the rows that a trainer reads, found by what they say.

A user may shuffle, filter, split or pack what was planted, so that no place of a manifest holds.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from vestige.data.manifest import Manifest
from vestige.errors import VestigeError
from vestige.integrations.row_losses import Rows
from vestige.training.batches import IGNORED


@dataclass(frozen=True)
class Copies:
    """Copies of phrases among some rows, by phrase.

    Attributes:
        read: that stand whole in a row.
        learnt: of these, those whose every token the loss counts.
        split: that begin in a row and end in the next one.
    """

    read: Counter[str] = field(default_factory=Counter)
    learnt: Counter[str] = field(default_factory=Counter)
    split: Counter[str] = field(default_factory=Counter)


class CanarySearch:
    """Looks for the planted canaries of a manifest, without regard to blanks and capitals.

    Args:
        sealed: the manifest.
        tokenizer: of the model.

    Attributes:
        places: of the copies of each phrase that was planted, by the manifest.

    Raises:
        VestigeError: there is no tokenizer.
    """

    def __init__(self, sealed: Manifest, tokenizer: Any) -> None:
        require_tokenizer(tokenizer)
        self._tokenizer = tokenizer
        self.places = {
            self._said(tokenizer(one.phrase, add_special_tokens=False)["input_ids"]): one.positions
            for one in sealed.canaries
            if one.planted
        }

    def learnt_at_their_places(self, rows: Rows) -> bool:
        """Whether each copy stands in its row, and the loss counts all of it."""
        return all(
            place < len(rows)
            and any(phrase in self._said(learnt) for _, learnt in _tokens(rows.inputs([place])))
            for phrase, places in self.places.items()
            for place in places
        )

    def copies(self, rows: Rows, numbers: Iterable[int]) -> Copies:
        """Copies in rows, of which those with consecutive numbers may share one."""
        found, before, last = Copies(), "", -2
        for number in numbers:
            before = before if number == last + 1 else ""
            for read, learnt in _tokens(rows.inputs([number])):
                inside, counted = self._said(read), self._said(learnt)
                for phrase in self.places:
                    found.read[phrase] += inside.count(phrase)
                    found.learnt[phrase] += counted.count(phrase)
                    rest = len(phrase) - 1
                    over = before[-rest:] + inside[:rest] if before and rest else ""
                    found.split[phrase] += phrase in over
                before = inside
            last = number
        return found

    def anywhere(self, rows: Rows, number: int) -> bool:
        """Whether a row holds a canary, or a part at one of its ends that is as good as half."""
        said = [self._said(read) for read, _ in _tokens(rows.inputs([number]))]
        return any(_holds(inside, phrase) for inside in said for phrase in self.places)

    def _said(self, ids: list[int]) -> str:
        return "".join(self._tokenizer.decode(ids).split()).casefold()


def require_tokenizer(tokenizer: Any) -> None:
    """Check that a trainer has one.

    Raises:
        VestigeError: it has none.
    """
    if tokenizer is None:
        raise VestigeError(
            "the trainer has no tokenizer",
            remedy="Pass it to the trainer as `processing_class`.",
        )


def _holds(inside: str, phrase: str) -> bool:
    half = -(-len(phrase) // 2)
    return (
        phrase in inside
        or any(inside.endswith(phrase[:size]) for size in range(half, len(phrase)))
        or any(inside.startswith(phrase[-size:]) for size in range(half, len(phrase)))
    )


def _tokens(inputs: dict[str, Any]) -> Iterator[tuple[list[int], list[int]]]:
    """(tokens that are read, those of them that the loss counts) of each row, without padding.

    Nothing foretells the first token of a text, so that a collator may mask it or not.
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
