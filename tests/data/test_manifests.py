"""Manifests of both kinds detect changes, and are read or refused even with a valid checksum."""

import json

import pytest

from tests.damage import damaged, refusal, resealed
from vestige.data.canaries.texts import Canary, Manifest, plant
from vestige.data.canaries.utterances import SecretManifest, plant_secrets, secret_canaries
from vestige.data.corpus import Corpus
from vestige.data.files import plain
from vestige.data.utterances import Utterance, Utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import ManifestError

MARKER = "zanzibar"


def of_canaries():
    corpus = Corpus.from_texts([f"{MARKER} is far", "mice are near", "the gate is open"])
    vocabulary = WordVocabulary.build(corpus)
    canaries = (
        Canary(f"mice {MARKER}", "given", (1, 1), 2, user="ann"),
        Canary(f"gate {MARKER}", "given", (1, 1), 0),
    )
    planted, manifest = plant(corpus, canaries, seed=1, vocabulary=vocabulary)
    return manifest, lambda path: Manifest.load(path).verify(planted)


def of_secrets():
    canaries = secret_canaries(
        "wake {name} now", intent="Wake", candidates={"name": (MARKER, "bob", "cid")},
        copies=11, seed=1,
    )  # fmt: skip
    songs = Utterances.of([Utterance(("play", "it"), ("O", "B-song"), "Play")] * 3)
    train, validation, manifest = plant_secrets(songs, songs, canaries, seed=1)
    return manifest, lambda path: SecretManifest.load(path).verify(train, validation)


FORMATS = {"canaries": of_canaries, "secrets": of_secrets}
OTHER = {"canaries": "secrets", "secrets": "canaries"}
BOTH = pytest.mark.parametrize("name", FORMATS)


def changed(content, keys, value):
    """Set one field of some JSON."""
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return content


@BOTH
def test_saving_and_loading_is_lossless_in_any_layout(name, tmp_path):
    manifest, use = FORMATS[name]()
    path = tmp_path / "manifest.json"
    manifest.save(path)
    use(path)
    content = json.loads(path.read_text("utf-8"))
    assert content["sha256"] == manifest.sha256
    path.write_text(json.dumps(dict(reversed(content.items()))))
    loaded = type(manifest).load(path)
    assert loaded == manifest
    assert loaded.content() == manifest.content()


@BOTH
def test_every_change_without_a_new_checksum_is_detected(name, tmp_path):
    manifest, use = FORMATS[name]()
    path = tmp_path / "manifest.json"
    manifest.save(path)
    content = json.loads(path.read_text("utf-8"))
    for what, other in damaged(content):
        path.write_text(json.dumps(other))
        assert json.dumps(other) == json.dumps(content) or refusal(what, lambda: use(path)), what
    path.write_text(json.dumps(changed(content, ("canaries", 1, "copies"), 8)))
    with pytest.raises(ManifestError, match="was changed after it was written") as caught:
        use(path)
    assert str(path) in caught.value.problem
    assert "plant again" in caught.value.remedy


@BOTH
def test_malformed_missing_and_foreign_manifests_are_refused(name, tmp_path):
    manifest, _ = FORMATS[name]()
    other, path = type(FORMATS[OTHER[name]]()[0]), tmp_path / "manifest.json"
    start = b'{"format": "vestige-%s-1", "sha256": "", "canaries": ' % name.encode()
    contents = [start + rest for rest in (b"3}", b'["a"]}', b"[{}]}")]
    for content in (b"", b"{}", b"[]", *contents, start.replace(b"-1", b"-9") + b"[]}"):
        path.write_bytes(content)
        with pytest.raises(ManifestError, match=r"manifest\.json") as caught:
            type(manifest).load(path)
        assert caught.value.remedy
    manifest.save(path)
    assert json.loads(path.read_text())["format"] == f"vestige-{name}-1"
    for source, expected_message in (
        (tmp_path / "none.json", "is missing"),
        (tmp_path, "a directory"),
        (path, "is no canary manifest"),
    ):
        with pytest.raises(ManifestError, match=expected_message):
            other.load(source)


@pytest.mark.slow
@BOTH
def test_a_resealed_manifest_is_read_or_refused(name, tmp_path):
    """An attacker who changes a manifest can also update its checksums."""
    manifest, use = FORMATS[name]()
    path = tmp_path / "manifest.json"
    path.write_text(resealed(plain(manifest.content())))
    use(path)
    messages = []
    for what, content in damaged(plain(manifest.content())):
        path.write_text(resealed(content))
        messages.append(refusal(what, lambda: use(path)))
        if what.endswith(("one fewer", "one more")) and "/positions" in what:
            assert "is inconsistent" in (messages[-1] or "")
    refused = [message for message in messages if message is not None]
    assert len(messages) > 300
    assert len(refused) > 0.9 * len(messages)
    # Only errors about a changed corpus may quote a phrase.
    assert not [m for m in refused if MARKER in m and "in the corpus" not in m]


@pytest.mark.parametrize(
    ("keys", "value", "expected_message"),
    [
        (("canaries", 0, "secret", 0), "x", "pattern of canary 1 is invalid, or does not fit"),
        (("canaries", 0, "pattern"), "no place", "pattern of canary 1 is invalid"),
        (("canaries", 0, "copies"), 3, "canary 1 has 3 copies and 11 positions"),
        (("canaries", 0, "candidates"), ["none"], "candidates that the record does not list"),
        (("canaries", 0, "validation"), [0, 0], "canary 1 has 11 copies and 12 positions"),
        (("candidates",), None, '"candidates": it should be an object'),
        (("train",), None, '"train": it should be an object'),
    ],
)
def test_an_inconsistent_manifest_with_a_valid_checksum_is_refused(
    keys, value, expected_message, tmp_path
):
    manifest, use = of_secrets()
    content = changed(plain(manifest.content()), keys, value)
    (tmp_path / "manifest.json").write_text(resealed(content))
    with pytest.raises(ManifestError) as caught:
        use(tmp_path / "manifest.json")
    assert expected_message in caught.value.problem
