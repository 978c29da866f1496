import numpy as np
import pytest
import torch

from vestige.data.utterances import Utterance, Utterances
from vestige.data.word_vectors import WordVectors
from vestige.errors import DataError
from vestige.training.new_models import new_intent_slot_model, with_vectors, words_of

FLY = Utterance(("to", "York"), ("O", "B-city"), "Fly")
SAID = Utterances.of([FLY, Utterance(("to", "to", "bath"), ("O", "O", "B-city"), "Fly")])


def vectors(**words):
    return WordVectors(tuple(words), np.array(list(words.values()), np.float32))


def row(model, word):
    return model.embedding.weight[model.vocabulary.encode(word)[0]].tolist()


def test_words_stand_in_alphabetical_order_however_often_they_come():
    often = new_intent_slot_model(SAID + SAID.take([1, 1]), words=["zoo", "a"], seed=0)
    once = new_intent_slot_model(SAID, words=["a", "zoo"], seed=0)
    assert often.vocabulary.words == ("<unk>", "<eos>", "York", "a", "bath", "to", "zoo")
    assert often.vocabulary == once.vocabulary
    assert torch.equal(often.embedding.weight, once.embedding.weight)


def test_a_seed_decides_the_weights_and_leaves_the_callers_numbers_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first, second, other = (new_intent_slot_model(SAID, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(3), expected)
    for one, same, different in zip(
        first.state_dict().values(),
        second.state_dict().values(),
        other.state_dict().values(),
        strict=True,
    ):
        assert torch.equal(one, same)
        assert not one.any() or not torch.equal(one, different)


def test_labels_may_come_from_elsewhere():
    model = new_intent_slot_model(SAID, intents=["Call"], tags=["O", "B-canary"], seed=0)
    assert model.intents == ("Call", "Fly")
    assert model.tags == ("O", "B-canary", "I-canary", "B-city", "I-city")


def test_a_word_has_its_own_vector_or_that_of_its_lower_case():
    given = vectors(york=[1, 2], to=[3, 4], bath=[5, 6], Bath=[7, 8])
    model = new_intent_slot_model(SAID, vectors=given, words=["Bath"], seed=0)
    found = [row(model, word) for word in ("York", "to", "bath", "Bath")]
    assert found == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert model.config.embedding_size == 2


def test_the_unknown_word_has_the_mean_of_all_vectors():
    model = new_intent_slot_model(SAID, vectors=vectors(york=[1, 2], to=[3, 6]), seed=0)
    assert row(model, "<unk>") == [2, 4]


def test_the_unknown_word_has_the_mean_of_vectors_that_were_drawn():
    drawn = new_intent_slot_model(SAID, words=map(str, range(500)), seed=0).embedding.weight
    assert drawn[0].tolist() == pytest.approx(drawn[1:].mean(0).tolist(), abs=0.02)


def test_words_without_a_vector_are_drawn_with_the_spread_of_the_others():
    names = [f"w{n}" for n in range(4000)]
    said = Utterances.of([Utterance(tuple(names), ("O",) * len(names), "List")])
    chance = np.random.default_rng(0)
    drawn = chance.normal([5, -3], [0.1, 2], (2000, 2)).astype(np.float32)
    model = new_intent_slot_model(said, vectors=WordVectors(tuple(names[:2000]), drawn), seed=0)
    others = torch.stack([torch.tensor(row(model, name)) for name in names[2000:]])
    assert others.mean(0).tolist() == pytest.approx([5, -3], abs=0.2)
    assert others.std(0).tolist() == pytest.approx([0.1, 2], rel=0.1)


def test_words_in_lower_case_when_asked():
    model = new_intent_slot_model(SAID, words=["YORK", "Zoo"], lowercase=True, seed=0)
    assert model.vocabulary.words[2:] == ("bath", "to", "york", "zoo")
    assert model.read(["YORK"]) == model.read(["york"])


def test_vectors_that_have_none_of_the_words_are_refused():
    with pytest.raises(DataError, match="none of the 3 words"):
        new_intent_slot_model(SAID, vectors=vectors(haus=[1, 2]), seed=0)


def test_another_size_than_that_of_the_vectors_is_refused():
    with pytest.raises(ValueError, match="embedding_size must be 2, as vectors have, got 3"):
        new_intent_slot_model(SAID, vectors=vectors(to=[1, 2]), embedding_size=3, seed=0)


def test_vectors_are_read_from_a_file(tmp_path):
    (tmp_path / "some.txt").write_text("to 1 2\nyork 3 4\nhaus 5 6\n")
    model = new_intent_slot_model(SAID, vectors=str(tmp_path / "some.txt"), seed=0)
    assert row(model, "to") == [1, 2]
    assert row(model, "York") == [3, 4]


def test_which_words_have_vectors():
    assert with_vectors(words_of(SAID), vectors(york=[1], bath=[2])) == {"York", "bath"}
