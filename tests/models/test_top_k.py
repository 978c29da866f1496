"""Lists of likeliest words, from models of ours, and what is looked up in them."""

import pytest

from tests.models.conftest import SOURCES, TARGETS, TRANSLATORS, random_texts, translator
from tests.models.contexts import contexts_at
from tests.models.narrowed import narrow, token_names
from vestige.data.vocabulary import WordVocabulary
from vestige.models.predictions import word_ranks
from vestige.models.reading import pack, word_places
from vestige.models.table import TableModel
from vestige.models.top_k import Context, likeliest_ranks


def test_a_context_is_read_once_with_those_that_go_on_from_it(make, monkeypatch):
    model = make["lstm"]()
    read, body = [], model.body
    monkeypatch.setattr(model, "body", lambda *given: read.append(given[0].numel()) or body(*given))
    words = tuple(f"word{i}" for i in range(9))
    contexts = [Context(words[:n]) for n in (3, 9, 0, 9, 5)]
    answers = narrow(model, k=4).likeliest(contexts)
    assert sum(read) == 10
    assert answers == [narrow(model, k=4).likeliest([context])[0] for context in contexts]


def test_contexts_that_part_are_not_mistaken_for_each_other():
    model = TableModel([1, 0, 0], [[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    contexts = [Context(c) for c in (("w2",), (), ("w2", "<unk>"), ("<unk>",), ("w2", "<eos>"))]
    answers = narrow(model, k=1).likeliest(contexts)
    assert answers == [("<eos>",), ("<eos>",), ("w2",), ("w2",), ("<unk>",)]
    assert narrow(model, k=1).likeliest([]) == []


def test_unknown_words_are_read_as_the_vocabulary_reads_them(shared):
    model = narrow(shared["lstm"], k=20)
    first, second = model.likeliest([Context(("no such",)), Context(("<unk>", "<unk>"))])
    assert first == second
    lower = WordVocabulary(("<unk>", "<eos>", "yes"), lowercase=True)
    table = TableModel([0, 0, 1], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], lower)
    assert narrow(table, k=1).likeliest([Context(("YES",))]) == [("yes",)]


def test_a_tokenizers_names_are_all_different(shared):
    model = shared["gpt2"]
    names = token_names(model.vocabulary, model.vocab_size)
    assert len(set(names)) == len(names) == model.vocab_size
    (answer,) = narrow(model, k=model.vocab_size).likeliest([Context(("Ġthe",))])
    assert sorted(answer) == sorted(names)


@pytest.mark.parametrize("kind", TRANSLATORS)
def test_a_model_that_answers_sources_is_asked_with_them(kind):
    model, targets = translator(kind), random_texts([3, 2], size=len(TARGETS))
    sources = [SOURCES.decode([4, 5]), SOURCES.decode([9])]
    contexts, true = contexts_at(targets, word_places(targets), TARGETS, sources=sources)
    listed = likeliest_ranks(narrow(model, k=len(TARGETS)), contexts, true)
    expected = []
    for index, source in enumerate(sources):
        expected += [*word_ranks(model.given(source), pack([targets.document(index)])).ranks]
    assert listed.tolist() == expected


class Fixed:
    """Lists that are given."""

    k = 2

    def likeliest(self, contexts):
        return [("a", "b"), ("b", "a"), (), None, ("c",)][: len(contexts)]


def test_missing_words_come_after_the_list_and_unanswered_ones_are_none():
    contexts = [Context(())] * 5
    assert likeliest_ranks(Fixed(), contexts, ["a"] * 5).tolist() == [1, 2, 3, 0, 3]
    with pytest.raises(ValueError, match="words must be one"):
        likeliest_ranks(Fixed(), contexts, [])


def test_a_context_is_words_and_perhaps_a_source():
    for words in ("to be", b"to", None, (1,), {"to"}):
        with pytest.raises(ValueError, match="tuple of strings"):
            Context(words)
    with pytest.raises(ValueError, match="source must be"):
        Context((), source=3)
    assert Context(["to", "be"]) == Context(("to", "be"))
