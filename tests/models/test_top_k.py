"""Lists of likeliest words, from models of ours, and what is looked up in them."""

import numpy as np
import pytest
import torch

from tests.models.contexts import contexts_at
from tests.models.narrowed import narrow, token_names
from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models.largest import largest
from vestige.models.predictions import word_ranks
from vestige.models.reading import word_places
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.table import TableModel
from vestige.models.top_k import Context, likeliest_ranks


@pytest.mark.parametrize("k", [1, 2, 7, 40])
def test_the_first_words_are_those_of_a_stable_sort(k: int) -> None:
    torch.manual_seed(0)
    special = torch.tensor([-np.inf, -0.0, 0.0, 1.0, -1.0, 1e-45, -1e-45, 3e38, np.inf])
    logits = special[torch.randint(9, (300, 40))]
    expected = torch.sort(logits, descending=True, stable=True).indices[:, :k]
    assert largest(logits, k).equal(expected)


def test_a_context_is_read_once_with_those_that_go_on_from_it(make, monkeypatch) -> None:
    model = make["lstm"]()
    read, body = [], model.body
    monkeypatch.setattr(model, "body", lambda *given: read.append(given[0].numel()) or body(*given))
    words = tuple(f"word{i}" for i in range(9))
    contexts = [Context(words[:n]) for n in (3, 9, 0, 9, 5)]
    answers = narrow(model, k=4).likeliest(contexts)
    assert sum(read) == 10
    alone = [narrow(model, k=4).likeliest([context])[0] for context in contexts]
    assert answers == alone


def test_contexts_that_part_are_not_mistaken_for_each_other() -> None:
    model = TableModel([1, 0, 0], [[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    contexts = [Context(c) for c in (("w2",), (), ("w2", "<unk>"), ("<unk>",), ("w2", "<eos>"))]
    answers = narrow(model, k=1).likeliest(contexts)
    assert answers == [("<eos>",), ("<eos>",), ("w2",), ("w2",), ("<unk>",)]
    assert narrow(model, k=1).likeliest([]) == []


def test_unknown_words_are_read_as_the_vocabulary_reads_them(make) -> None:
    model = narrow(make["lstm"](), k=20)
    first, second = model.likeliest([Context(("no such",)), Context(("<unk>", "<unk>"))])
    assert first == second
    lower = WordVocabulary(("<unk>", "<eos>", "yes"), lowercase=True)
    table = TableModel([0, 0, 1], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], lower)
    assert narrow(table, k=1).likeliest([Context(("YES",))]) == [("yes",)]


def test_a_tokenizers_names_are_all_different(make) -> None:
    model = make["gpt2"]()
    names = token_names(model.vocabulary, model.vocab_size)
    assert len(set(names)) == len(names) == model.vocab_size
    (answer,) = narrow(model, k=model.vocab_size).likeliest([Context(("Ġthe",))])
    assert sorted(answer) == sorted(names)


@pytest.mark.parametrize("attention", [True, False])
def test_a_model_that_answers_sources_is_asked_with_them(attention: bool) -> None:
    torch.manual_seed(0)
    words = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(2, 12))))
    config = Seq2SeqConfig(attention=attention, initial_range=0.9)
    model = Seq2SeqModel(words, words, config).eval()
    targets = EncodedCorpus(np.array([3, 7, 9, 1, 4, 8, 1], np.int32), np.array([0, 4, 7]))
    sources = ["w4 w5", "w9"]
    contexts, true = contexts_at(targets, word_places(targets), words, sources=sources)
    listed = likeliest_ranks(narrow(model, k=12), contexts, true)
    expected = [
        rank
        for index, source in enumerate(sources)
        for rank in word_ranks(
            model.given(source),
            EncodedCorpus(targets.document(index), np.array([0, len(targets.document(index))])),
        ).ranks
    ]
    assert listed.tolist() == expected


class Fixed:
    """Lists that are given."""

    k = 2

    def likeliest(self, contexts):
        return [("a", "b"), ("b", "a"), (), None, ("c",)][: len(contexts)]


def test_missing_words_come_after_the_list_and_unanswered_ones_are_none() -> None:
    contexts = [Context(())] * 5
    assert likeliest_ranks(Fixed(), contexts, ["a"] * 5).tolist() == [1, 2, 3, 0, 3]
    with pytest.raises(ValueError, match="words must be one"):
        likeliest_ranks(Fixed(), contexts, [])


def test_a_context_is_words_and_perhaps_a_source(make) -> None:
    for words in ("to be", b"to", None, (1,), {"to"}):
        with pytest.raises(ValueError, match="tuple of strings"):
            Context(words)
    with pytest.raises(ValueError, match="source must be"):
        Context((), source=3)
    assert Context(["to", "be"]) == Context(("to", "be"))
