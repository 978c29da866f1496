"""Utterances are sampled with a seed and split without loss."""

import os
from pathlib import Path

import pytest

from reproduction.nlu.utterance_texts import UtteranceText, orders, read_parts
from vestige.errors import DataError

DATA = os.environ.get("VESTIGE_DATA")


def test_generated_utterances_depend_only_on_the_seed():
    assert orders(50, seed=1).fingerprint() == orders(50, seed=1).fingerprint()
    assert orders(50, seed=1).fingerprint() != orders(50, seed=2).fingerprint()
    assert set(orders(50, seed=1).intents) == {"GetWeather", "PlayMusic", "BookTable"}


def test_parts_have_the_requested_size_or_all_utterances():
    parts = read_parts(UtteranceText(dataset="orders", training=40, validation=7), None)
    assert (len(parts.training), len(parts.validation), len(parts.test)) == (40, 7, 60)
    assert len(read_parts(UtteranceText(dataset="orders", training=10**6), None).training) == 300


def test_a_corpus_without_folder_or_with_an_unknown_name_is_refused():
    with pytest.raises(DataError, match="the text snips needs a folder"):
        read_parts(UtteranceText(dataset="snips"), None)
    with pytest.raises(ValueError, match="dataset must be one of"):
        read_parts(UtteranceText(dataset="banking"), None)


@pytest.mark.data
@pytest.mark.skipif(DATA is None, reason="VESTIGE_DATA names no folder of corpora")
def test_a_corpus_without_parts_is_split_and_nothing_is_lost():
    parts = read_parts(UtteranceText(dataset="nlu-evaluation"), Path(str(DATA)))
    sizes = [len(part) for part in (parts.training, parts.validation, parts.test)]
    assert (sum(sizes), sizes[2]) == (11_036, 1_104)
