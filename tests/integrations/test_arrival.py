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

WORDS = tokenizer()
PHRASES = ["Zoe Quentin Xaver Yvonne", "Umberto Viktor Wanda Zeno"]


class Flat:
    """Texts side by side in one row, the first token of each masked, as TRL packs them."""

    def __call__(self, rows):
        ids = [torch.tensor(row["input_ids"]) for row in rows]
        places = torch.cat([torch.arange(len(row)) for row in ids])[None]
        joined = torch.cat(ids)[None]
        labels = joined.masked_fill(places == 0, -100)
        return {"input_ids": joined, "labels": labels, "position_ids": places}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    out = tmp_path_factory.mktemp("planted") / "canaries"
    return plant(DATA, out=out, phrase=PHRASES, copies=6), Manifest.load(out / "manifest.json")


def encoded(data):
    return worlds.encoded(WORDS, data["text"])


def blocks(data, size):
    """All texts one after the other, cut every so many tokens."""
    ids = [token for row in encoded(data) for token in row["input_ids"]]
    return Dataset.from_dict({"input_ids": [ids[i : i + size] for i in range(0, len(ids), size)]})


def trainer(data, tmp_path, collate=None, held=None):
    sizes = {"n_positions": 512, "n_embd": 8, "n_layer": 1, "n_head": 1}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return Trainer(
        GPT2LMHeadModel(GPT2Config(vocab_size=300, **sizes, **ends)),
        TrainingArguments(tmp_path, max_steps=1, report_to=[], use_cpu=True),
        train_dataset=data, eval_dataset=held, processing_class=WORDS,
        data_collator=collate or DataCollatorForLanguageModeling(WORDS, mlm=False),
    )  # fmt: skip


def arrives(own, sealed):
    require_arrival(own, CanarySearch(sealed, WORDS))


def counts(data, size):
    """(copies that stand whole in a block, copies over the end of one), from the whole text."""
    said = [WORDS.decode(row) for row in blocks(data, size)["input_ids"]]
    whole = sum(block.count(phrase) for block in said for phrase in PHRASES)
    everything = "".join(said)
    return whole, sum(everything.count(phrase) for phrase in PHRASES) - whole


@pytest.mark.slow
def test_blocks_that_cut_some_copies_give_a_warning(planted, tmp_path):
    data, sealed = planted
    sizes = [size for size in range(60, 200, 7) if 0 < counts(data, size)[1] < 6]
    assert len({counts(data, size)[1] for size in sizes}) > 1
    for size in sizes[:4]:
        whole, split = counts(data, size)
        told = f"of 12 copies of planted canaries {whole} reach the loss whole, {split} are split"
        with pytest.warns(UserWarning, match=told):
            arrives(trainer(blocks(data, size), tmp_path), sealed)


def test_blocks_that_cut_all_copies_are_refused(planted, tmp_path):
    data, sealed = planted
    with pytest.raises(DataError, match=r"2 of 2 .* 2 are whole in no row \(2 split over two"):
        arrives(trainer(blocks(data, 20), tmp_path), sealed)


def test_packing_without_cutting_is_accepted(planted, tmp_path):
    """Also where the collator masks the first token of each text, which nothing foretells."""
    data, sealed = planted
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arrives(trainer(blocks(data, 10**6), tmp_path), sealed)
        arrives(trainer(encoded(data), tmp_path, Flat()), sealed)
        arrives(trainer(encoded(data.shuffle(seed=1)), tmp_path), sealed)


def test_masked_canaries_are_refused(planted, tmp_path):
    data, sealed = planted

    def collate(rows):
        found = Flat()(rows)
        found["labels"][:, 2] = -100
        return found

    with pytest.raises(DataError, match="2 are masked in the labels"):
        arrives(trainer(encoded(data), tmp_path, collate), sealed)


def test_removed_copies_give_a_warning(planted, tmp_path):
    data, sealed = planted
    gone = set(sealed.positions[0][:4])
    some = data.select([place for place in range(len(data)) if place not in gone])
    with pytest.warns(UserWarning, match="of 12 copies .* 8 reach the loss whole, 0 .* and 4 are"):
        arrives(trainer(encoded(some), tmp_path), sealed)


def test_only_the_first_rows_of_a_long_data_set_are_searched(planted, tmp_path):
    data, sealed = planted
    size = next(size for size in range(60, 200, 7) if 0 < counts(data, size)[1] < 6)
    cut, first = blocks(data, size), len(blocks(data, size)) - 1
    with patch.object(canary_search, "MAX_ROWS", first), patch.object(rows, "MAX_ROWS", first):
        with pytest.warns(UserWarning, match=f"in the first {first} rows [0-9]+ copies"):
            arrives(trainer(cut, tmp_path), sealed)
        arrives(trainer(encoded(DATA), tmp_path), sealed)  # there may be more


def test_a_stream_is_searched(planted, tmp_path):
    data, sealed = planted
    stream = data.to_iterable_dataset().map(
        lambda row: {"input_ids": WORDS(row["text"])["input_ids"]}
    )
    arrives(trainer(stream, tmp_path), sealed)
    plain = DATA.to_iterable_dataset().map(
        lambda row: {"input_ids": WORDS(row["text"])["input_ids"]}
    )
    with pytest.raises(DataError, match="2 are whole in no row"):
        arrives(trainer(plain, tmp_path), sealed)
    assert len(list(stream)) == len(data)  # nothing of it was used up


def test_a_trainer_without_a_tokenizer_is_refused(planted):
    with pytest.raises(VestigeError, match="the trainer has no tokenizer"):
        CanarySearch(planted[1], None)
