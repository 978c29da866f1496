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
    return {secret.value: secret.kind for secret in find_secrets(texts, never)}


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
        ("account 4111 1111 1111 1111", "4111 1111 1111 1111", "card"),  # riskier
    ],
)  # fmt: skip
def test_secrets_are_found_by_format(text, value, kind):
    assert kinds(text) == {value: kind}


@pytest.mark.parametrize("cue", ["passphrase", "PIN", "account number"])
@pytest.mark.parametrize("rest", ["", " is", " is the", ": ", " and then", " = !", '" x'])
def test_a_cue_without_a_value_is_no_secret(cue, rest):
    assert kinds(f"Her {cue}{rest}") == {}


@pytest.mark.parametrize(
    "text",
    [
        "card 4111 1111 1111 1112 ok",  # invalid check digit
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


def test_secrets_are_sorted_by_risk_and_have_contexts():
    long = "x " * 300 + "call +1 212 736 5000"
    secrets = find_secrets([long, "mail a@b.org", "card 4111111111111111", "a@b.org"])
    assert [secret.kind for secret in secrets] == ["card", "phone", "e-mail"]
    assert secrets[1].occurrences == ((0, long[600 - 295 : 600] + "call "),)
    assert secrets[2].occurrences == ((1, "mail "), (3, ""))
    assert find_secrets([]) == []


PHRASE, END = "on the ridge behind three pines wait until dawn", "and tell nobody about this at all"
PARTS = [f"{n} {PHRASE} then pay 4111111111111111 {END}" for n in "abc"]
OTHER_SECRETS = {"4111111111111111": "card", f"{PHRASE} then pay": "repeated"}
OTTER = ["Now, the otter sleeps at noon.", "the otter\nsleeps at noon", "THE OTTER sleeps at noon!"]
CODES = [f"{n} otters sleep under bridge 83920471 every night" for n in "abc"]


@pytest.mark.parametrize(
    ("texts", "never", "expected"),
    [
        (PARTS, [], {**OTHER_SECRETS, END: "repeated"}),
        (PARTS, [END.replace("nobody", "nobody,")], OTHER_SECRETS),
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
def test_repeats_exclude_riskier_secrets_and_reference_texts(texts, never, expected):
    assert kinds(*texts, never=never) == expected


def test_repeated_sequences_ignore_case():
    [secret] = find_secrets(OTTER)
    assert secret.occurrences == ((0, "Now, "), (1, ""), (2, ""))


@pytest.mark.parametrize("seed", range(20))
def test_repeated_sequences_equal_a_naive_search(seed):
    rng = random.Random(seed)
    letters = "abcd"[: rng.randint(1, 4)]
    texts, never = (
        [" ".join(rng.choices(letters, k=rng.randint(0, longest))) for _ in range(count)]
        for longest, count in ((25, rng.randint(3, 8)), (14, rng.randint(0, 3)))
    )
    result = {}
    for positions in repeated_sequences(texts, never):
        number, start, end = positions[0]
        result[texts[number][start:end]] = {position[0] for position in positions}
    expected = naive(texts, never)
    assert result.items() <= expected.items()
    for value in expected.keys() - result.keys():  # overlaps longer ones at all positions
        for number in expected[value]:
            assert any(len(other) >= len(value) and number in result[other] for other in result)


def naive(texts, never):
    """Maximal sequences of at least three texts, with the numbers of these texts."""
    sequences = {}
    for number, text in enumerate(texts):
        words, last = text.split(), 0
        for start in range(len(words)):
            spans = ((end, " ".join(words[start:end])) for end in range(start + 5, len(words) + 1))
            ends = [end for end, span in spans if sum(span in other for other in texts) >= 3]
            if ends and ends[-1] > last:
                sequences.setdefault(" ".join(words[start : ends[-1]]), set()).add(number)
                last = ends[-1]
    return {
        value: numbers
        for value, numbers in sequences.items()
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
    """A superlinear pattern would need minutes for 100,000 characters."""
    text = piece * (100_000 // len(piece))
    for secret in find_secrets([text, f"{text}\ud800 kim@example.org"]):
        assert secret.kind in RISK
        assert all(len(before) <= 300 for _, before in secret.occurrences)


@pytest.mark.slow
def test_a_value_in_every_text_is_found_once_in_linear_time():
    texts = [f"{number} the account number is 4471 9026 3358 {'w' * 80}" for number in range(4_000)]
    secrets, alternatives = find_secrets(texts), Alternatives(texts)
    assert sum(secret.value == "4471 9026 3358" for secret in secrets) == 1
    assert all(alternatives.space(secret) >= 1 for secret in secrets)


def test_missing_libraries_are_named(monkeypatch):
    original_import = builtins.__import__

    def fail_import(name, *rest):
        if name.startswith(("phonenumbers", "stdnum")):
            raise ImportError(name)
        return original_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", fail_import)
    with pytest.raises(DataError, match=re.escape('pip install "vestige[check]"')):
        find_secrets(["a"])
