"""Values in a text with the format of a secret.

Card numbers, IBANs and US social security numbers by their rules (python-stdnum), telephone numbers
(phonenumbers), keys by their prefixes, e-mail addresses, long codes, and values after cue words
such as "password". Unlike the lines of a list (`lines`), a text is rarely about secrets, so these
rules are stricter than those of `kinds`.

Each pattern is bounded or starts at the beginning of a run, so the time is linear in the text.
"""

import re
from collections.abc import Iterator
from math import log2

from vestige.data.secrets.kinds import luhn_digit, phone
from vestige.errors import DataError

LEAST_BITS = 24.0
"""Of a code of letters and digits."""

REGION = "US"
"""Of telephone numbers without a country code."""

CONTEXT = 40
"""Characters before a number that decide about its kind."""

Span = tuple[int, int, str]
"""(start, end, kind)."""

_KEYS = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:AKIA|ASIA|AGPA|AIDA|AROA)[A-Z0-9]{16}(?![A-Za-z0-9])"
    r"|(?:gh[pousr]_|github_pat_|hf_|npm_|glpat-)[A-Za-z0-9_-]{20,255}"
    r"|(?:sk|rk|pk)[_-](?:live_|test_|proj-|ant-)?[A-Za-z0-9_-]{16,255}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,255}"
    r"|AIza[A-Za-z0-9_-]{35}"
    r"|eyJ[A-Za-z0-9_-]{8,2048}\.[A-Za-z0-9_-]{8,4096}(?:\.[A-Za-z0-9_-]{0,1024})?)"
)
_PEM = re.compile(
    r"-----BEGIN (?:[A-Z]{1,12} ){0,3}PRIVATE KEY-----\s{0,4}([A-Za-z0-9+/=\s\\:,]{16,8192})"
)
_IN_URL = re.compile(r"://[^\s/:@]{1,64}:([^\s/@]{3,128})@")
_CARD = re.compile(
    r"(?<![A-Za-z0-9_-])(?<![0-9][ .,])[0-9](?:[ -]?[0-9]){12,18}(?![A-Za-z0-9_-]|[ .,][0-9])"
)
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{1,4}){3,8}(?![A-Za-z0-9])")
_SSN = re.compile(r"(?<![\w-])[0-9]{3}-[0-9]{2}-[0-9]{4}(?![\w-])")
_PHONE = re.compile(
    r"(?<![\w.,$€£/-])(?:\+|\((?=[0-9]{1,4}\)))?[0-9][0-9 ()./-]{5,24}[0-9](?![\w-]|[.,][0-9])"
)
_EMAIL = re.compile(
    r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}"
    r"(?![A-Za-z0-9-])"
)
_CODE = re.compile(
    r"(?<![\w$€£/@:=&?%#.,!-])(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9]{1,64}(?:[-_][A-Za-z0-9]{1,64}){0,7}(?![\w@/%!$-]|[.,:][0-9])"
)
_DATE = re.compile(
    r"(?:1[5-9]|20)[0-9]{2}(?:[-/.]?(?:0?[1-9]|1[0-2])[-/.]?(?:0?[1-9]|[12][0-9]|3[01]))?"
    r"|[0-9]{1,2}[-/.][0-9]{1,2}[-/.](?:[0-9]{2}){1,2}|(?:1[5-9]|20)[0-9]{2}[-/.](?:[0-9]{2}){1,2}"
)
_STATE = re.compile(r"\b[A-Z]{2}[ ,]{1,2}$")  # before a ZIP code
_UNIT = re.compile(
    r"(?i)[0-9]+(?:st|nd|rd|th|s|am|pm|x|k|m|h|g|kb|mb|gb|hz|mhz|ghz|km|mm|cm|px"
    r"|mins?|hrs?|lbs?|mph)?"
)
_CUE = re.compile(
    r"(?i)(?<!\w)(?:(?P<phrase>pass ?phrase)|(?P<secret>pass ?word|pass ?code|pwd|pin"
    r"|(?:access|security|gate|door|entry|alarm|safe|vault|login) code|combination"
    r"|api[ _-]?key|(?:access|auth|secret)[ _-](?:key|token))"
    r"|(?P<account>account|acct|member(?:ship)?|policy|invoice|passport|licen[cs]e|customer|order"
    r"|claim|routing|serial|confirmation|booking|case|ticket|reference|patient|employee|student"
    r"|ssn|social security))"
    r"(?P<number> (?:no\b\.?|numbers?|num|id|code|key|#))?"
    r"(?P<link> (?:is|was|will be|to)\b:?| ?[:=#])?[ \t]{0,3}(?P<quote>[\"'`“‘]?)"
)
_TOKEN = re.compile(r"[^\s\"'`“”‘’<>]{3,64}")
_WORDS = re.compile(r"[\w'’-]{2,32}(?: [\w'’-]{2,32}){1,9}")
_NUMBER = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9]|[-/.](?=[A-Za-z0-9])){2,63}(?: [0-9]{2,6}(?!\w)){0,6}"
)
_FUNCTION = frozenset(
    re.findall(
        r"\w+",
        "a all also always an and any are at being but by for from if in it just my never not now "
        "of on one only or so still that the their there this to too very what when which with "
        "your",
    )
)
_PLAIN = _FUNCTION | frozenset(
    re.findall(
        r"\w+",
        "available case changed correct currently easy empty encrypted enough expired good hidden "
        "incorrect invalid lost missing needed ok optional protected required reset right safe "
        "same secure sent set short stored strong unknown used valid weak wrong",
    )
)
_END = re.compile(r"[.!?;)]*(?:[ \t]*(?:\n|\Z)|(?<=[.!?;)])\s)")


