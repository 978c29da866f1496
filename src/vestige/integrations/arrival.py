"""Whether planted canaries reach the loss: a trainer may cut, mask, or never see them.

Exposure of canaries that a training never learnt is low, and would be read as "no leak".
"""

from collections.abc import Iterable, Iterator
from typing import Any

from vestige.data.manifest import Manifest
from vestige.errors import DataError
from vestige.integrations.row_losses import Rows
from vestige.training.batches import IGNORED

MOST = 5_000
"""Rows that are looked through for canaries which do not stand in their own."""


def require_arrival(trainer: Any, sealed: Manifest, tokenizer: Any) -> None:
    """Check that every planted canary stands whole among the tokens that the loss counts.

    A canary is looked for in the row of its first copy, and then in the first rows of all: a
    trainer may have shuffled or packed them. A stream is not looked at.

    Args:
        trainer: of Transformers, with the training set as it reads it.
        sealed: the manifest.
        tokenizer: of the model.

    Raises:
        DataError: some are cut off, masked, or not there; what to do.
    """
    data = trainer.train_dataset
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        return
    rows = Rows.of(trainer, data)
    own = {
        _plain(tokenizer, canary.phrase): places[0]
        for canary, places in zip(sealed.canaries, sealed.positions, strict=True)
        if places
    }
    where = [place for place in own.values() if place < len(rows)]
    read, counted = _found(own, rows, where, tokenizer)
    if len(counted) < len(own):
        more = _found(own, rows, range(min(MOST, len(rows))), tokenizer)
        read, counted = read | more[0], counted | more[1]
    missing = own.keys() - counted
    if not missing or (len(rows) > MOST and not missing & read):
        return
    masked = len(missing & read)
    raise DataError(
        f"{len(missing)} of {len(own)} planted canaries do not reach the loss: {masked} are read "
        f"and masked in the labels, {len(missing) - masked} stand whole in no row",
        remedy="Train on what `plant` returned, with a maximal length (`max_length`) above that of "
        "a canary; where a loss counts completions or answers only, plant in them (`role`).",
    )


def _found(
    phrases: Iterable[str], rows: Rows, numbers: Iterable[int], tokenizer: Any
) -> tuple[set[str], set[str]]:
    """(phrases that are read whole, phrases whose every token the loss counts) in some rows."""
    phrases = list(phrases)
    read, counted = set[str](), set[str]()
    for number in numbers:
        for ids, labels in _rows(rows.inputs([number])):
            inside = _joined(tokenizer, ids)
            learnt = _joined(tokenizer, [token for token in labels if token != IGNORED])
            read |= {phrase for phrase in phrases if phrase in inside}
            counted |= {phrase for phrase in phrases if phrase in learnt}
        if len(counted) == len(phrases):
            break
    return read, counted


def _rows(inputs: dict[str, Any]) -> Iterator[tuple[list[int], list[int]]]:
    labels = inputs.get("labels", inputs["input_ids"])
    return zip(inputs["input_ids"].tolist(), labels.tolist(), strict=True)


def _plain(tokenizer: Any, phrase: str) -> str:
    """A phrase as a tokenizer gives it back, without blanks and capitals."""
    return _joined(tokenizer, tokenizer(phrase, add_special_tokens=False)["input_ids"])


def _joined(tokenizer: Any, ids: list[int]) -> str:
    return "".join(tokenizer.decode(ids).split()).casefold()
