"""Formats of secrets: their varying parts and their alternatives."""

import re
from datetime import datetime

import numpy as np
import pytest

from tests.monitors import RecordingMonitor
from vestige.data.secrets.lines import read_own_secrets, read_secret
from vestige.errors import DataError

LINES = {
    "code": "The alarm code of Pike Lodge is 9 0 7 7 9 4.",
    "e-mail": "Write to okonkwo.139@fennmail.example today",
    "card": "My card is 4539 1488 0343 6467, thanks",
    "iban": "Pay into GB82 WEST 1234 5698 7654 32",
    "phone": "Call +44 20 7946 0958 after six",
    "key": "token=ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "date": "She was born on 12 September 1987",
    "name": "It was Emma Schmidt",
}


def luhn_valid(digits):
    """By a table of doubled digits instead of arithmetic."""
    doubled = "0246813579"
    total = sum(
        int(doubled[int(character)] if position % 2 else character)
        for position, character in enumerate(digits[::-1])
    )
    return total % 10 == 0


def iban_valid(text):
    """Remainder, digit by digit."""
    plain = text.replace(" ", "")
    remainder = 0
    for character in plain[4:] + plain[:4]:
        for digit in str(int(character, 36)):
            remainder = (remainder * 10 + int(digit)) % 97
    return remainder == 1


@pytest.mark.parametrize("kind", LINES)
def test_the_varying_part_is_recognized_by_its_kind(kind):
    secret = read_secret(LINES[kind], 1)
    assert secret.kind == kind
    assert secret.text == LINES[kind]
    generator = np.random.default_rng(0)
    (part,) = secret.parts
    around = LINES[kind][: part.start], LINES[kind][part.end :]
    texts = [secret.draw(generator) for _ in range(300)]
    assert len(set(texts)) > 200
    value = LINES[kind][part.start : part.end]
    for text in texts:
        assert text.startswith(around[0])
        assert text.endswith(around[1])
        other = text[len(around[0]) : len(text) - len(around[1])]
        if kind in ("code", "card", "iban", "phone", "key"):
            shape = re.sub(r"[a-z]", "a", re.sub(r"[A-Z]", "A", re.sub(r"\d", "0", other)))
            assert shape == re.sub(r"[a-z]", "a", re.sub(r"[A-Z]", "A", re.sub(r"\d", "0", value)))
        if kind == "card":
            assert luhn_valid(re.sub(r"\D", "", other))
            assert other[:7] == value[:7]
        if kind == "iban":
            assert iban_valid(other)
            assert (other[:2], other[5:9]) == (value[:2], value[5:9])
        if kind == "phone":
            assert other.startswith("+44 20 7946 ")
        if kind == "key":
            assert other.startswith("token=ghp_"[-len("ghp_") :]) or other.startswith("ghp_")
        if kind == "e-mail":
            assert other.endswith("@fennmail.example")


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("the code is 4917", 10**4),
        ("{{tea|coffee|milk}} at {{12}}", 3 * 100),
        ("on 3 May", 366),
        ("on 30 May 1987", 365 * 100),
        ("on 29 February 1988", 366 * 25),
        ("on 2024-02-03", 365 * 100),
        ("on 12/31/1999", 365 * 100),
        ("card 4539148803436467", 10**9),  # sixteen, less the issuer's six and the check digit
        ("GB82WEST12345698765432", 10**14),  # eighteen of BBAN, less the bank's four
        ("0123 456789", 10**4),  # the area and the exchange stay
        ("id {{aB-7}}", 26 * 26 * 10),
        ("key 9f86d081884c7d659a2feaa0c55ad015", 16**32),
    ],
)
def test_size_of_the_space_by_hand(line, size):
    assert read_secret(line, 1).size == size


@pytest.mark.parametrize(
    "line",
    ["the pin is 49 17", "{{tea|coffee}} on 3 May", "id {{b7}}", "born {{7}} and {{ab1}}"],
)
def test_all_alternatives_are_listed_once_and_are_those_that_are_sampled(line):
    secret = read_secret(line, 1)
    every = list(secret.all_texts())
    assert len(every) == len(set(every)) == secret.size
    assert secret.text in every
    generator = np.random.default_rng(1)
    assert {secret.draw(generator) for _ in range(200)} <= set(every)


