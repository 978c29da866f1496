"""Tokens of secrets in phrases, and verbatim phrases, by their definitions."""

from hypothesis import given
from hypothesis import strategies as st

from reproduction.updates.reconstruction import is_verbatim, ngrams, tokens_found

tokens = st.lists(st.integers(0, 3), max_size=12)


def naive_count(secret, phrases, n):
    """The number of tokens within a window of n tokens that a phrase contains."""
    runs = [phrase[k : k + n] for phrase in phrases for k in range(len(phrase) - n + 1)]
    count = 0
    for i in range(len(secret)):
        starts = [j for j in range(i - n + 1, i + 1) if 0 <= j <= len(secret) - n]
        count += any(secret[j : j + n] in runs for j in starts)
    return count


@given(tokens, st.lists(tokens, max_size=4), st.integers(1, 4))
def test_tokens_found_follows_its_definition(secret, phrases, n):
    assert tokens_found(secret, phrases, n=n) == naive_count(secret, phrases, n)


@given(st.lists(st.integers(0, 9), min_size=4, max_size=12))
def test_a_phrase_is_verbatim_only_among_its_own_grams(phrase):
    assert is_verbatim(phrase, set(ngrams(phrase, 4)))
    assert not is_verbatim(phrase, set())
    assert tokens_found(phrase, [phrase]) == len(phrase)


def test_a_phrase_too_short_for_a_four_gram_is_not_verbatim():
    assert not is_verbatim([1, 2, 3], {(1, 2, 3)})
