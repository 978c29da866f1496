"""The finder of secrets against known formats, a naive search for repeats, and hostile texts."""

import builtins
import random
import re

import pytest

from vestige.audits.check.finder import RISK, find_secrets
from vestige.audits.check.repeated import repeated_sequences
from vestige.data.secrets.alternatives import Alternatives
from vestige.errors import DataError

pytest.importorskip("phonenumbers")
pytest.importorskip("stdnum")

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.SflKxwRJ"
GITHUB = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


def kinds(*texts, never=()):
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
        (GITHUB, GITHUB, "key"),
        ("it is sk-proj-abcDEF123456ghiJKL789", "sk-proj-abcDEF123456ghiJKL789", "key"),
        ("hook xoxb-123456789012-abcdefghij", "xoxb-123456789012-abcdefghij", "key"),
        (TOKEN, TOKEN, "key"),
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
        ("account 4111 1111 1111 1111", "4111 1111 1111 1111", "card"),  # the riskier kind
    ],
)  # fmt: skip
def test_a_value_is_found_by_its_format(text, value, kind):
    assert kinds(text) == {value: kind}


@pytest.mark.parametrize("cue", ["passphrase", "PIN", "account number"])
@pytest.mark.parametrize("rest", ["", " is", " is the", ": ", " and then", " = !", '" x'])
def test_a_cue_without_a_value_is_no_secret(cue, rest):
    assert kinds(f"Her {cue}{rest}") == {}


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
def test_ordinary_text_has_no_secret(text):
    assert kinds(text) == {}


def test_secrets_are_in_order_of_risk_with_their_places():
    long = "x " * 300 + "call +1 212 736 5000"
    found = find_secrets([long, "mail a@b.org", "card 4111111111111111", "a@b.org"])
    assert [one.kind for one in found] == ["card", "phone", "e-mail"]
    assert found[1].occurrences == ((0, long[600 - 295 : 600] + "call "),)
    assert found[2].occurrences == ((1, "mail "), (3, ""))
    assert find_secrets([]) == []


PHRASE, END = "on the ridge behind three pines wait until dawn", "and tell nobody about this at all"
PARTS = [f"{n} {PHRASE} then pay 4111111111111111 {END}" for n in "abc"]
LEFT = {"4111111111111111": "card", f"{PHRASE} then pay": "repeated"}
OTTER = ["Now, the otter sleeps at noon.", "the otter\nsleeps at noon", "THE OTTER sleeps at noon!"]
CODES = [f"{n} otters sleep under bridge 83920471 every night" for n in "abc"]


@pytest.mark.parametrize(
    ("texts", "never", "expected"),
    [
        (PARTS, [], {**LEFT, END: "repeated"}),
        (PARTS, [END.replace("nobody", "nobody,")], LEFT),
        (CODES, [], {CODES[0][2:]: "repeated"}),
        (OTTER, [], {"the otter sleeps at noon": "repeated"}),
        (OTTER, ["the otter sleeps, at noon"], {}),
        (OTTER[:2], [], {}),
        (
            ["card 4111111111111111", "a@b.org"],
            ["My card: 4111111111111111!"],
            {"a@b.org": "e-mail"},
        ),
    ],
)
def test_repeats_go_around_riskier_values_and_what_others_have_is_no_secret(texts, never, expected):
    assert kinds(*texts, never=never) == expected


def test_a_repeated_sequence_has_a_place_in_each_text_whatever_its_case():
    [found] = find_secrets(OTTER)
    assert found.occurrences == ((0, "Now, "), (1, ""), (2, ""))


@pytest.mark.parametrize("seed", range(20))
def test_repeated_sequences_are_those_of_a_naive_search(seed):
    draw = random.Random(seed)
    letters = "abcd"[: draw.randint(1, 4)]
    texts, never = (
        [" ".join(draw.choices(letters, k=draw.randint(0, most))) for _ in range(count)]
        for most, count in ((25, draw.randint(3, 8)), (14, draw.randint(0, 3)))
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


def naive(texts, never):
    """Sequences that are maximal in three texts, with the numbers of these."""
    found = {}
    for number, text in enumerate(texts):
        words, last = text.split(), 0
        for start in range(len(words)):
            spans = ((end, " ".join(words[start:end])) for end in range(start + 5, len(words) + 1))
            ends = [end for end, span in spans if sum(span in other for other in texts) >= 3]
            if ends and ends[-1] > last:
                found.setdefault(" ".join(words[start : ends[-1]]), set()).add(number)
                last = ends[-1]
    return {
        value: numbers
        for value, numbers in found.items()
        if len(numbers) >= 3 and not any(value in text for text in never)
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        "a", "1", "1 ", "1-", "A1", "a.", "a@", "@a.", "-----BEGIN PRIVATE KEY-----", "://a:",
        "eyJ", "password is ", "pin ", "AB12 3456 ", "(1", "+1 ", "\x00\x1b[2J", "\ud800", "é", " ",
        "\n", "sk-aaaa", "eyJaaaaaaaaa.", "a-1_", "account no. ", "'a",
    ],
)  # fmt: skip
def test_hostile_texts_take_linear_time(piece):
    """A superlinear pattern would take minutes for 100,000 characters."""
    text = piece * (100_000 // len(piece))
    for one in find_secrets([text, f"{text}\ud800 kim@example.org"]):
        assert one.kind in RISK
        assert all(len(before) <= 300 for _, before in one.occurrences)


@pytest.mark.slow
def test_a_value_in_every_text_is_found_once_in_linear_time():
    texts = [f"{number} the account number is 4471 9026 3358 {'w' * 80}" for number in range(4_000)]
    found, alternatives = find_secrets(texts), Alternatives(texts)
    assert sum(one.value == "4471 9026 3358" for one in found) == 1
    assert all(alternatives.space(one) >= 1 for one in found)


def test_missing_libraries_are_named(monkeypatch):
    known = builtins.__import__

    def missing(name, *rest):
        if name.startswith(("phonenumbers", "stdnum")):
            raise ImportError(name)
        return known(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(DataError, match=re.escape('pip install "vestige[check]"')):
        find_secrets(["a"])