@pytest.mark.parametrize(
    ("line", "patterns"),
    [
        ("a.smith27@mail.example", [r"a\.smith\d\d@mail\.example"]),
        ("from {{1234}} to {{5678}}", [r"from \d{4} to 5678", r"from 1234 to \d{4}"]),
        ("Emma Schmidt has {{asthma|eczema}}", []),
        ("{{Emma Schmidt}} has the code {{1234}}", [r"Emma Schmidt has the code \d{4}"]),
        ("the pin is 4917", []),
        ("card 4539148803436467", []),
    ],
)
def test_only_the_piece_varies(line, patterns):
    secret = read_secret(line, 1)
    generator = np.random.default_rng(0)
    pieces = secret.pieces()
    assert len(pieces) == len(patterns)
    for piece, pattern in zip(pieces, patterns, strict=True):
        texts = [piece.draw(generator) for _ in range(300)]
        assert all(re.fullmatch(pattern, text) for text in texts)
        assert len(set(texts)) > 50
        assert piece.text == secret.text


@pytest.mark.parametrize("line", [*LINES.values(), "{{a|b}} and {{tea|coffee}}", "1/2/1999"])
def test_a_part_has_the_values_of_the_secret(line):
    secret = read_secret(line, 1)
    for part in secret.parts:
        assert part.text == secret.text[part.start : part.end]
        assert all(value in slot for value, slot in zip(part.values, part.slots, strict=True))
    for _, form in secret.forms():
        assert all(part.text == form.text[part.start : part.end] for part in form.parts)
    assert all(piece.size >= 100 for piece in secret.pieces())


@pytest.mark.slow
@pytest.mark.parametrize("line", ["due 3 May 1987", "due 03/05/1987", "due 1987-05-03"])
def test_every_date_is_a_day_of_the_calendar(line):
    forms = {"M": "due %d %B %Y", "0": "due %d/%m/%Y", "1": "due %Y-%m-%d"}
    shape = forms["M"] if "May" in line else forms[line[4]]
    every = list(read_secret(line, 1).all_texts())
    assert len({datetime.strptime(text, shape) for text in every}) == len(every) == 36_500


def test_thirty_days_hath_february_nowhere():
    assert read_secret("due 31 February 1990", 1).kind == "code"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("account number 12345678", "code"),
        ("account 0123 456 789", "code"),
        ("sort code 12-34-56, 12345678", "code"),
        ("invoice 2024 55501", "code"),
        ("call 555 0199", "phone"),
        ("+44 20 7946 0958", "phone"),
    ],
)
def test_an_account_number_is_not_a_phone_number(line, kind):
    assert kind in read_secret(line, 1).kind


@pytest.mark.parametrize("line", ["the pass phrase is purple kettle", "{{kidney stone}}", "Pike"])
def test_the_alternatives_of_an_unmarked_line_have_listed_words(line):
    secret = read_secret(line, 1)
    assert (secret.kind, secret.has_format) == ("words", False)
    assert secret.size >= 1000
    text = secret.draw(np.random.default_rng(0))
    assert len(text.split()) == len(secret.text.split())
    assert text.istitle() == secret.text.istitle()


def test_all_lines_are_read_before_unusable_ones_are_named():
    lines = ["the code is 4917", "", "!!", "THE CODE IS 4917", "{{}}", "the code is {{4917}}"]
    monitor = RecordingMonitor()
    listed = read_own_secrets(lines, monitor=monitor)
    assert [secret.number for secret in listed.secrets] == [1]
    assert listed.repeated == 2
    assert [number for number, _ in listed.skipped] == [3, 5]
    assert monitor.lines[0].startswith("Secrets not used: secret 3: has no alternatives")
    with pytest.raises(DataError, match="no secret can be used: Secrets not used: secrets 1, 2: "):
        read_own_secrets(["!!", "?"])


def test_all_check_digits_of_a_small_space_are_valid():
    secret = read_secret("{{4539 1488 0343 6467}}", 1)
    assert secret.kind == "card"
    assert luhn_valid("4539148803436467")
    assert luhn_valid("79927398713")  # the standard's own example
    generator = np.random.default_rng(2)
    for _ in range(200):
        assert luhn_valid(secret.draw(generator).replace(" ", ""))


def test_a_number_with_a_wrong_check_digit_is_a_code():
    assert read_secret("4539 1488 0343 6468", 1).kind == "code"


@pytest.mark.parametrize("line", ["!!", "{{}}", "the code is {{}}", "{{tea|tea}}"])
def test_a_line_without_alternatives_is_refused_by_its_number(line):
    with pytest.raises(DataError, match="secret 7 ") as caught:
        read_secret(line, 7)
    assert line not in str(caught.value) or not line
