"""What a server says of texts is what its model's own pass says, as far as it is said."""

import math

import numpy as np
import pytest

from tests.models.served import Served, endpoint_statistics, network, serving
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.models.remote.options import EndpointAddress
from vestige.models.remote.probe import probe
from vestige.models.remote.server import Endpoint
from vestige.models.token_statistics import token_statistics

pytest.importorskip("openai")

TEXTS = ("the quick brown fox jumps over the lazy dog", "the cat sat on the mat")


@pytest.fixture(scope="module")
def model():
    return network(SubwordVocabulary.train_bpe(Corpus.from_texts(TEXTS * 4), size=280))


@pytest.fixture
def asked(model, tmp_path):
    """What a server of the model, which lacks something, says of texts."""

    def ask(texts, *, k=20, **lacks):
        served, path = serving(Served(model, **lacks)), tmp_path / "answers.sqlite"
        with served as url, Endpoint(EndpointAddress(url, "small"), path) as endpoint:
            access = probe(endpoint)
            return endpoint_statistics(endpoint, access, texts, model.vocabulary, likeliest=k)

    return ask


def test_what_is_told_is_what_a_pass_over_the_texts_tells(model, asked):
    found = asked(TEXTS)
    true = token_statistics(model, model.vocabulary.encode_batch(TEXTS), likeliest=20)
    assert np.array_equal(found.offsets, true.offsets)
    assert np.array_equal(found.tokens, true.tokens)
    told = np.isfinite(found.log_probs)
    starts = np.isin(np.arange(len(true.tokens)), true.offsets)
    assert (told == ~starts).all()
    assert found.log_probs[told] == pytest.approx(true.log_probs[told], abs=1e-4)
    shown = found.ranks >= 1
    assert np.array_equal(found.ranks[shown], true.ranks[shown])
    assert (shown == (told & (true.ranks <= 20))).all()
    known = found.likeliest >= 0
    assert known.any()
    assert np.array_equal(found.likeliest[known], true.likeliest[known])
    assert found.likeliest_log_probs[known] == pytest.approx(
        true.likeliest_log_probs[known], abs=1e-4
    )
    assert np.isnan(found.means).all()
    assert np.isnan(found.deviations).all()


def test_parts_of_characters_and_empty_texts_are_no_error(model, asked):
    found = asked(["über the cat", "", "the"])
    assert len(found.offsets) == 4
    assert math.isfinite(found.log_probs[found.offsets[1] - 1])


TEXTS = ("the quick brown fox jumps over the lazy dog", "the cat sat on the mat")


def test_what_a_server_shows_is_what_a_pass_over_the_texts_gives(subwords, tmp_path):
    pytest.importorskip("openai")
    model, path = network(subwords), tmp_path / "answers.sqlite"
    with serving(Served(model)) as url, Endpoint(EndpointAddress(url, "small"), path) as endpoint:
        access = probe(endpoint)
        found = endpoint_statistics(endpoint, access, TEXTS, subwords)
        # Parts of characters and empty texts are no error.
        odd = endpoint_statistics(endpoint, access, ["über the cat", "", "the"], subwords)
    assert len(odd.offsets) == 4
    assert math.isfinite(odd.log_probs[odd.offsets[1] - 1])
    true = token_statistics(model, subwords.encode_batch(TEXTS), likeliest=20)
    assert np.array_equal(found.offsets, true.offsets)
    assert np.array_equal(found.tokens, true.tokens)
    told, known = np.isfinite(found.log_probs), found.likeliest >= 0
    assert (told == ~np.isin(np.arange(len(true.tokens)), true.offsets)).all()
    assert found.log_probs[told] == pytest.approx(true.log_probs[told], abs=1e-4)
    shown = found.ranks >= 1
    assert np.array_equal(found.ranks[shown], true.ranks[shown])
    assert (shown == (told & (true.ranks <= 20))).all()
    assert known.any()
    assert np.array_equal(found.likeliest[known], true.likeliest[known])
    likeliest = true.likeliest_log_probs[known]
    assert found.likeliest_log_probs[known] == pytest.approx(likeliest, abs=1e-4)
    assert np.isnan(found.means).all()
    assert np.isnan(found.deviations).all()
