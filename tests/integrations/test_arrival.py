"""Canaries are found in the rows of a training after shuffling, cutting or packing."""

import warnings
from unittest.mock import patch

import pytest
import torch
from datasets import Dataset
from transformers import (
    DataCollatorForLanguageModeling,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

from tests.integrations import worlds
from tests.integrations.worlds import DATA, tokenizer
from vestige.data.canaries.texts import Manifest
from vestige.errors import DataError, VestigeError
from vestige.integrations import canary_search, rows
from vestige.integrations.canary_search import CanarySearch, require_arrival
from vestige.integrations.planting import plant

TOKENIZER = tokenizer()
PHRASES = ["Zoe Quentin Xaver Yvonne", "Umberto Viktor Wanda Zeno"]


class Packed:
    """Collates texts into one row, the first token of each masked, as TRL packs them."""

    def __call__(self, rows):
        ids = [torch.tensor(row["input_ids"]) for row in rows]
        positions = torch.cat([torch.arange(len(row)) for row in ids])[None]
        joined = torch.cat(ids)[None]
        labels = joined.masked_fill(positions == 0, -100)
        return {"input_ids": joined, "labels": labels, "position_ids": positions}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    out = tmp_path_factory.mktemp("planted") / "canaries"
    return plant(DATA, out=out, phrase=PHRASES, copies=6), Manifest.load(out / "manifest.json")


@pytest.fixture
def check(planted, tmp_path):
    """Checks that the canaries reach the loss of a trainer on some rows."""

    def check(data, collator=None):
        sizes = {"n_positions": 512, "n_embd": 8, "n_layer": 1, "n_head": 1}
        ends = {"bos_token_id": 0, "eos_token_id": 0}
        trainer = Trainer(
            GPT2LMHeadModel(GPT2Config(vocab_size=300, **sizes, **ends)),
            TrainingArguments(tmp_path, max_steps=1, report_to=[], use_cpu=True),
            train_dataset=data,
            processing_class=TOKENIZER,
            data_collator=collator or DataCollatorForLanguageModeling(TOKENIZER, mlm=False),
        )
        require_arrival(trainer, CanarySearch(planted[1], TOKENIZER))

    return check


def encoded(data):
    return worlds.encoded(TOKENIZER, data["text"])


def blocks(data, size):
    """All texts one after the other, cut into blocks of `size` tokens."""
    ids = [token for row in encoded(data) for token in row["input_ids"]]
    return Dataset.from_dict({"input_ids": [ids[i : i + size] for i in range(0, len(ids), size)]})


def naive_counts(data, size):
    """(copies that are complete in a block, copies that are split)."""
    texts = [TOKENIZER.decode(row) for row in blocks(data, size)["input_ids"]]
    complete = sum(text.count(phrase) for text in texts for phrase in PHRASES)
    joined = "".join(texts)
    return complete, sum(joined.count(phrase) for phrase in PHRASES) - complete


@pytest.mark.slow
def test_blocks_that_split_some_copies_give_a_warning(planted, check):
    data, _ = planted
    sizes = [size for size in range(60, 200, 7) if 0 < naive_counts(data, size)[1] < 6]
    assert len({naive_counts(data, size)[1] for size in sizes}) > 1
    for size in sizes[:4]:
        complete, split = naive_counts(data, size)
        message = f"of 12 copies .* canaries {complete} reach the loss whole, {split} are split"
        with pytest.warns(UserWarning, match=message):
            check(blocks(data, size))


def test_blocks_that_split_all_copies_are_refused(planted, check):
    with pytest.raises(DataError, match=r"2 of 2 .* 2 are whole in no row \(2 split over two"):
        check(blocks(planted[0], 20))


def test_packing_and_shuffling_are_accepted(planted, check):
    data, _ = planted
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(blocks(data, 10**6))
        check(encoded(data), Packed())
        check(encoded(data.shuffle(seed=1)))


def test_masked_canaries_are_refused(planted, check):
    def collate(rows):
        batch = Packed()(rows)
        batch["labels"][:, 2] = -100
        return batch

    with pytest.raises(DataError, match="2 are masked in the labels"):
        check(encoded(planted[0]), collate)


def test_removed_copies_give_a_warning(planted, check):
    data, manifest = planted
    removed = set(manifest.positions[0][:4])
    remaining = data.select([row for row in range(len(data)) if row not in removed])
    with pytest.warns(UserWarning, match="of 12 copies .* 8 reach the loss whole, 0 .* and 4 are"):
        check(encoded(remaining))


def test_only_the_first_rows_of_a_long_data_set_are_searched(planted, check):
    data, _ = planted
    size = next(size for size in range(60, 200, 7) if 0 < naive_counts(data, size)[1] < 6)
    rows_, most = blocks(data, size), len(blocks(data, size)) - 1
    with patch.object(canary_search, "MAX_ROWS", most), patch.object(rows, "MAX_ROWS", most):
        with pytest.warns(UserWarning, match=f"in the first {most} rows [0-9]+ copies"):
            check(rows_)
        check(encoded(DATA))  # other rows may have canaries


def test_a_stream_is_searched(planted, check):
    def stream(data):
        return data.to_iterable_dataset().map(
            lambda row: {"input_ids": TOKENIZER(row["text"])["input_ids"]}
        )

    with_canaries = stream(planted[0])
    check(with_canaries)
    assert len(list(with_canaries)) == len(planted[0])
    with pytest.raises(DataError, match="2 are whole in no row"):
        check(stream(DATA))


def test_a_trainer_without_a_tokenizer_is_refused(planted):
    with pytest.raises(VestigeError, match="the trainer has no tokenizer"):
        CanarySearch(planted[1], None)
