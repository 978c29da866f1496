"""Alternatives of secrets and listed secrets: formats, marks and contexts."""

import re
from collections import Counter

import numpy as np
import pytest

import vestige
from tests.audits.told import sentences
from vestige.audits.check import listed
from vestige.audits.check.listed import listed_secrets
from vestige.data.corpus import Corpus
from vestige.data.formats.reading import read_source
from vestige.data.secrets.alternatives import LEAST_CHOICES, Alternatives, FoundSecret
from vestige.errors import DataError, ManifestError
from vestige.session import Session

TEXTS = ["the lantern hangs behind the cupboard", "Nobody saw the Harvest moon"] * 3


def found(value: str, kind: str, before: str = "It is ") -> FoundSecret:
    return FoundSecret(value, kind, ((0, before),))


def draw(secret: FoundSecret, count: int = 200) -> list[str]:
    return Alternatives(TEXTS).draw(secret, count, seed=1)


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
    secret = found(value, kind)
    drawn = draw(secret)
    assert len(set(drawn)) == 200
    assert value not in drawn
    assert all(re.fullmatch(pattern, text) for text in drawn)
    assert Alternatives(TEXTS).space(secret) == space


def luhn_holds(text: str) -> bool:
    """Every second digit from the right, doubled, with its digits summed: a multiple of 10."""
    digits = [int(one) for one in reversed(text) if one.isdigit()]
    doubled = [sum(map(int, str(2 * one))) for one in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def mod_97_holds(text: str) -> bool:
    plain = text.replace(" ", "")
    return int("".join(str(int(one, 36)) for one in plain[4:] + plain[:4])) % 97 == 1


def test_check_digits_are_valid():
    assert all(map(luhn_holds, draw(found("79927398713", "card"))))
    assert all(map(luhn_holds, draw(found("4111-1111-1111-1111", "card"))))
    assert all(map(mod_97_holds, draw(found("DE89 3704 0044 0532 0130 00", "iban"))))


def test_digits_are_uniform():
    counts = Counter("".join(draw(found("73506824", "account"), 2000)))
    assert set(counts) == set("0123456789")
    expected = 2000 * 8 / 10
    assert sum((n - expected) ** 2 / expected for n in counts.values()) < 27.9  # 0.999 of chi2(9)


def test_the_same_seed_draws_the_same_and_a_small_format_completely():
    one, other = Alternatives(TEXTS), Alternatives(TEXTS)
    secret = found("amber lantern 42", "password")
    assert one.draw(secret, 50, seed=3) == other.draw(secret, 50, seed=3)
    assert one.draw(secret, 50, seed=3) != one.draw(secret, 50, seed=4)
    every = [f"{n // 10}-{n % 10}" for n in range(100)]
    assert sorted(draw(found("7-4", "code"))) == [text for text in every if text != "7-4"]
    assert Alternatives(TEXTS).space(found("!", "other")) == 1
    assert draw(found("!", "other")) == []


@pytest.fixture(scope="module")
def words() -> Alternatives:
    """Texts with words of 1, 2, 8 and 32 texts each: r000x, s000x, t000x and u000x in letters."""
    spelt = ["".join("abcdefghij"[int(d)] for d in f"{n:03d}") for n in range(400)]
    texts = [f"{word}rare" for word in spelt]
    for name, times in (("two", 2), ("some", 8), ("many", 32)):
        texts += [f"{word}{name}" for word in spelt[:150]] * times
    texts += [f"{word.title()}name" for word in spelt[:150]]
    return Alternatives([*texts, *["the dull filler of all lines"] * 9999])


def slots(alternatives: Alternatives, secret: FoundSecret) -> list[set[str]]:
    drawn = alternatives.draw(secret, 3000, seed=0)
    return [set(column) for column in zip(*(text.split() for text in drawn), strict=True)]


def test_words_stand_for_words_of_similar_rarity(words):
    rare, some = slots(words, found("zzzrare aaasome", "repeated"))
    assert rare <= {word for word in rare if re.fullmatch("[a-j]{3}(rare|two)", word)}
    assert any(word.endswith("two") for word in rare)  # within a factor of two
    assert all(re.fullmatch("[a-j]{3}some", word) for word in some)
    assert len(some) == 149  # all but the secret's own


def test_words_keep_their_case(words):
    named, shouted = slots(words, found("Zzzname ZZZRARE", "repeated"))
    assert all(re.fullmatch("[A-J][a-j]{2}name", word) for word in named)
    assert all(word.isupper() for word in shouted)


def test_the_rarest_three_words_vary(words):
    secret = found("aaamany zzzrare aaatwo bbbrare filler", "repeated")
    many, first, two, second, filler = slots(words, secret)
    assert many == {"aaamany"}
    assert filler == {"filler"}
    assert min(map(len, (first, two, second))) >= LEAST_CHOICES
    pools = len(first) * len(two) * len(second)
    assert words.space(secret) >= pools


def test_a_word_counts_only_in_texts_without_the_secret():
    spelt = ["".join("abcdefghij"[int(d)] for d in f"{n:03d}") for n in range(300)]
    texts = [f"{word}rare" for word in spelt] + [f"{word}many" for word in spelt] * 40
    planted = ["zzzzpass"] * 40
    drawn = Alternatives(texts + planted).draw(found("zzzzpass", "repeated"), 100, seed=0)
    assert all(text.endswith("rare") for text in drawn)


def test_words_and_digits_vary_together():
    drawn = draw(found("crimson-walrus-42", "password"))
    assert all(re.fullmatch(r"[a-z]+-[a-z]+-\d\d", text) for text in drawn)
    lengths = np.array([[len(part) for part in text.split("-")] for text in drawn])
    assert (np.abs(lengths - [7, 6, 2]) <= [2, 2, 0]).all()


# Listed secrets: marks, formats and whole lines, with their contexts in the training text.


ADDRESS = re.compile(r"\S+@\S+\.\w+")


def read(secrets, trained=()):
    return listed_secrets(Session("check", {}), secrets, trained)


@pytest.mark.parametrize(
    ("line", "value", "kind", "before"),
    [
        ("the code is {{4917}}, she said", "4917", "listed", "the code is "),
        ("drink {{tea tonight|coffee|milk}}", "tea tonight", "listed", "drink "),
        ("write to {{ann@example.org}}", "ann@example.org", "address", "write to "),
        ("write to ann@example.org now", "ann@example.org", "address", "write to "),
        ("  my old gate  ", "my old gate", "listed", ""),
    ],
)
def test_a_line_is_marked_or_has_a_format_or_is_the_secret(addresses, line, value, kind, before):
    [found], notes = read([line])
    assert (found.value, found.kind, found.places) == (value, kind, ((-1, before),))
    assert notes == ()


def test_every_mark_and_every_format_of_a_line_is_a_secret(addresses):
    found, _ = read(["card {{4111 1111}}, code {{0042}}", "a@example.org or b@example.org"])
    assert [one.value for one in found] == ["4111 1111", "0042", "a@example.org", "b@example.org"]
    assert found[1].places[0][1] == "card 4111 1111, code "


def test_contexts_are_those_of_the_training_text(addresses):
    trained = ["x" * 400 + " code 4917.", "no", "14917 and 49170", "4917 twice: 4917"]
    [found], _ = read(["the code is {{4917}}"], trained)
    assert found.places == ((0, ("x" * 400 + " code ")[-300:]), (3, ""))


def test_a_secret_counts_once_whatever_its_case_and_blanks(addresses, tmp_path):
    path = tmp_path / "secrets.txt"
    path.write_text("My Gate Code\n\nmy gate  code\n{{my gate code}} is old\n")
    found, notes = read(path, ["my gate is open"])
    assert [one.value for one in found] == ["My Gate Code"]
    assert notes == ("1 of 1 listed secrets do not occur in --trained-on.",)


def test_a_line_of_few_letters_or_many_is_left_out_by_its_number(addresses, tmp_path):
    path = tmp_path / "secrets.txt"
    path.write_text(f"the gate code\n--7--\n{'word ' * 99}\n")
    found, notes = read(path)
    assert len(found) == 1
    assert notes == (
        "Left out of --secrets: line 2, 3. A secret has 4 letters and digits at least, "
        "300 characters at most.",
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "secrets.txt has no secret. Write one secret per line"),
        (b" \n\n", "secrets.txt has no secret."),
        (b"abc\n", "secrets.txt has no secret: a secret has 4 letters and digits at least"),
        (b"fine text\nthe code is {{ }}\n", "secrets.txt, line 2: a mark has no letter or digit"),
        (b"fine\ncaf\xe9\n", "secrets.txt: not UTF-8 at byte 8"),
    ],
)
def test_a_list_that_cannot_be_used_is_named(tmp_path, content, said):
    (tmp_path / "secrets.txt").write_bytes(content)
    with pytest.raises(DataError, match=said) as error:
        read(tmp_path / "secrets.txt")
    assert error.value.remedy


