"""The finder of secrets against known formats, a naive search for repeats, and hostile texts."""

import builtins
import random
import re
from collections.abc import Sequence

import pytest

from vestige.audits.check.finder import RISK, find_secrets
from vestige.audits.check.repeated import repeated_sequences
from vestige.errors import DataError

# The finder: known formats, ordinary text, repeats, and hostile texts in linear time.

pytest.importorskip("phonenumbers")
pytest.importorskip("stdnum")


def kinds(*texts: str, never: Sequence[str] = ()) -> dict[str, str]:
    return {one.value: one.kind for one in find_secrets(texts, never)}


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("card 4111 1111 1111 1111 ok", "4111 1111 1111 1111", "card"),
        ("pay to DE89 3704 0044 0532 0130 00 FROM", "DE89 3704 0044 0532 0130 00", "iban"),
        ("his 536-90-4399 leaked", "536-90-4399", "ssn"),
        ("social security number 536904399", "536904399", "ssn"),
        ("at (212) 736-5000, please", "(212) 736-5000", "phone"),
        ("or +49 30 901820 in Berlin", "+49 30 901820", "phone"),
        ("use AKIAIOSFODNN7EXAMPLE now", "AKIAIOSFODNN7EXAMPLE", "key"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", *["ghp_abcdefghijklmnopqrstuvwxyz0123456789"],
         "key"),
        ("it is sk-proj-abcDEF123456ghiJKL789", "sk-proj-abcDEF123456ghiJKL789", "key"),
        ("hook xoxb-123456789012-abcdefghij", "xoxb-123456789012-abcdefghij", "key"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.SflKxwRJ",
         "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.SflKxwRJ", "key"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA75q\n-----END RSA PRIVATE KEY-----",
         "MIIEowIBAAKCAQEA75q", "key"),
        ("postgres://bob:tiger@db.example.com/x", "tiger", "password"),
        ("write to kim@example.org.", "kim@example.org", "e-mail"),
        ("parcel 83920471 is here", "83920471", "code"),
        ("parcel ABX-4471-QZ9 is here", "ABX-4471-QZ9", "code"),
        ("The passphrase is correct horse battery staple.", "correct horse battery staple",
         "password"),
        ("password: swordfish", "swordfish", "password"),
        ("my password is swordfish.", "swordfish", "password"),
        ("Your PIN is 4917.", "4917", "password"),
        ("gate code = 4917", "4917", "password"),
        ("account 88291044 is overdue", "88291044", "account"),
        ("Policy no. AB-1234-99 ends", "AB-1234-99", "account"),
        ("licence key X7F9-22KQ-91LM", "X7F9-22KQ-91LM", "account"),
    ],
)  # fmt: skip
def test_formats(text: str, value: str, kind: str) -> None:
    assert kinds(text) == {value: kind}


@pytest.mark.parametrize("cue", ["passphrase", "PIN", "account number"])
@pytest.mark.parametrize("rest", ["", " is", " is the", ": ", " and then", " = !", '" x'])
def test_a_cue_without_a_value_is_no_secret(cue: str, rest: str) -> None:
    assert not kinds(f"Her {cue}{rest}")


@pytest.mark.parametrize(
    "text",
    [
        "card 4111 1111 1111 1112 ok",  # no check digit
        "born 12/03/1984, in 1984-05-01 or 19840501",
        "version 2.10.3 on 216.239.59.99, Windows95, 1920x1080",
        "New York, NY 10025 for $12345 or 10,000,000",
        "The password is incorrect and must be changed.",
        "a member since 1998, case closed, order to go",
        "about 250-300 of 12000 at 10am-12pm",
        "82  53  95 148 1 and 4 3 5 4 3 3 7 7 9 7",
        "Emma Schmidt met Jon Doe",
    ],
)
def test_ordinary_text(text: str) -> None:
    assert kinds(text) == {}


def test_places_never_and_order() -> None:
    texts = [
        "x " * 300 + "call +1 212 736 5000",
        "mail a@b.org",
        "card 4111111111111111",
        "a@b.org",
    ]
    found = find_secrets(texts)
    assert [one.kind for one in found] == ["card", "phone", "e-mail"]
    assert found[2].places == ((1, "mail "), (3, ""))
    assert found[1].places == ((0, texts[0][600 - 295 : 600] + "call "),)
    assert [one.kind for one in find_secrets(texts, ["My card: 4111111111111111!"])] == [
        "phone", "e-mail",
    ]  # fmt: skip
    assert find_secrets([]) == []


