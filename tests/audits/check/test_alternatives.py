"""Alternatives of secrets: the same format, uniform digits, words of the same rarity."""

import re
from collections import Counter

import numpy as np
import pytest

from vestige.data.secrets.alternatives import LEAST_CHOICES, Alternatives, FoundSecret

TEXTS = ["the lantern hangs behind the cupboard", "Nobody saw the Harvest moon"] * 3
SPELLED = ["".join("abcdefghij"[int(d)] for d in f"{n:03d}") for n in range(400)]
"""Names of three letters each."""


def secret_of(value, kind):
    return FoundSecret(value, kind, ((0, "It is "),))


def sample(secret, count=200, *, texts=TEXTS, seed=1):
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
    samples = sample(secret_of(value, kind))
    assert len({*samples, value}) == 201
    assert all(re.fullmatch(pattern, text) for text in samples)
    assert Alternatives(TEXTS).space(secret_of(value, kind)) == space


def luhn_holds(text):
    """The Luhn checksum: every second digit from the right counts double."""
    digits = [int(character) for character in reversed(text) if character.isdigit()]
    doubled = [sum(map(int, str(2 * character))) for character in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def mod_97_holds(text):
    plain = text.replace(" ", "")
    return int("".join(str(int(character, 36)) for character in plain[4:] + plain[:4])) % 97 == 1


@pytest.mark.parametrize(
    ("value", "kind", "holds"),
    [
        ("79927398713", "card", luhn_holds),
        ("4111-1111-1111-1111", "card", luhn_holds),
        ("DE89 3704 0044 0532 0130 00", "iban", mod_97_holds),
    ],
)
def test_check_digits_are_valid(value, kind, holds):
    assert all(map(holds, sample(secret_of(value, kind))))


def test_digits_are_uniform():
    counts = Counter("".join(sample(secret_of("73506824", "account"), 2000)))
    expected = 2000 * 8 / 10
    deviation = sum((counts[digit] - expected) ** 2 / expected for digit in "0123456789")
    assert deviation < 27.9  # 0.999 of chi2(9)


def test_sampling_is_reproducible_and_exhausts_small_formats():
    secret = secret_of("amber lantern 42", "password")
    assert sample(secret, 50, seed=3) == sample(secret, 50, seed=3) != sample(secret, 50, seed=4)
    all_codes = [f"{n // 10}-{n % 10}" for n in range(100)]
    assert sorted(sample(secret_of("7-4", "code"))) == [text for text in all_codes if text != "7-4"]
    assert Alternatives(TEXTS).space(secret_of("!", "other")) == 1
    assert sample(secret_of("!", "other")) == []


@pytest.fixture(scope="module")
def rarity():
    """Texts with words of 1, 2, 8 and 32 texts each, and names."""
    texts = [f"{word}rare" for word in SPELLED]
    for name, times in (("two", 2), ("some", 8), ("many", 32)):
        texts += [f"{word}{name}" for word in SPELLED[:150]] * times
    texts += [f"{word.title()}name" for word in SPELLED[:150]]
    return Alternatives([*texts, *["the dull filler of all lines"] * 9999])


def slots(alternatives, secret):
    samples = alternatives.draw(secret, 3000, seed=0)
    return [set(column) for column in zip(*(text.split() for text in samples), strict=True)]


def test_words_are_replaced_by_words_of_similar_rarity_and_case(rarity):
    rare, some = slots(rarity, secret_of("zzzrare aaasome", "repeated"))
    assert all(re.fullmatch("[a-j]{3}(rare|two)", word) for word in rare)
    assert any(word.endswith("two") for word in rare)  # within a factor of two
    assert all(re.fullmatch("[a-j]{3}some", word) for word in some)
    assert len(some) == 149  # all except the word of the secret
    named, shouted = slots(rarity, secret_of("Zzzname ZZZRARE", "repeated"))
    assert all(re.fullmatch("[A-J][a-j]{2}name", word) for word in named)
    assert all(word.isupper() for word in shouted)


def test_the_three_rarest_words_are_replaced(rarity):
    secret = secret_of("aaamany zzzrare aaatwo bbbrare filler", "repeated")
    many, first, two, second, filler = slots(rarity, secret)
    assert (many, filler) == ({"aaamany"}, {"filler"})
    assert min(map(len, (first, two, second))) >= LEAST_CHOICES
    assert rarity.space(secret) >= len(first) * len(two) * len(second)


def test_rarity_is_counted_in_texts_without_the_secret():
    texts = [f"{word}rare" for word in SPELLED] + [f"{word}many" for word in SPELLED] * 40
    samples = sample(secret_of("zzzzpass", "repeated"), 100, texts=texts + ["zzzzpass"] * 40)
    assert all(text.endswith("rare") for text in samples)


def test_words_and_digits_are_both_replaced():
    samples = sample(secret_of("crimson-walrus-42", "password"))
    assert all(re.fullmatch(r"[a-z]+-[a-z]+-\d\d", text) for text in samples)
    lengths = np.array([[len(part) for part in text.split("-")] for text in samples])
    assert (np.abs(lengths - [7, 6, 2]) <= [2, 2, 0]).all()
