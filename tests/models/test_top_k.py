"""True words are looked up in lists of likeliest words."""

import pytest

from vestige.models.top_k import Context, likeliest_ranks


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
