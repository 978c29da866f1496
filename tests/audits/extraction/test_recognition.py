"""WHAT is recognized by its content; `as_` decides where it is given."""

import json

import pytest

from vestige.audits.extraction.recognition import recognized
from vestige.data.canaries.utterances import SecretManifest
from vestige.data.corpus import Corpus
from vestige.errors import ManifestError

MANIFEST = {"format": "vestige.canaries/1", "canaries": []}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "secrets.txt").write_text("the gate code is 4917\n")
    (tmp_path / "secrets").write_text("the gate code is 4917\n")
    for name in ("texts.jsonl", "texts.json", "texts.csv"):
        (tmp_path / name).write_text('{"text": "a"}\n{"text": "b"}\n')
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("a\n")
    for name, content in {
        "planted": MANIFEST,
        "spoken": {**MANIFEST, "format": SecretManifest.FORMAT},
        "cut": None,
    }.items():
        (tmp_path / name).mkdir()
        text = '{\n  "format": ' if content is None else json.dumps(content, indent=2)
        (tmp_path / name / "manifest.json").write_text(text)
        (tmp_path / f"{name}.json").write_text(text)
    (tmp_path / "line.json").write_text(json.dumps(MANIFEST))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("secrets.txt", "secrets"),
        ("secrets", "secrets"),
        ("texts.jsonl", "texts"),
        ("texts.json", "texts"),
        ("texts.csv", "texts"),
        ("folder", "texts"),
        ("planted", "canaries"),
        ("planted/manifest.json", "canaries"),
        ("planted.json", "canaries"),
        ("line.json", "canaries"),
        ("cut.json", "canaries"),  # whose error names what is wrong
        ("spoken", "utterances"),
        ("spoken.json", "utterances"),
    ],
)
def test_a_path_is_recognized_by_what_is_there(files, name, kind):
    assert recognized(str(files / name), "auto") == kind
    assert recognized(files / name, "auto") == kind


def test_the_option_decides_for_a_path_or_a_list(files):
    assert recognized(files / "secrets.txt", "texts") == "texts"
    assert recognized(files / "planted", "texts") == "texts"
    assert recognized(files / "texts.jsonl", "secrets") == "secrets"
    assert recognized(["the gate code is 4917"], "auto") == "secrets"


def test_an_object_is_what_it_is():
    corpus = Corpus.from_texts(["a"])
    assert recognized(corpus, "auto") == recognized(corpus, "texts") == "texts"
    with pytest.raises(ValueError, match="`as_` secrets does not fit `what`, which is texts"):
        recognized(corpus, "secrets")


def test_a_missing_manifest_is_named(files):
    with pytest.raises(ManifestError, match=r"nowhere\.json is missing"):
        recognized(files / "nowhere.json", "auto")
