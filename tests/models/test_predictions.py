"""Every token of every text is predicted as a loop over single tokens predicts it."""

import math

import numpy as np
import pytest
import torch

from tests.models.conftest import (
    NETWORKS,
    SOURCES,
    TARGETS,
    TRANSLATORS,
    random_texts,
    translator,
)
from tests.models.contexts import contexts_at
from tests.models.narrowed import narrow
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode, encode_pairs
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import AccessDenied
from vestige.models import predictions as module
from vestige.models.ablation import linear_head, random_maskings, silenced_ranks
from vestige.models.predictions import (
    log_prob,
    log_probs_of,
    measure,
    rank,
    text_log_probs,
    word_ranks,
)
from vestige.models.prefix import PrefixedModel
from vestige.models.ranks import LinearRanks
from vestige.models.reading import word_positions
from vestige.models.seq2seq import Seq2SeqModel
from vestige.models.table import TableModel
from vestige.models.top_k import likeliest_ranks

MODELS = [*NETWORKS, "table", "llama adapter"]
UNEVEN = [[0.25, 0.125, 0.125, 0.25, 0, 0.125, 0.125, 0], [0.125] * 8]
TIES = TableModel(UNEVEN[0], [UNEVEN[i % 2] for i in range(8)])


def place_of(token, log_probs):
    """The rank of one token by a stable sort."""
    return torch.sort(log_probs, descending=True, stable=True).indices.tolist().index(token) + 1


def one_by_one(model, data):
    """Ranks and log-probabilities of all tokens, ends too, by a loop over single tokens."""
    ranks, log_probs = [], []
    for index in range(len(data)):
        document = data.document(index).astype(np.int64)
        longest = getattr(model, "longest", None) or len(document)
        state = model.start(1)
        for position, token in enumerate(document):
            if position and position % longest == 0:
                state = model.start(1, anywhere=True)
            if position:
                state = model.advance(state, torch.tensor([document[position - 1]]))
            answer = model.log_probs(state)[0]
            ranks.append(place_of(token, answer))
            log_probs.append(float(answer[token]))
    return ranks, np.array(log_probs)


@pytest.fixture(params=MODELS)
def model(request, shared):
    return shared[request.param]


