"""True words are looked up in lists of likeliest words."""

import pytest

from tests.models.conftest import SOURCES, TARGETS, TRANSLATORS, random_texts, translator
from tests.models.contexts import contexts_at
from tests.models.narrowed import narrow
from vestige.models.predictions import word_ranks
from vestige.models.reading import pack, word_positions
from vestige.models.top_k import Context, likeliest_ranks


@pytest.mark.parametrize("kind", TRANSLATORS)
def test_a_model_that_answers_sources_is_asked_with_them(kind):
    model, targets = translator(kind), random_texts([3, 2], size=len(TARGETS))
    sources = [SOURCES.decode([4, 5]), SOURCES.decode([9])]
    contexts, true = contexts_at(targets, word_positions(targets), TARGETS, sources=sources)
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
