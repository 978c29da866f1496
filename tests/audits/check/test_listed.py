"""Listed secrets: marks, formats and whole lines, with their contexts in the training text."""

import re

import pytest

import vestige
from tests.audits.stories import sentences
from vestige.audits.check import listed
from vestige.audits.check.listed import listed_secrets
from vestige.data.corpus import Corpus
from vestige.data.formats.reading import read_source
from vestige.data.secrets.alternatives import FoundSecret
from vestige.errors import DataError, ManifestError
from vestige.session import Session

ADDRESS = re.compile(r"\S+@\S+\.\w+")


@pytest.fixture(autouse=True)
def address_finder(monkeypatch):
    """Replaces the finder: only addresses are secrets."""

    def find_addresses(texts):
        return [
            FoundSecret(match[0], "address", ((number, text[: match.start()]),))
            for number, text in enumerate(texts)
            for match in ADDRESS.finditer(text)
        ]

    monkeypatch.setattr(listed, "find_secrets", find_addresses)


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
def test_a_secret_is_a_mark_a_known_format_or_the_line(line, value, kind, before):
    [secret], notes = read([line])
    assert (secret.value, secret.kind, secret.occurrences) == (value, kind, ((-1, before),))
    assert notes == ()


def test_all_marks_and_formats_of_a_line_are_secrets():
    secrets, _ = read(["card {{4111 1111}}, code {{0042}}", "a@example.org or b@example.org"])
    values = ["4111 1111", "0042", "a@example.org", "b@example.org"]
    assert [secret.value for secret in secrets] == values
    assert secrets[1].occurrences[0][1] == "card 4111 1111, code "


def test_contexts_come_from_the_training_text():
    trained = ["x" * 400 + " code 4917.", "no", "14917 and 49170", "4917 twice: 4917"]
    [secret], _ = read(["the code is {{4917}}"], trained)
    assert secret.occurrences == ((0, ("x" * 400 + " code ")[-300:]), (3, ""))


def test_duplicates_are_merged_and_unusable_lines_are_numbered(tmp_path):
    path = tmp_path / "secrets.txt"
    path.write_text("My Gate Code\n\nmy gate  code\n{{my gate code}} is old\n")
    [secret], notes = read(path, ["my gate is open"])
    assert secret.value == "My Gate Code"
    assert notes == ("1 of 1 listed secrets do not occur in --trained-on.",)
    path.write_text(f"the gate code\n--7--\n{'word ' * 99}\n")
    [secret], notes = read(path)
    limits = "A secret has 4 letters and digits at least, 300 characters at most."
    assert notes == (f"Left out of --secrets: line 2, 3. {limits}",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "secrets.txt has no secret. Write one secret per line"),
        (b" \n\n", "secrets.txt has no secret."),
        (b"abc\n", "secrets.txt has no secret: a secret has 4 letters and digits at least"),
        (b"fine text\nthe code is {{ }}\n", "secrets.txt, line 2: a mark has no letter or digit"),
        (b"fine\ncaf\xe9\n", "secrets.txt: not UTF-8 at byte 8"),
    ],
)
def test_unusable_lists_are_named(tmp_path, content, message):
    (tmp_path / "secrets.txt").write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        read(tmp_path / "secrets.txt")
    assert error.value.remedy


def test_missing_lists_and_broken_manifests_are_named(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    for secrets, error, message in (
        (tmp_path / "nosuch.txt", DataError, r"nosuch\.txt"),
        ([], DataError, "`secrets` has no secret"),
        (tmp_path / "manifest.json", ManifestError, r"manifest\.json"),
        (tmp_path, ManifestError, r"manifest\.json"),
    ):
        with pytest.raises(error, match=message):
            read(secrets)


def test_the_record_contains_no_secret():
    run = Session("check", {"secrets": ["my gate code"]})
    listed_secrets(run, ["my gate code"], [])
    assert "gate" not in str(run.record())


def test_planted_canaries_are_secrets_with_their_contexts(tmp_path):
    corpus, planted = Corpus.from_texts(sentences(60, seed=1)), tmp_path / "planted"
    vestige.plant(corpus, out=planted, coin_flip=6, copies=2, length=4, seed=1)
    texts = list(read_source(str(planted)))
    by_folder, _ = read(planted, texts)
    by_file, _ = read(planted / "manifest.json", texts)
    assert by_folder == by_file
    assert by_folder
    assert all(secret.occurrences[0][0] >= 0 for secret in by_folder)
