"""Which parts of a text have the format of a secret?

Card numbers, IBANs and US social security numbers by their rules (python-stdnum), telephone numbers
(phonenumbers), keys by their prefixes, e-mail addresses, long codes, and values after cue words
such as "password".

Every pattern is bounded or starts at the beginning of a run, so the time is linear in the text.
"""

import re
from collections.abc import Iterator
from math import log2
from typing import Any

from vestige.data.secret_kinds import phone
from vestige.errors import DataError

_LEAST_BITS = 24.0  # of a code of letters and digits
_REGION = "US"  # of telephone numbers without a country
_NEAR = 40  # characters before a number in which words decide its kind

Span = tuple[int, int, str]

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


class Formats:
    """Formats, with the optional libraries that know them.

    Raises:
        DataError: one of the libraries is not installed.
    """

    def __init__(self) -> None:
        try:
            import phonenumbers
            from stdnum import iban, luhn
            from stdnum.us import ssn
        except ImportError as error:
            raise DataError(
                "detecting secrets needs libraries that are not installed",
                remedy='Install them: pip install "vestige[check]".',
            ) from error
        self._phones: Any = phonenumbers
        self._is_iban, self._is_luhn, self._is_ssn = iban.is_valid, luhn.is_valid, ssn.is_valid

    def spans(self, text: str) -> list[Span]:
        """All values with a format, overlapping ones too."""
        found = [(*match.span(), "key") for match in _KEYS.finditer(text) if _random(match[0])]
        if "PRIVATE KEY" in text:
            found += [(*_stripped(match, 1), "key") for match in _PEM.finditer(text)]
        if "://" in text:
            found += [(*match.span(1), "password") for match in _IN_URL.finditer(text)]
        if "@" in text:
            found += [(*match.span(), _address(match)) for match in _EMAIL.finditer(text)]
        found += self._cued(text)
        if re.search("[0-9]", text):
            found += self._numbers(text)
        return found

    def _numbers(self, text: str) -> Iterator[Span]:
        for match in _CARD.finditer(text):
            digits = re.sub("[^0-9]", "", match[0])
            if (
                digits[0] in "23456"
                and _grouped(match[0])
                and len(set(digits)) > 1
                and self._is_luhn(digits)
            ):
                yield *match.span(), "card"
        for match in _IBAN.finditer(text):
            groups = match[0].split(" ")
            for last in range(len(groups), 0, -1):
                own = " ".join(groups[:last])
                if len(own) >= 15 and self._is_iban(own):
                    yield match.start(), match.start() + len(own), "iban"
                    break
        for match in _SSN.finditer(text):
            if self._is_ssn(match[0]):
                yield *match.span(), "ssn"
        for match in _PHONE.finditer(text):
            yield from self._phone(match[0], match.start(), text)
        for match in _CODE.finditer(text):
            if _coded(match[0], text[max(0, match.start() - 4) : match.start()]):
                yield *match.span(), "code"

    def _phone(self, own: str, start: int, text: str) -> Iterator[Span]:
        """Numbers that are assigned, or that follow a word such as "call"."""
        if not 7 <= sum(one.isdigit() for one in own) <= 15 or _DATE.match(own):
            return
        if not _dialled(own):
            return
        if not own.isdigit():
            matcher = self._phones.PhoneNumberMatcher(own, _REGION, max_tries=8)
            for match in matcher:
                yield start + match.start, start + match.end, "phone"
        near = text[max(0, start - _NEAR) : start]
        # A leading 0 alone does not make a number one: tables have many.
        if own[0].isdigit() and phone(f"1{own[1:]}", near):
            yield start, start + len(own), "phone"

    def _cued(self, text: str) -> Iterator[Span]:
        for cue in _CUE.finditer(text):
            start = cue.end()
            linked = bool(cue["link"] or cue["quote"])
            if cue["account"] is not None:
                value = _NUMBER.match(text, start)
                if value and _accounted(value[0], linked or cue["number"] is not None):
                    social = cue["account"].lower().startswith(("ssn", "soc"))
                    kind = (
                        "ssn" if social and self._is_ssn(value[0].replace(" ", "-")) else "account"
                    )
                    yield start, value.end(), kind
            elif cue["phrase"] is not None and linked and (words := _WORDS.match(text, start)):
                if words[0].split(" ", 1)[0].lower() not in _FUNCTION:
                    yield start, words.end(), "password"
            elif cue["secret"] is not None and (token := _TOKEN.match(text, start)):
                own = token[0].rstrip(".,;:!?)]}")
                marked = bool(cue["quote"]) or (cue["link"] or "").strip() in {":", "=", "#"}
                secret = cue["secret"].lower()
                pin = secret in {"pin", "combination"} or secret.endswith(" code")
                ends = _END.match(text, start + len(own))
                if len(own) >= 3 and _spelled(own, linked, marked, pin, ends is not None):
                    yield start, start + len(own), "password"


