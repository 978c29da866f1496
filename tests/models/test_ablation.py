"""Silent units change ranks as zeros in the hidden vectors do."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode_pairs
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import AccessDenied
from vestige.models.ablation import linear_head, random_maskings, silenced_ranks
from vestige.models.predictions import word_ranks
from vestige.models.protocols import LanguageModel
from vestige.models.reading import word_places
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel

Make = Callable[[], LanguageModel]
MODELS = ["lstm", "tied lstm", "gru", "transformer", "gpt2", "llama"]


def texts(lengths: list[int], seed: int = 0) -> EncodedCorpus:
    """Random ids below 20; an end of text (id 1) after each document."""
    generator = np.random.default_rng(seed)
    rows = [np.append(generator.integers(2, 20, n), 1) for n in lengths]
    offsets = np.cumsum([0, *map(len, rows)])
    return EncodedCorpus(np.concatenate(rows).astype(np.int32), offsets.astype(np.int64))


def naive(logits: torch.Tensor, truth: int) -> int:
    """Rank of one word by a stable sort."""
    order = torch.sort(logits, descending=True, stable=True).indices
    return order.tolist().index(truth) + 1


@pytest.mark.parametrize("name", MODELS)
def test_silent_units_are_zeros_before_the_head(make, name: str) -> None:
    model, data = make[name](), texts([5, 3, 7])
    width = linear_head(model).in_features
    masks = random_maskings(width, [0.25, 0.75], orders=1, seed=3)[0]
    places = word_places(data)
    found = silenced_ranks(model, data, places, masks)
    for row, mask in enumerate(masks):
        expected = []
        for index in range(len(data)):
            ids = torch.from_numpy(data.document(index).astype(np.int64))[:-1]
            read = torch.cat([torch.tensor([model.first_token]), ids[:-1]])
            with torch.no_grad():
                hidden = model.body(read[None])[0][0] * torch.from_numpy(~mask)
                logits = model.predict(hidden).float()
            expected += [naive(*pair) for pair in zip(logits, ids.tolist(), strict=True)]
        assert found[row].tolist() == expected


@pytest.mark.parametrize("name", MODELS)
def test_with_no_unit_silent_nothing_changes_and_the_model_stays_what_it_was(make, name) -> None:
    model, data = make[name](), texts([4, 6])
    whole = word_ranks(model, data)
    width = linear_head(model).in_features
    masks = np.stack([np.zeros(width, bool), np.ones(width, bool)])
    found = silenced_ranks(model, data, word_places(data), masks)
    assert found[0].tolist() == whole.ranks.tolist()
    again = word_ranks(model, data)
    assert again.log_probs.tolist() == whole.log_probs.tolist()
    tokens = data.tokens[word_places(data)].tolist()
    # All units silent: only the bias is left, the same for every word.
    rank_of = dict(zip(tokens, found[1].tolist(), strict=True))
    assert [rank_of[token] for token in tokens] == found[1].tolist()


@pytest.mark.parametrize("attention", [True, False])
def test_decoders_are_silenced_at_their_head_as_well(attention: bool) -> None:
    words = WordVocabulary(("<unk>", "<eos>", "a", "b", "c", "d"))
    torch.manual_seed(0)
    config = Seq2SeqConfig(attention=attention, hidden_size=8, initial_range=0.8)
    model = Seq2SeqModel(words, words, config).eval()
    corpus = Corpus.from_texts(["a b", "c", "d a b"], sources=["b", "b c", "d"])
    pairs = encode_pairs(corpus, words, words)
    mask = np.arange(8) % 2 == 0
    found = silenced_ranks(model, pairs, word_places(pairs.targets), mask[None])
    expected = []
    for target, source in zip(corpus, corpus.sources or [], strict=True):
        ids = words.encode(target)
        given = model.given(source)
        with torch.no_grad():
            hidden, _ = given.body(torch.tensor([[words.eos_id, *ids[:-1]]]))
            logits = model.predict(hidden[0] * torch.from_numpy(~mask))
        expected += [naive(*pair) for pair in zip(logits, ids, strict=True)]
    assert found[0].tolist() == expected


def test_silence_grows_within_an_order_and_orders_differ() -> None:
    masks = random_maskings(20, [0.1, 0.5, 0.9], orders=4, seed=0)
    assert masks.sum(-1).tolist() == [[2, 10, 18]] * 4
    assert (masks[:, 1:] >= masks[:, :-1]).all()
    assert len({mask.tobytes() for mask in masks[:, 1]}) == 4
    assert (masks == random_maskings(20, [0.1, 0.5, 0.9], orders=4, seed=0)).all()


def test_progress_counts_maskings(make) -> None:
    told = []
    masks = random_maskings(12, [0.5], orders=3, seed=0)[:, 0]
    silenced_ranks(make["lstm"](), texts([3]), [0, 1], masks, progress=lambda *p: told.append(p))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_model_without_a_head_of_its_own_is_refused_with_a_remedy(make) -> None:
    with pytest.raises(AccessDenied, match=r"TableModel has no hidden layer.*--orders 0"):
        silenced_ranks(make["table"](), texts([3]), [0], np.ones((1, 4), bool))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: silenced_ranks(m, texts([3]), [0], np.ones((1, 5))), "12"),
        (lambda m: random_maskings(8, [1.0], orders=1, seed=0), r"fractions\[0\] must lie in"),
        (lambda m: random_maskings(8, [0.5], orders=0, seed=0), "orders must be positive"),
        (lambda m: random_maskings(0, [0.5], orders=1, seed=0), "width must be positive"),
    ],
)
def test_what_cannot_be_silenced_is_refused(make, call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call(make["lstm"]())
