"""Alternatives of secrets: the same format, uniform digits, words of the same rarity."""

import re
from collections import Counter

import numpy as np
import pytest

from vestige.data.secrets.alternatives import LEAST_CHOICES, Alternatives, FoundSecret

TEXTS = ["the lantern hangs behind the cupboard", "Nobody saw the Harvest moon"] * 3
SPELLED = ["".join("abcdefghij"[int(d)] for d in f"{n:03d}") for n in range(400)]
"""Names of three letters each."""


def found(value, kind):
    return FoundSecret(value, kind, ((0, "It is "),))


def draw(secret, count=200, *, texts=TEXTS, seed=1):
    return Alternatives(texts).draw(secret, count, seed=seed)


@pytest.mark.parametrize(
    ("value", "kind", "pattern", "space"),
    [
        ("4111 1111 1111 1111", "card", r"4111 11\d\d \d{4} \d{4}", 1e9),
        ("GB82 WEST 1234 5698 7654 32", "iban", r"GB\d\d WEST( \d{4}){3} \d\d", 1e14),
        ("020 7946 0958", "phone", r"020 7946 \d{4}", 1e4),
        ("73-5068", "account", r"\d\d-\d{4}", 1e6),
        ("AB-1234-xy", "code", r"[A-Z]{2}-\d{4}-[a-z]{2}", 26**4 * 1e4),
        ("Xk9#mQ2!pL", "password", r"[A-Z][a-z]\d#[a-z][A-Z]\d![a-z][A-Z]", 26**6 * 1e2),
        ("QWXZ", "code", r"[A-Z]{4}", 26**4),
        ("my gate code is 4917 now", "listed", r"my gate code is \d{4} now", 1e4),
    ],
)
def test_alternatives_have_the_format_of_the_secret(value, kind, pattern, space):
    drawn = draw(found(value, kind))
    assert len({*drawn, value}) == 201
    assert all(re.fullmatch(pattern, text) for text in drawn)
    assert Alternatives(TEXTS).space(found(value, kind)) == space


def luhn_holds(text):
    """Every second digit from the right, doubled, with its digits summed: a multiple of 10."""
    digits = [int(one) for one in reversed(text) if one.isdigit()]
    doubled = [sum(map(int, str(2 * one))) for one in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def mod_97_holds(text):
    plain = text.replace(" ", "")
    return int("".join(str(int(one, 36)) for one in plain[4:] + plain[:4])) % 97 == 1


@pytest.mark.parametrize(
    ("value", "kind", "holds"),
    [
        ("79927398713", "card", luhn_holds),
        ("4111-1111-1111-1111", "card", luhn_holds),
        ("DE89 3704 0044 0532 0130 00", "iban", mod_97_holds),
    ],
)
def test_check_digits_are_valid(value, kind, holds):
    assert all(map(holds, draw(found(value, kind))))


def test_digits_are_uniform():
    counts = Counter("".join(draw(found("73506824", "account"), 2000)))
    expected = 2000 * 8 / 10
    deviation = sum((counts[digit] - expected) ** 2 / expected for digit in "0123456789")
    assert deviation < 27.9  # 0.999 of chi2(9)


def test_the_same_seed_draws_the_same_and_a_small_format_completely():
    secret = found("amber lantern 42", "password")
    assert draw(secret, 50, seed=3) == draw(secret, 50, seed=3) != draw(secret, 50, seed=4)
    every = [f"{n // 10}-{n % 10}" for n in range(100)]
    assert sorted(draw(found("7-4", "code"))) == [text for text in every if text != "7-4"]
    assert Alternatives(TEXTS).space(found("!", "other")) == 1
    assert draw(found("!", "other")) == []


@pytest.fixture(scope="module")
def words():
    """Texts with words of 1, 2, 8 and 32 texts each, and names."""
    texts = [f"{word}rare" for word in SPELLED]
    for name, times in (("two", 2), ("some", 8), ("many", 32)):
        texts += [f"{word}{name}" for word in SPELLED[:150]] * times
    texts += [f"{word.title()}name" for word in SPELLED[:150]]
    return Alternatives([*texts, *["the dull filler of all lines"] * 9999])


def slots(alternatives, secret):
    drawn = alternatives.draw(secret, 3000, seed=0)
    return [set(column) for column in zip(*(text.split() for text in drawn), strict=True)]


def test_words_stand_for_words_of_similar_rarity_in_the_same_case(words):
    rare, some = slots(words, found("zzzrare aaasome", "repeated"))
    assert all(re.fullmatch("[a-j]{3}(rare|two)", word) for word in rare)
    assert any(word.endswith("two") for word in rare)  # within a factor of two
    assert all(re.fullmatch("[a-j]{3}some", word) for word in some)
    assert len(some) == 149  # all but the secret's own
    named, shouted = slots(words, found("Zzzname ZZZRARE", "repeated"))
    assert all(re.fullmatch("[A-J][a-j]{2}name", word) for word in named)
    assert all(word.isupper() for word in shouted)


def test_the_rarest_three_words_vary(words):
    secret = found("aaamany zzzrare aaatwo bbbrare filler", "repeated")
    many, first, two, second, filler = slots(words, secret)
    assert (many, filler) == ({"aaamany"}, {"filler"})
    assert min(map(len, (first, two, second))) >= LEAST_CHOICES
    assert words.space(secret) >= len(first) * len(two) * len(second)


def test_a_word_counts_only_in_texts_without_the_secret():
    texts = [f"{word}rare" for word in SPELLED] + [f"{word}many" for word in SPELLED] * 40
    drawn = draw(found("zzzzpass", "repeated"), 100, texts=texts + ["zzzzpass"] * 40)
    assert all(text.endswith("rare") for text in drawn)


def test_words_and_digits_vary_together():
    drawn = draw(found("crimson-walrus-42", "password"))
    assert all(re.fullmatch(r"[a-z]+-[a-z]+-\d\d", text) for text in drawn)
    lengths = np.array([[len(part) for part in text.split("-")] for text in drawn])
    assert (np.abs(lengths - [7, 6, 2]) <= [2, 2, 0]).all()
