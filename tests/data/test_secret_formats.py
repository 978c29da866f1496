"""Formats of secrets: their varying parts and alternatives."""

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
    """Luhn's check with a table of doubled digits."""
    doubled = "0246813579"
    total = sum(
        int(doubled[int(character)] if position % 2 else character)
        for position, character in enumerate(digits[::-1])
    )
    return total % 10 == 0


def test_the_check_digit_of_luhns_own_example():
    assert luhn_valid("79927398713")


def iban_valid(text):
    """The check digits by a remainder, digit by digit."""
    plain = text.replace(" ", "")
    remainder = 0
    for character in plain[4:] + plain[:4]:
        for digit in str(int(character, 36)):
            remainder = (remainder * 10 + int(digit)) % 97
    return remainder == 1


def shape(text):
    """The text with one sign for all digits, capitals and small letters."""
    return re.sub(r"[a-z]", "a", re.sub(r"[A-Z]", "A", re.sub(r"\d", "0", text)))


@pytest.mark.parametrize(("kind", "line"), LINES.items())
def test_alternatives_have_the_format_of_the_varying_part(kind, line):
    secret = read_secret(line, 1)
    assert (secret.kind, secret.text) == (kind, line)
    generator = np.random.default_rng(0)
    (part,) = secret.parts
    prefix, value, suffix = line[: part.start], line[part.start : part.end], line[part.end :]
    texts = [secret.draw(generator) for _ in range(300)]
    assert len(set(texts)) > 200
    for text in texts:
        assert text.startswith(prefix)
        assert text.endswith(suffix)
        other = text[len(prefix) : len(text) - len(suffix)]
        if kind in ("code", "card", "iban", "phone", "key"):
            assert shape(other) == shape(value)
        if kind == "card":
            assert luhn_valid(re.sub(r"\D", "", other))
            assert other[:7] == value[:7]
        if kind == "iban":
            assert iban_valid(other)
            assert (other[:2], other[5:9]) == (value[:2], value[5:9])
        if kind == "phone":
            assert other.startswith("+44 20 7946 ")
        if kind == "key":
            assert other.startswith("ghp_")
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
        (
            "card 4539148803436467",
            10**9,
        ),  # sixteen digits without the issuer's six and the check digit
        ("GB82WEST12345698765432", 10**14),  # the BBAN without the bank's four letters
        ("0123 456789", 10**4),  # area and exchange codes are fixed
        ("id {{aB-7}}", 26 * 26 * 10),
        ("key 9f86d081884c7d659a2feaa0c55ad015", 16**32),
    ],
)
def test_the_number_of_alternatives_equals_a_count_by_hand(line, size):
    assert read_secret(line, 1).size == size


@pytest.mark.parametrize(
    "line",
    ["the pin is 49 17", "{{tea|coffee}} on 3 May", "id {{b7}}", "born {{7}} and {{ab1}}"],
)
def test_all_alternatives_are_listed_once_and_samples_are_among_them(line):
    secret = read_secret(line, 1)
    texts = list(secret.all_texts())
    assert len(texts) == len(set(texts)) == secret.size
    assert secret.text in texts
    generator = np.random.default_rng(1)
    assert {secret.draw(generator) for _ in range(200)} <= set(texts)


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
def test_in_a_piece_only_one_part_varies(line, patterns):
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
def test_parts_agree_with_the_text_of_the_secret(line):
    secret = read_secret(line, 1)
    for part in secret.parts:
        assert part.text == secret.text[part.start : part.end]
        assert all(value in slot for value, slot in zip(part.values, part.slots, strict=True))
    for _, form in secret.forms():
        assert all(part.text == form.text[part.start : part.end] for part in form.parts)
    assert all(piece.size >= 100 for piece in secret.pieces())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "date_format"),
    [
        ("due 3 May 1987", "due %d %B %Y"),
        ("due 03/05/1987", "due %d/%m/%Y"),
        ("due 1987-05-03", "due %Y-%m-%d"),
    ],
)
def test_all_dates_are_days_of_the_calendar(line, date_format):
    texts = list(read_secret(line, 1).all_texts())
    assert len({datetime.strptime(text, date_format) for text in texts}) == len(texts) == 36_500


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("account number 12345678", "code"),
        ("account 0123 456 789", "code"),
        ("sort code 12-34-56, 12345678", "code"),
        ("invoice 2024 55501", "code"),
        ("call 555 0199", "phone"),
        ("+44 20 7946 0958", "phone"),
        ("due 31 February 1990", "code"),
        ("{{4539 1488 0343 6467}}", "card"),
        ("4539 1488 0343 6468", "code"),  # a wrong check digit
    ],
)
def test_ambiguous_numbers_are_classified_by_context_and_validity(line, kind):
    assert read_secret(line, 1).kind == kind


@pytest.mark.parametrize("line", ["the pass phrase is purple kettle", "{{kidney stone}}", "Pike"])
def test_a_line_without_format_has_alternatives_of_listed_words(line):
    secret = read_secret(line, 1)
    assert (secret.kind, secret.has_format) == ("words", False)
    assert secret.size >= 1000
    text = secret.draw(np.random.default_rng(0))
    assert len(text.split()) == len(secret.text.split())
    assert text.istitle() == secret.text.istitle()


def test_unusable_and_repeated_lines_are_skipped_and_reported():
    lines = ["the code is 4917", "", "!!", "THE CODE IS 4917", "{{}}", "the code is {{4917}}"]
    monitor = RecordingMonitor()
    listed = read_own_secrets(lines, monitor=monitor)
    assert [secret.number for secret in listed.secrets] == [1]
    assert listed.repeated == 2
    assert [number for number, _ in listed.skipped] == [3, 5]
    assert monitor.lines[0].startswith("Secrets not used: secret 3: has no alternatives")
    with pytest.raises(DataError, match="no secret can be used: Secrets not used: secrets 1, 2: "):
        read_own_secrets(["!!", "?"])


@pytest.mark.parametrize("line", ["!!", "{{}}", "the code is {{}}", "{{tea|tea}}"])
def test_the_error_about_a_line_without_alternatives_gives_its_number_only(line):
    with pytest.raises(DataError, match="secret 7 ") as caught:
        read_secret(line, 7)
    assert line not in str(caught.value)