def require_libraries() -> None:
    """Import the optional libraries for formats.

    Raises:
        DataError: one of them is not installed.
    """
    try:
        import phonenumbers  # noqa: F401
        from stdnum import iban  # noqa: F401
        from stdnum.us import ssn  # noqa: F401
    except ImportError as error:
        raise DataError(
            "detecting secrets needs libraries that are not installed",
            remedy='Install them: pip install "vestige[check]".',
        ) from error


def spans(text: str) -> list[Span]:
    """All values of a text with a format; they may overlap.

    Example:
        >>> spans("Her PIN is 4917, her mail kim@example.org.")
        [(26, 41, 'e-mail'), (11, 15, 'password')]
    """
    result = [(*match.span(), "key") for match in _KEYS.finditer(text) if _is_random(match[0])]
    if "PRIVATE KEY" in text:
        result += [(*_stripped_span(match), "key") for match in _PEM.finditer(text)]
    if "://" in text:
        result += [(*match.span(1), "password") for match in _IN_URL.finditer(text)]
    if "@" in text:
        result += [(*match.span(), _kind_of_address(match)) for match in _EMAIL.finditer(text)]
    result += _after_cues(text)
    if re.search("[0-9]", text):
        result += _numbers(text)
    return result


def _count_digits(text: str) -> int:
    return sum(map(str.isdigit, text))


def _stripped_span(match: re.Match[str]) -> tuple[int, int]:
    """Span of the first group without white space at its ends."""
    text = match[1]
    leading, trailing = len(text) - len(text.lstrip()), len(text) - len(text.rstrip())
    return match.start(1) + leading, match.end(1) - trailing


def _is_random(key: str) -> bool:
    """Whether a key has digits or letters of both cases, unlike `sk-learn-contributors`."""
    mixed = re.search("[a-z]", key) and re.search("[A-Z]", key)
    return bool(re.search("[0-9]", key[4:]) or mixed)


def _kind_of_address(match: re.Match[str]) -> str:
    """E-mail, or code for the number of a message, such as <5893.1993@example.org>."""
    numbered = match.string[match.start() - 1 : match.start()] == "<"
    return "code" if numbered and len(re.findall("[0-9]", match[0].split("@")[0])) > 4 else "e-mail"


def _numbers(text: str) -> Iterator[Span]:
    from stdnum import iban
    from stdnum.us import ssn

    for match in _CARD.finditer(text):
        if _is_card(match[0]):
            yield *match.span(), "card"
    for match in _IBAN.finditer(text):
        groups = match[0].split(" ")
        for last in range(len(groups), 0, -1):
            value = " ".join(groups[:last])
            if len(value) >= 15 and iban.is_valid(value):
                yield match.start(), match.start() + len(value), "iban"
                break
    for match in _SSN.finditer(text):
        if ssn.is_valid(match[0]):
            yield *match.span(), "ssn"
    for match in _PHONE.finditer(text):
        yield from _phones(match[0], match.start(), text)
    for match in _CODE.finditer(text):
        if _is_code(match[0], text[max(0, match.start() - 4) : match.start()]):
            yield *match.span(), "code"


def _is_card(text: str) -> bool:
    """Whether digits are grouped as on a card and have a valid check digit."""
    digits, groups = re.sub("[^0-9]", "", text), re.split("[ -]", text)
    return (
        digits[0] in "23456"
        and len(set(re.findall("[ -]", text))) < 2
        and min(map(len, groups)) > 3
        and len(set(digits)) > 1
        and luhn_digit(digits[:-1]) == digits[-1]
    )


