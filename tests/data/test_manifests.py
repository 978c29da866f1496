"""Manifests of both kinds: changes are noticed; a manifest with a valid seal is read or refused.

Whoever can change a manifest can seal it again, so every field is given every strange value.
"""

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
    some = Utterances.of([Utterance(("play", "it"), ("O", "B-song"), "Play")] * 3)
    train, validation, manifest = plant_secrets(some, some, canaries, seed=1)
    return manifest, lambda path: SecretManifest.load(path).verify(train, validation)


FORMATS = {"canaries": of_canaries, "secrets": of_secrets}
OTHER = {"canaries": "secrets", "secrets": "canaries"}
BOTH = pytest.mark.parametrize("name", FORMATS)


def changed(content, keys, value):
    """Some JSON with one field changed."""
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


@pytest.mark.parametrize(
    ("name", "keys", "value"),
    [
        ("canaries", ("canaries", 1, "phrase"), "something else"),
        ("canaries", ("canaries", 0, "copies"), 8),
        ("canaries", ("canaries", 1, "frequencies", 0), 7),
        ("canaries", ("canaries", 0, "ids"), []),
        ("canaries", ("canaries", 0, "positions", 0), 9),
        ("canaries", ("seed",), 4),
        ("canaries", ("corpus",), "00"),
        ("canaries", ("sha256",), "00"),
        ("canaries", ("canaries",), []),
        ("secrets", ("canaries", 0, "secret", 0), "x"),
        ("secrets", ("canaries", 1, "copies"), 3),
        ("secrets", ("canaries", 0, "train", 0), 999),
        ("secrets", ("canaries", 0, "validation", 0), 999),
        ("secrets", ("canaries", 1, "slot"), "what"),
        ("secrets", ("canaries", 0, "intent"), "Other"),
        ("secrets", ("candidates", "name", 0), "eve"),
        ("secrets", ("train", "after"), "00"),
        ("secrets", ("seed",), 9),
        ("secrets", ("sha256",), "00"),
    ],
)
def test_a_change_is_noticed(name, keys, value, tmp_path):
    manifest, use = FORMATS[name]()
    path = tmp_path / "manifest.json"
    manifest.save(path)
    path.write_text(json.dumps(changed(json.loads(path.read_text("utf-8")), keys, value)))
    with pytest.raises(ManifestError, match="was changed after it was written") as caught:
        use(path)
    assert str(path) in caught.value.problem
    assert "plant again" in caught.value.remedy


@BOTH
def test_malformed_missing_and_foreign_manifests_are_refused_by_name(name, tmp_path):
    manifest, _ = FORMATS[name]()
    other, path = type(FORMATS[OTHER[name]]()[0]), tmp_path / "manifest.json"
    sealed = b'{"format": "vestige-%s-1", "sha256": "", "canaries": ' % name.encode()
    for content in (b"", b"{}", b"[]", *(sealed + rest for rest in (b"3}", b'["a"]}', b"[{}]}")),
                    sealed.replace(b"-1", b"-9") + b"[]}"):  # fmt: skip
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
    """Also with a seal in each canary, as earlier versions wrote it."""
    manifest, use = FORMATS[name]()
    sound, path = plain(manifest.content()), tmp_path / "manifest.json"
    path.write_text(resealed(sound))
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
    # Only errors about another corpus may quote a phrase.
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
def test_a_sealed_but_inconsistent_manifest_is_refused(keys, value, expected_message, tmp_path):
    manifest, use = of_secrets()
    content = changed(plain(manifest.content()), keys, value)
    (tmp_path / "manifest.json").write_text(resealed(content))
    with pytest.raises(ManifestError) as caught:
        use(tmp_path / "manifest.json")
    assert expected_message in caught.value.problem
