"""True words are looked up in lists of likeliest words."""

import pytest

from tests.models.conftest import SOURCES, TARGETS, TRANSLATORS, random_texts, translator
from tests.models.contexts import contexts_at
from tests.models.narrowed import narrow
from vestige.models.predictions import word_ranks
from vestige.models.reading import pack, word_positions
from vestige.models.top_k import Context, likeliest_ranks


@pytest.mark.parametrize("kind", TRANSLATORS)
def test_ranks_of_a_translator_are_looked_up_with_its_sources(kind):
    model, targets = translator(kind), random_texts([3, 2], size=len(TARGETS))
    sources = [SOURCES.decode([4, 5]), SOURCES.decode([9])]
    contexts, words = contexts_at(targets, word_positions(targets), TARGETS, sources=sources)
    ranks = likeliest_ranks(narrow(model, k=len(TARGETS)), contexts, words)
    expected = []
    for index, source in enumerate(sources):
        expected += [*word_ranks(model.given(source), pack([targets.document(index)])).ranks]
    assert ranks.tolist() == expected


class Fixed:
    """A model with fixed lists."""

    k = 2

    def likeliest(self, contexts):
        return [("a", "b"), ("b", "a"), (), None, ("c",)][: len(contexts)]


def test_unlisted_words_have_rank_k_plus_1_and_unanswered_ones_0():
    contexts = [Context(())] * 5
    assert likeliest_ranks(Fixed(), contexts, ["a"] * 5).tolist() == [1, 2, 3, 0, 3]
    with pytest.raises(ValueError, match="words must be one"):
        likeliest_ranks(Fixed(), contexts, [])


def test_invalid_contexts_are_refused():
    for words in ("to be", b"to", None, (1,), {"to"}):
        with pytest.raises(ValueError, match="tuple of strings"):
            Context(words)
    with pytest.raises(ValueError, match="source must be"):
        Context((), source=3)
    assert Context(["to", "be"]) == Context(("to", "be"))