def test_riskier_kind_wins_an_overlap() -> None:
    found = kinds("account 4111 1111 1111 1111")
    assert found == {"4111 1111 1111 1111": "card"}
    phrase = "on the ridge behind three pines wait until dawn"
    parts = [
        f"{n} {phrase} then pay 4111111111111111 and tell nobody about this at all" for n in "abc"
    ]
    found = kinds(*parts)
    assert found == {
        "4111111111111111": "card", f"{phrase} then pay": "repeated",
        "and tell nobody about this at all": "repeated",
    }  # fmt: skip
    found = kinds(*parts, never=["and tell nobody, about this at all"])
    assert found == {"4111111111111111": "card", f"{phrase} then pay": "repeated"}
    codes = [f"{n} otters sleep under bridge 83920471 every night" for n in "abc"]
    assert kinds(*codes) == {"otters sleep under bridge 83920471 every night": "repeated"}


def test_repeated_sequence_in_other_spelling() -> None:
    texts = [
        "Now, the otter sleeps at noon.",
        "the otter\nsleeps at noon",
        "THE OTTER sleeps at noon!",
    ]
    (found,) = find_secrets(texts)
    assert (found.value, found.kind) == ("the otter sleeps at noon", "repeated")
    assert found.places == ((0, "Now, "), (1, ""), (2, ""))
    assert find_secrets(texts, ["the otter sleeps, at noon"]) == []
    assert find_secrets(texts[:2]) == []


@pytest.mark.parametrize("seed", range(20))
def test_repeated_sequences_naive(seed: int) -> None:
    chosen = random.Random(seed)
    letters = "abcd"[: chosen.randint(1, 4)]
    texts, never = (
        [" ".join(chosen.choices(letters, k=chosen.randint(0, most))) for _ in range(count)]
        for most, count in ((25, chosen.randint(3, 8)), (14, chosen.randint(0, 3)))
    )
    found = {}
    for places in repeated_sequences(texts, never):
        number, start, end = places[0]
        found[texts[number][start:end]] = {place[0] for place in places}
    exact = naive(texts, never)
    assert found.items() <= exact.items()
    for value in exact.keys() - found.keys():  # it overlaps longer ones in all its places
        for number in exact[value]:
            assert any(len(one) >= len(value) and number in found[one] for one in found)


def naive(texts: list[str], never: list[str]) -> dict[str, set[int]]:
    """Sequences that are maximal in three texts."""
    found: dict[str, set[int]] = {}
    for number, text in enumerate(texts):
        words, last = text.split(), 0
        for start in range(len(words)):
            ends = [
                end for end in range(start + 5, len(words) + 1)
                if sum(" ".join(words[start:end]) in other for other in texts) >= 3
            ]  # fmt: skip
            if ends and ends[-1] > last:
                found.setdefault(" ".join(words[start : ends[-1]]), set()).add(number)
                last = ends[-1]
    return {
        value: numbers for value, numbers in found.items()
        if len(numbers) >= 3 and not any(value in text for text in never)
    }  # fmt: skip


HOSTILE = [
    "a", "1", "1 ", "1-", "A1", "a.", "a@", "@a.", "-----BEGIN PRIVATE KEY-----", "://a:", "eyJ",
    "password is ", "pin ", "AB12 3456 ", "(1", "+1 ", "\x00\x1b[2J", "\ud800", "é", " ", "\n",
    "sk-aaaa", "eyJaaaaaaaaa.", "a-1_", "account no. ", "'a",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_texts(piece: str) -> None:
    """A superlinear pattern would take minutes for 100,000 characters."""
    text = piece * (100_000 // len(piece))
    for one in find_secrets([text, f"{text}\ud800 kim@example.org"]):
        assert one.kind in RISK
        assert all(len(before) <= 300 for _, before in one.places)


def test_missing_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    known = builtins.__import__

    def missing(name: str, *rest: object) -> object:
        if name.startswith(("phonenumbers", "stdnum")):
            raise ImportError(name)
        return known(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(DataError, match=re.escape('pip install "vestige[check]"')):
        find_secrets(["a"])