def _phones(number: str, start: int, text: str) -> Iterator[Span]:
    """Assigned telephone numbers, and numbers after a word such as "call"."""
    import phonenumbers

    if not 7 <= _count_digits(number) <= 15 or _DATE.match(number) or not _is_dialled(number):
        return
    if not number.isdigit():
        for match in phonenumbers.PhoneNumberMatcher(number, REGION, max_tries=8):
            yield start + match.start, start + match.end, "phone"
    before = text[max(0, start - CONTEXT) : start]
    # Not with its first digit: tables have many numbers with a leading 0.
    if number[0].isdigit() and phone(f"1{number[1:]}", before):
        yield start, start + len(number), "phone"


def _is_dialled(text: str) -> bool:
    """Whether digits are grouped like a telephone number, not like a table, decimal or address."""
    groups = re.findall("[0-9]+", text)
    if "." in text and (len(groups) == 2 or re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}", text)):
        return False
    scattered = "  " in text or sum(map(len, groups)) < 2.5 * len(groups)
    return text.startswith("+") or not scattered


def _is_code(text: str, before: str) -> bool:
    """Whether a token is a long number, or has enough random letters and digits."""
    digits, pieces = _count_digits(text), re.split("[-_]", text)
    if digits < 3 or len(set(text)) < 3 or _DATE.fullmatch(text):
        return False
    if digits + len(pieces) - 1 == len(text):
        is_zip_code = len(pieces[0]) == 5 and digits in (5, 9) and _STATE.search(before)
        if is_zip_code:
            return False
        is_range = (
            len(pieces) == 2 and max(map(len, pieces)) < 5 and int(pieces[0]) < int(pieces[1])
        )
        return digits >= 5 and min(map(len, pieces)) > 1 and not is_range and text[-3:] != "000"
    if all(_UNIT.fullmatch(piece) for piece in pieces) or re.fullmatch("[0-9]+x[0-9]+", text):
        return False
    bits = digits * log2(10)
    for letters in re.findall("[A-Za-z]+", text):
        if len(letters) < 4 or not re.search("(?i)[aeiouy]", letters):
            bits += len(letters) * log2(26)
    return bits >= LEAST_BITS


def _after_cues(text: str) -> Iterator[Span]:
    """Passwords, passphrases and account numbers after words that announce them."""
    for cue in _CUE.finditer(text):
        start, linked = cue.end(), bool(cue["link"] or cue["quote"])
        if cue["account"] is not None:
            value = _NUMBER.match(text, start)
            if value and _is_account(value[0], linked or cue["number"] is not None):
                yield start, value.end(), _kind_of_account(cue["account"], value[0])
        elif cue["phrase"] is not None and linked and (words := _WORDS.match(text, start)):
            if words[0].split(" ", 1)[0].lower() not in _FUNCTION:
                yield start, words.end(), "password"
        elif cue["secret"] is not None and (token := _TOKEN.match(text, start)):
            value_text = token[0].rstrip(".,;:!?)]}")
            if len(value_text) >= 3 and _is_password(value_text, cue, linked):
                yield start, start + len(value_text), "password"


def _is_account(text: str, linked: bool) -> bool:
    if _DATE.fullmatch(text) or (_UNIT.fullmatch(text) and not text.isdigit()):
        return False
    return _count_digits(text) >= (4 if linked else 5)


def _kind_of_account(cue: str, text: str) -> str:
    from stdnum.us import ssn

    social = cue.lower().startswith(("ssn", "soc"))
    return "ssn" if social and ssn.is_valid(text.replace(" ", "-")) else "account"


def _is_password(text: str, cue: re.Match[str], linked: bool) -> bool:
    """Whether a token after a cue is a password, not a word of the sentence."""
    digits, cue_word = _count_digits(text), cue["secret"].lower()
    if cue_word in {"pin", "combination"} or cue_word.endswith(" code"):
        return digits >= 3 and text.replace("-", "").isalnum() and not _DATE.fullmatch(text)
    if text.lower() in _PLAIN:
        return False
    if not linked:
        return digits > 0 and len(text) >= 6 and bool(re.search("[A-Za-z]", text))
    if digits > 0 or re.search(r"[^\w'’.,/:-]", text) or re.search("[a-z][A-Z]", text):
        return True
    marked = cue["quote"] or (cue["link"] or "").strip() in {":", "=", "#"}
    ends_sentence = _END.match(cue.string, cue.end() + len(text))
    return len(text) >= 4 and bool(marked or (ends_sentence and not text.endswith("ed")))
