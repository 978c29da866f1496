"""A GGUF file is no larger than what it holds: counts that it cannot fill are refused at once."""

import struct
from pathlib import Path

import pytest

from vestige.errors import ModelError
from vestige.models.checkpoints import load_model
from vestige.models.folders import fingerprint
from vestige.models.foreign_files import PACKED, gguf_weights

TEXT, LIST, UINT32 = 8, 9, 4


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def setting(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: str, shape: list[int], kind: int) -> bytes:
    return (
        text(name)
        + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        + struct.pack("<IQ", kind, 0)
    )


def gguf(settings: list[bytes], tensors: list[bytes], *, data: int = 0) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(settings))
    return head + b"".join([*settings, *tensors]) + bytes(data)


LLAMA = setting("general.architecture", TEXT, text("llama"))
LAYERS = setting("llama.block_count", UINT32, struct.pack("<I", 2))
WORDS = setting("tokens", LIST, struct.pack("<IQ", TEXT, 2) + text("a") + text("bc"))


def test_weights_are_those_of_the_file(tmp_path: Path) -> None:
    tensors = [tensor("a", [4, 8], 0), tensor("b", [32], 3), tensor("c", [2, 2, 2], 30)]
    (tmp_path / "m.gguf").write_bytes(gguf([LLAMA, LAYERS, WORDS], tensors, data=200))
    assert gguf_weights(tmp_path / "m.gguf") == {"F32": 32, PACKED: 32, "BF16": 8}


ENDLESS = struct.pack("<Q", 2**62)
NUMBERS, TEXTS = (struct.pack("<I", kind) + ENDLESS for kind in (UINT32, TEXT))
HOSTILE = {
    "another file": b"not at all",
    "nothing": b"",
    "an old version": b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
    "endless settings": b"GGUF" + struct.pack("<I", 3) + struct.pack("<Q", 0) + ENDLESS,
    "endless tensors": b"GGUF" + struct.pack("<I", 3) + ENDLESS + struct.pack("<Q", 0),
    "an endless text": gguf([text("name") + struct.pack("<I", TEXT) + ENDLESS], []),
    "an endless name": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + ENDLESS,
    "an endless list of numbers": gguf(
        [setting("list", LIST, struct.pack("<I", UINT32) + ENDLESS)], []
    ),
    "an endless list of texts": gguf(
        [setting("list", LIST, struct.pack("<I", TEXT) + ENDLESS)], []
    ),
    "lists in lists": gguf([setting("list", LIST, struct.pack("<IQ", LIST, 1))], []),
    "an unknown type": gguf([setting("name", 99, b"")], []),
    "more weights than bytes": gguf([LLAMA], [tensor("a", [2**20, 2**20], 0)], data=64),
    "a million layers": gguf(
        [LLAMA, setting("llama.block_count", UINT32, struct.pack("<I", 10**6))], []
    ),
    "a wide layer": gguf(
        [LLAMA, setting("llama.embedding_length", UINT32, struct.pack("<I", 2**31))], []
    ),
    "a text for a number": gguf([LLAMA, setting("llama.block_count", TEXT, text("many"))], []),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_not_as_it_should_be_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "m.gguf").write_bytes(HOSTILE[name])
    for place in (tmp_path / "m.gguf", tmp_path):
        with pytest.raises(ModelError, match=r"m\.gguf is not a valid GGUF file"):
            load_model(place)


def test_a_missing_file_and_a_choice_of_files_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"m\.gguf is missing"):
        load_model(tmp_path / "m.gguf")
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(gguf([], []))
    for read in (load_model, fingerprint):
        with pytest.raises(ModelError, match=r"has no model\.json"):
            read(tmp_path)


def test_without_the_package_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vestige.models import pretrained

    (tmp_path / "m.gguf").write_bytes(gguf([LLAMA, LAYERS, WORDS], []))
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="package gguf") as caught:
        load_model(tmp_path / "m.gguf")
    assert "vestige[gguf]" in caught.value.remedy


def test_what_the_library_cannot_read_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the package gguf is not installed: vestige[gguf]")
    (tmp_path / "m.gguf").write_bytes(gguf([LLAMA, LAYERS, WORDS], [], data=64))
    with pytest.raises(ModelError, match=r"m\.gguf cannot be loaded"):
        load_model(tmp_path / "m.gguf")
