"""Where a private training's chance comes from: keys, keystream, torch's generators, the file."""

import hashlib
import itertools
import os
import pickle
import stat
import struct
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from vestige.errors import TrainingError
from vestige.training.directory import secret_of
from vestige.training.secret import (
    Keystream,
    Secret,
    device_words,
    key_torch,
    twister_state,
    twister_words,
)

CPU = torch.device("cpu")
RFC_KEY = bytes(range(32))


def drawn(key, first, second, words):
    into = np.empty(words, np.int32)
    Keystream(key, first, second).fill(into)
    return into


def test_fresh_secrets_differ_and_never_show():
    one, other = Secret.fresh(), Secret.fresh()
    assert one != other
    assert len(one.reveal()) == 32
    for shown in (repr(one), str(one), f"{one}", repr([one])):
        assert one.reveal().hex() not in shown
        assert "Secret(...)" in shown

    @dataclass
    class Holder:
        secret: Secret

    assert repr(Holder(one)).endswith("(secret=Secret(...))")


def test_keys_are_keyed_blake2_of_name_and_numbers():
    secret = Secret(RFC_KEY)
    expected = hashlib.blake2b(b"step 3 4", key=RFC_KEY, digest_size=32).digest()
    assert secret.key("step", 3, 4) == expected
    names = [("noise",), ("sampling",), ("step", 0), ("step", 1), ("step", 0, 1)]
    keys = [secret.key(*name) for name in names]
    assert len(set(keys)) == len(names)
    for one, other in itertools.combinations(keys, 2):
        different = sum(bin(a ^ b).count("1") for a, b in zip(one, other, strict=True))
        assert 80 < different < 176  # of 256 bits, six deviations around a half
    assert secret.number("sampling") == int.from_bytes(secret.key("sampling"), "little")


def test_a_secret_of_a_seed_repeats_and_others_are_refused():
    assert Secret.of_seed(3) == Secret.of_seed(3) != Secret.of_seed(4)
    assert hash(Secret.of_seed(3)) == hash(Secret.of_seed(3))
    assert pickle.loads(pickle.dumps(Secret.of_seed(3))) == Secret.of_seed(3)
    with pytest.raises(ValueError, match="seed must be at least 0"):
        Secret.of_seed(-1)
    with pytest.raises(ValueError, match="32 bytes, got 16"):
        Secret(bytes(16))


def test_the_keystream_is_that_of_the_rfc():
    """RFC 8439, section 2.3.2: key 00..1f, nonce 00:00:00:09:00:00:00:4a:00:00:00:00, block 1."""
    nonce = bytes.fromhex("000000090000004a00000000")
    expected = bytes.fromhex(
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    first, second = struct.unpack("<QI", nonce)
    assert drawn(RFC_KEY, first, second, 32)[16:].astype("<i4").tobytes() == expected
    words = device_words(RFC_KEY, first, second, blocks=range(1, 2), device=CPU)
    assert words.numpy().astype("<i4").tobytes() == expected


@pytest.mark.parametrize("words", [1, 16, 17, 1000, (1 << 18) + 5])
def test_the_keystream_on_a_device_is_that_of_the_library(words):
    """By integer operations, from any block on, against `cryptography` asked directly."""
    key, first, second = Secret.of_seed(words).key("noise"), 2**40 + words, 2**32 - 7
    nonce = struct.pack("<IQI", 0, first, second)
    whole = Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor().update(bytes(4 * words))
    assert drawn(key, first, second, words).tobytes() == whole
    blocks = -(-words // 16)
    mine = device_words(key, first, second, blocks=range(blocks), device=CPU)[:words]
    assert mine.numpy().tobytes() == whole
    later = device_words(key, first, second, blocks=range(blocks // 2, blocks), device=CPU)
    assert later[: words - blocks // 2 * 16].equal(mine[blocks // 2 * 16 :])


@pytest.mark.device
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_the_keystream_on_a_gpu_is_that_of_the_library():
    key = Secret.of_seed(0).key("noise")
    mine = device_words(key, 3, 1, blocks=range(1 << 16), device=torch.device("cuda"))
    assert (mine.cpu().numpy() == drawn(key, 3, 1, 16 << 16)).all()


def test_a_keystream_read_in_parts_goes_on():
    key, parts = Secret.of_seed(0).key("noise"), Keystream(Secret.of_seed(0).key("noise"), 0, 0)
    pieces = [np.empty(size, np.int32) for size in (3, 40, 1)]
    for piece in pieces:
        parts.fill(piece)
    assert np.concatenate(pieces).tolist() == drawn(key, 0, 0, 44).tolist()


def test_torch_draws_what_a_mersenne_twister_of_the_same_words_does():
    words = twister_words(Secret.of_seed(1).key("step", 0))
    assert len(words) == 624
    numpys = np.random.MT19937()
    numpys.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": 624}}
    generator = torch.Generator()
    generator.set_state(twister_state(words))
    mine = torch.empty(3000, dtype=torch.int32).random_(generator=generator)
    assert mine.tolist() == (numpys.random_raw(3000) % 2**31).tolist()


def torchs(key, count):
    """The first uniforms that torch draws after a key."""
    with torch.random.fork_rng(devices=[]):
        key_torch(key, CPU)
        return torch.rand(count)


def test_all_of_a_key_decides_what_torch_draws():
    """Also its last bit, which no seed of 32 or 64 bits would hold."""
    key = Secret.of_seed(1).key("step", 0)
    changed = (key, key[:-1] + bytes([key[-1] ^ 128]), bytes([key[0] ^ 1]) + key[1:], key)
    assert len({tuple(torchs(one, 4).tolist()) for one in changed}) == 3


def test_torchs_uniforms_after_a_key_are_uniform():
    draws = [torchs(Secret.of_seed(2).key("step", step), 50) for step in range(300)]
    uniforms = torch.stack(draws).double()
    assert abs(uniforms.mean().item() - 0.5) < 4.5 / np.sqrt(12 * uniforms.numel())
    columns = np.corrcoef(uniforms.numpy().T)[np.triu_indices(50, 1)]
    assert np.abs(columns).max() < 5 / np.sqrt(300)


def test_the_secret_is_kept_for_its_owner_alone(tmp_path):
    directory = tmp_path / "out"
    directory.mkdir(mode=0o755)
    (directory / ".secret.key.0123abcd.part").write_bytes(b"half")  # of a killed training
    before = os.umask(0)
    try:
        secret = secret_of(directory, None)
    finally:
        os.umask(before)
    [path] = directory.iterdir()
    assert path.name == "secret.key"
    assert path.read_bytes() == secret.reveal()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755  # the user's own stays as it is
    assert secret_of(directory, None) == secret
    assert secret_of(directory, secret) == secret
    with pytest.raises(TrainingError, match="another secret"):
        secret_of(directory, Secret.of_seed(0))


def test_a_secret_that_is_lost_or_damaged_is_an_error(tmp_path):
    (tmp_path / "checkpoint.safetensors").touch()
    with pytest.raises(TrainingError, match=r"secret\.key is missing; .*Restore.*new directory"):
        secret_of(tmp_path, None)
    (tmp_path / "secret.key").write_bytes(b"half of it")
    with pytest.raises(TrainingError, match=r"secret\.key does not have the 32 bytes"):
        secret_of(tmp_path, None)
    (tmp_path / "model").mkdir()  # a finished training needs none
    secret_of(tmp_path, None)


def test_without_a_directory_nothing_is_written_down(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert secret_of(None, None) != secret_of(None, None)
    assert secret_of(None, Secret.of_seed(1)) == Secret.of_seed(1)
    assert not list(tmp_path.iterdir())