@pytest.mark.slow
def test_batches_give_what_single_words_give(model):
    # Lengths below, at and above what a model reads (12), and texts without a word.
    data = random_texts([3, 0, 11, 12, 13, 1, 26, 5, 0])
    ranks, log_probs = one_by_one(model, data)
    for batch_tokens in (8192, 7):
        words = word_ranks(model, data, np.arange(len(data.tokens)), batch_tokens=batch_tokens)
        assert words.ranks.tolist() == ranks
        np.testing.assert_allclose(words.log_probs, log_probs, rtol=1e-4, atol=1e-5)
        columns = measure(model, data, [rank, log_prob], batch_tokens=batch_tokens)
        assert columns["ranks"].tolist() == ranks
        np.testing.assert_allclose(columns["log_probs"], log_probs, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("prefix", [[4, 2, 9], [4]])
def test_texts_after_a_prefix_are_too(model, prefix):
    data = random_texts([3, 0, 7, 25])  # the last is longer than what is read at once
    for anywhere in (False, True):
        prefixed = PrefixedModel(model, prefix, anywhere=anywhere)
        ranks, log_probs = one_by_one(prefixed, data)
        words = word_ranks(prefixed, data, np.arange(len(data.tokens)))
        assert words.ranks.tolist() == ranks
        np.testing.assert_allclose(words.log_probs, log_probs, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_texts_have_the_sum_of_the_log_probabilities_of_their_tokens(model, monkeypatch):
    data = random_texts([4, 0, 9, 9, 2, 11])
    order = (0, 1, 2, 3, 4, 5, 2)
    ids = [data.document(index).tolist() for index in order]
    log_probs = one_by_one(model, data)[1]
    sums, done = np.add.reduceat(log_probs, data.offsets[:-1])[list(order)], []
    np.testing.assert_allclose(text_log_probs(model, ids, done.append), sums, rtol=1e-5)
    assert done == [7]
    each = log_probs_of(model, ids)
    assert [len(one) for one in each] == [5, 1, 10, 10, 3, 12, 10]
    np.testing.assert_allclose(np.concatenate(each[:6]), log_probs, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(module, "PRODUCT_CELLS", 3 * model.vocab_size)
    monkeypatch.setattr(module, "CACHE_CELLS", 2 * model.vocab_size)
    monkeypatch.setattr(module, "REPORT_EVERY", 2)
    np.testing.assert_allclose(text_log_probs(model, ids), sums, rtol=1e-5)


@pytest.mark.parametrize("name", ["lstm", "transformer", "table"])
def test_the_probabilities_of_all_sequences_sum_to_one(shared, name):
    sequences = [[a, b] for a in range(20) for b in range(20)]
    assert np.exp(text_log_probs(shared[name], sequences)).sum() == pytest.approx(1.0, abs=1e-5)


def test_lists_and_ranks_agree_on_every_word(model):
    data = random_texts([3, 11, 0, 14, 6], seed=1)
    ranks = word_ranks(model, data)
    contexts, words = contexts_at(data, word_positions(data), model.vocabulary)
    for k in (1, 3, 20):
        listed = likeliest_ranks(narrow(model, k=k), contexts, words, at_once=9)
        assert listed.tolist() == np.minimum(ranks.ranks, k + 1).tolist()


@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_lists_and_ranks_agree_on_exact_ties_and_impossible_words(k):
    data = random_texts([9, 4, 15, 30], size=8)
    ranks = word_ranks(TIES, data).ranks
    assert ranks.tolist() == np.array(one_by_one(TIES, data)[0])[data.tokens != 1].tolist()
    contexts, words = contexts_at(data, word_positions(data), TIES.vocabulary)
    listed = likeliest_ranks(narrow(TIES, k=k), contexts, words)
    assert listed.tolist() == np.minimum(ranks, k + 1).tolist()


@pytest.mark.parametrize("name", ["lstm", "transformer", "table", "gpt2"])
def test_some_words_have_the_ranks_that_they_have_among_all(shared, name):
    model, data = shared[name], random_texts([9, 20, 3, 7])
    all_ranks = measure(model, data, [rank])["ranks"]
    assert len(all_ranks) == len(data.tokens) == len(word_ranks(model, data).ranks) + 4  # ends
    chosen = [22, 5, 5, 33, 0]
    for positions in (chosen, np.array(chosen, np.int32)):
        assert word_ranks(model, data, positions).ranks.tolist() == all_ranks[chosen].tolist()
    mask = np.isin(np.arange(len(data.tokens)), chosen)
    assert word_ranks(model, data, mask).ranks.tolist() == all_ranks[mask].tolist()
    assert len(word_ranks(model, data, []).ranks) == 0
    assert measure(model, data, [rank], [])["ranks"].dtype == np.int32


def test_progress_ends_at_the_number_of_words(shared):
    reported = []
    data = random_texts([30] * 400)
    word_ranks(shared["lstm"], data, batch_tokens=500, progress=lambda *x: reported.append(x))
    assert reported[-1] == (12000, 12000)
    assert len(reported) > 5
    assert reported == sorted(reported)


@pytest.mark.parametrize("name", ["lstm", "gpt2"])
def test_heads_that_are_more_than_a_product_are_asked_for_logits(make, name):
    model, data = make[name](), random_texts([8, 13])
    assert LinearRanks.of(model) is not None
    expected = word_ranks(model, data).ranks.tolist()
    model.separate_head = False
    assert LinearRanks.of(model) is None
    assert word_ranks(model, data).ranks.tolist() == expected


def test_a_vocabulary_without_common_words_still_gives_ranks():
    model = TableModel([0.5, 0.5], [[0.5, 0.5]] * 2, WordVocabulary(("<eos>", "<unk>")))
    data = encode(Corpus.from_texts(["who is this"]), model.vocabulary)
    assert word_ranks(model, data).ranks.tolist() == [2, 2, 2]


def pair_corpus(count=30):
    generator = np.random.default_rng(0)

    def text(letter, top):
        return " ".join(f"{letter}{i}" for i in generator.integers(0, top, generator.integers(5)))

    targets = [text("t", 14) for _ in range(count)]
    return Corpus.from_texts(targets, sources=[text("s", 9) for _ in range(count)])


PAIRS = encode_pairs(pair_corpus(), SOURCES, TARGETS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRANSLATORS)
def test_targets_are_ranked_as_a_decoder_ranks_them_a_word_at_a_time(kind):
    model = translator(kind)
    ranks, log_probs = [], []
    for text, source in enumerate(pair_corpus().sources):
        decoder = model.given(source)
        state = decoder.start(1)
        for token in PAIRS.targets.document(text)[:-1].tolist():
            distribution = decoder.log_probs(state)[0]
            ranks.append(place_of(token, distribution))
            log_probs.append(float(distribution[token]))
            state = decoder.advance(state, torch.tensor([token]))
    for batch_tokens in (8192, 2):
        words = word_ranks(model, PAIRS, batch_tokens=batch_tokens)
        assert words.ranks.tolist() == ranks
        np.testing.assert_allclose(words.log_probs, log_probs, rtol=1e-4, atol=1e-5)
    some = word_positions(PAIRS.targets)[5:20:3]
    assert word_ranks(model, PAIRS, some).ranks.tolist() == ranks[5:20:3]


def test_models_in_training_and_foreign_ids_are_refused(make):
    data = random_texts([4])
    with pytest.raises(ValueError, match="evaluation mode"):
        word_ranks(make["lstm"]().train(), data)
    with pytest.raises(ValueError, match="ids below 20"):
        word_ranks(make["lstm"](), random_texts([40], size=50))
    model = translator()
    with pytest.raises(ValueError, match="evaluation mode"):
        word_ranks(model.train(), PAIRS)
    model.eval().vocab_size = 11
    with pytest.raises(ValueError, match=r"targets must hold ids below 11"):
        word_ranks(model, PAIRS)
    model = Seq2SeqModel(TARGETS, TARGETS).eval()
    model.source_vocabulary = WordVocabulary(("<unk>", "<eos>"))
    with pytest.raises(ValueError, match=r"sources must hold ids below 2"):
        word_ranks(model, PAIRS)


def test_dropout_is_off_while_texts_are_scored(make):
    model = make["lstm"]()
    training = text_log_probs(model.train(), [[2, 3, 2]])
    assert model.training
    assert training == text_log_probs(model.eval(), [[2, 3, 2]])
    assert not model.training


def test_what_a_model_rules_out_has_the_logarithm_of_nothing():
    model = TableModel([0.5, 0.5], [[1.0, 0.0], [0.5, 0.5]])
    [log_probs] = log_probs_of(model, [[0, 1]])
    assert log_probs.tolist() == [pytest.approx(math.log(0.5)), -math.inf]
    assert text_log_probs(model, [[0, 1]]).tolist() == [-math.inf]
    assert text_log_probs(model, []).shape == (0,)
    assert log_probs_of(model, []) == []


@pytest.mark.parametrize(
    ("name", "ids", "says"),
    [
        ("table", [], "an empty one"),
        ("table", [0, 20], "0 to 20"),
        ("table", [0, -1], "-1 to 0"),
        ("table", [20], "20"),
        ("transformer", [2] * 13, "at most 12 tokens"),
    ],
)
def test_what_is_no_text_of_a_model_is_refused(shared, name, ids, says):
    with pytest.raises(ValueError, match=says):
        text_log_probs(shared[name], [ids])


def test_a_prefix_leaves_less_room_for_a_text(shared):
    assert np.isfinite(text_log_probs(shared["transformer"], [[2] * 12])).all()
    with pytest.raises(ValueError, match="at most 10 tokens"):
        log_probs_of(PrefixedModel(shared["transformer"], [3, 4]), [[2] * 11])


@pytest.mark.parametrize("name", NETWORKS)
def test_silent_units_are_zeros_before_the_head(shared, name):
    model, data = shared[name], random_texts([5, 3, 7])
    width, positions = linear_head(model).in_features, word_positions(data)
    before = word_ranks(model, data)
    drawn = random_maskings(width, [0.25, 0.75], orders=1, seed=3)[0]
    masks = np.concatenate([drawn, np.zeros((1, width), bool), np.ones((1, width), bool)])
    ranks = silenced_ranks(model, data, positions, masks)
    for row, mask in enumerate(masks):
        expected = []
        for index in range(len(data)):
            ids = torch.from_numpy(data.document(index).astype(np.int64))[:-1]
            read = torch.cat([torch.tensor([model.first_token]), ids[:-1]])
            with torch.no_grad():
                hidden = model.body(read[None])[0][0] * torch.from_numpy(~mask)
                logits = model.predict(hidden).float()
            expected += [place_of(*pair) for pair in zip(ids.tolist(), logits, strict=True)]
        assert ranks[row].tolist() == expected
    assert ranks[2].tolist() == before.ranks.tolist()
    assert word_ranks(model, data).log_probs.tolist() == before.log_probs.tolist()


@pytest.mark.parametrize("kind", ["lstm+attention", "lstm"])
def test_decoders_are_silenced_at_their_head_as_well(kind):
    model, mask = translator(kind), np.arange(7) % 2 == 0
    ranks = silenced_ranks(model, PAIRS, word_positions(PAIRS.targets), mask[None])
    expected = []
    for index, source in enumerate(pair_corpus().sources):
        ids = PAIRS.targets.document(index)[:-1].tolist()
        with torch.no_grad():
            hidden, _ = model.given(source).body(torch.tensor([[TARGETS.eos_id, *ids]]))
            logits = model.predict(hidden[0] * torch.from_numpy(~mask))
        expected += [place_of(*pair) for pair in zip(ids, logits, strict=False)]
    assert ranks[0].tolist() == expected


def test_silence_grows_within_an_order_and_orders_differ(shared):
    masks = random_maskings(20, [0.1, 0.5, 0.9], orders=4, seed=0)
    assert masks.sum(-1).tolist() == [[2, 10, 18]] * 4
    assert (masks[:, 1:] >= masks[:, :-1]).all()
    assert len({mask.tobytes() for mask in masks[:, 1]}) == 4
    assert (masks == random_maskings(20, [0.1, 0.5, 0.9], orders=4, seed=0)).all()
    reports, few = [], random_maskings(12, [0.5], orders=3, seed=0)[:, 0]
    data = random_texts([3])
    silenced_ranks(shared["lstm"], data, [0, 1], few, progress=lambda *p: reports.append(p))
    assert reports == [(1, 3), (2, 3), (3, 3)]


def test_what_cannot_be_silenced_is_refused(shared):
    data = random_texts([3])
    with pytest.raises(AccessDenied, match=r"TableModel has no hidden layer.*--orders 0"):
        silenced_ranks(shared["table"], data, [0], np.ones((1, 4), bool))
    with pytest.raises(ValueError, match="12"):
        silenced_ranks(shared["lstm"], data, [0], np.ones((1, 5)))
    for arguments, says in (
        ((8, [1.0], 1), r"fractions\[0\] must lie in"),
        ((8, [0.5], 0), "orders must be positive"),
        ((0, [0.5], 1), "width must be positive"),
    ):
        with pytest.raises(ValueError, match=says):
            random_maskings(*arguments[:2], orders=arguments[2], seed=0)