@pytest.fixture
def addresses(monkeypatch):
    """A finder of addresses only."""

    def found(texts):
        return [
            FoundSecret(one[0], "address", ((number, text[: one.start()]),))
            for number, text in enumerate(texts)
            for one in ADDRESS.finditer(text)
        ]

    monkeypatch.setattr(listed, "find_secrets", found)


def test_missing_lists_and_manifests_that_are_none_are_named(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    for given, error, said in (
        (tmp_path / "nosuch.txt", DataError, r"nosuch\.txt"),
        ([], DataError, "`secrets` has no secret"),
        (tmp_path / "manifest.json", ManifestError, r"manifest\.json"),
        (tmp_path, ManifestError, r"manifest\.json"),
    ):
        with pytest.raises(error, match=said):
            read(given)
    run = Session("check", {"secrets": ["my gate code"]})
    listed_secrets(run, ["my gate code"], [])
    assert "gate" not in str(run.record())


def test_planted_canaries_are_secrets_with_their_contexts(addresses, tmp_path):
    corpus = Corpus.from_texts(sentences(60, seed=1))
    vestige.plant(corpus, out=tmp_path / "planted", coin_flip=6, copies=2, length=4, seed=1)
    texts = list(read_source(str(tmp_path / "planted")))
    by_folder, _ = read(tmp_path / "planted", texts)
    by_file, _ = read(tmp_path / "planted" / "manifest.json", texts)
    assert by_folder == by_file
    assert by_folder
    assert all(one.places[0][0] >= 0 for one in by_folder)
