"""Manifests whose seals hold and whose content does not: whoever can change one can seal it again.

Every field of both formats is given every strange value. What is refused is refused by name; what
is not refused can be verified against a corpus without a traceback.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def of_canaries() -> tuple[dict[str, Any], Callable[[Path], None]]:
    corpus = Corpus.from_texts([f"{MARKER} is far", "mice are near", "the gate is open"])
    vocabulary = WordVocabulary.build(corpus)
    canaries = (
        Canary(f"mice {MARKER}", "given", (1, 1), 2, user="ann"),
        Canary(f"gate {MARKER}", "given", (1, 1), 0),
    )
    planted, manifest = plant(corpus, canaries, seed=1, vocabulary=vocabulary)
    return plain(manifest.content()), lambda path: Manifest.load(path).verify(planted)


def of_secrets() -> tuple[dict[str, Any], Callable[[Path], None]]:
    made = secret_canaries(
        "wake {name} now", intent="Wake", candidates={"name": (MARKER, "bob", "cid")},
        copies=11, seed=1,
    )  # fmt: skip
    some = Utterances.of([Utterance(("play", "it"), ("O", "B-song"), "Play")] * 3)
    train, validation, manifest = plant_secrets(some, some, made, seed=1)
    return plain(manifest.content()), lambda path: SecretManifest.load(path).verify(
        train, validation
    )


FORMATS = {"canaries": of_canaries, "secrets": of_secrets}


@pytest.mark.parametrize("name", FORMATS)
def test_a_resealed_manifest_is_read_or_refused(name: str, tmp_path: Path) -> None:
    sound, use = FORMATS[name]()
    path = tmp_path / "manifest.json"
    path.write_text(resealed(sound))
    use(path)
    messages = []
    for what, content in damaged(sound):
        path.write_text(resealed(content))
        messages.append(refusal(what, lambda: use(path)))
    refused = [message for message in messages if message is not None]
    assert len(messages) > 300
    assert len(refused) > 0.9 * len(messages)
    # Whose corpus is another one learns which phrase is not there.
    assert not [m for m in refused if MARKER in m and "in the corpus" not in m]


@pytest.mark.parametrize("name", FORMATS)
def test_a_manifest_of_wrong_lengths_is_refused(name: str, tmp_path: Path) -> None:
    sound, use = FORMATS[name]()
    path = tmp_path / "manifest.json"
    for what, content in damaged(sound):
        if what.endswith(("one fewer", "one more")) and "/positions" in what:
            path.write_text(resealed(content))
            with pytest.raises(ManifestError, match="is inconsistent"):
                use(path)