def _stripped(match: re.Match[str], group: int) -> tuple[int, int]:
    """Span of a group without white space at its ends."""
    own = match[group]
    return (
        match.start(group) + len(own) - len(own.lstrip()),
        match.end(group) - len(own) + len(own.rstrip()),
    )


def _address(match: re.Match[str]) -> str:
    """An e-mail address, or the number of a message, as in <5893.1993@example.org>."""
    numbered = match.string[match.start() - 1 : match.start()] == "<"
    return "code" if numbered and len(re.findall("[0-9]", match[0].split("@")[0])) > 4 else "e-mail"


def _grouped(own: str) -> bool:
    """Whether digits are grouped as on a card."""
    groups = re.split("[ -]", own)
    return len(set(re.findall("[ -]", own))) < 2 and min(map(len, groups)) > 3


def _dialled(own: str) -> bool:
    """Whether digits are grouped as a telephone number, not as a table, a decimal or an address."""
    groups = re.findall("[0-9]+", own)
    if "." in own and (len(groups) == 2 or re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}", own)):
        return False
    loose = "  " in own or sum(map(len, groups)) < 2.5 * len(groups)
    return own.startswith("+") or not loose


def _random(own: str) -> bool:
    """Whether a key has digits or letters of both cases: `sk-learn-contributors` has none."""
    return bool(
        re.search("[0-9]", own[4:]) or (re.search("[a-z]", own) and re.search("[A-Z]", own))
    )


def _spelled(own: str, linked: bool, marked: bool, pin: bool, ends: bool) -> bool:
    """Whether a token after a cue is a password rather than a word of the sentence."""
    digits = sum(one.isdigit() for one in own)
    if pin:
        return digits >= 3 and own.replace("-", "").isalnum() and not _DATE.fullmatch(own)
    if own.lower() in _PLAIN:
        return False
    mixed = digits > 0 or re.search(r"[^\w'’.,/:-]", own) or re.search("[a-z][A-Z]", own)
    if not linked:
        return digits > 0 and len(own) >= 6 and bool(re.search("[A-Za-z]", own))
    return bool(mixed) or (len(own) >= 4 and (marked or (ends and not own.endswith("ed"))))


def _accounted(own: str, linked: bool) -> bool:
    """Whether a token after a cue is a number."""
    digits = sum(one.isdigit() for one in own)
    if _DATE.fullmatch(own) or (_UNIT.fullmatch(own) and not own.isdigit()):
        return False
    return digits >= 4 if linked else digits >= 5


def _coded(own: str, before: str) -> bool:
    """Whether a token is a long number, or has enough random letters and digits."""
    digits = sum(one.isdigit() for one in own)
    if digits < 3 or len(set(own)) < 3 or _DATE.fullmatch(own):
        return False
    pieces = re.split("[-_]", own)
    if digits + len(pieces) - 1 == len(own):
        if len(pieces[0]) == 5 and digits in (5, 9) and _STATE.search(before):
            return False
        span = len(pieces) == 2 and max(map(len, pieces)) < 5 and int(pieces[0]) < int(pieces[1])
        return digits >= 5 and min(map(len, pieces)) > 1 and not span and own[-3:] != "000"
    if all(_UNIT.fullmatch(piece) for piece in pieces) or re.fullmatch("[0-9]+x[0-9]+", own):
        return False
    bits = digits * log2(10)
    for letters in re.findall("[A-Za-z]+", own):
        if len(letters) < 4 or not re.search("(?i)[aeiouy]", letters):
            bits += len(letters) * log2(26)
    return bits >= _LEAST_BITS
