"""What is loaded is what is hashed, and nothing outside the model's folder is either."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from vestige.errors import ModelError
from vestige.models.checkpoints import load_model, save_model
from vestige.models.folders import fingerprint, weight_files

INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(folders["gpt2"], tmp_path / "gpt2"))


def shard(folder: Path, *names: str) -> None:
    """Part the weights into files of these names, whatever they are."""
    whole = folder / "model.safetensors"
    weights = load_file(whole)
    keys = sorted(weights)
    parts = {name: keys[n :: len(names)] for n, name in enumerate(names)}
    for name, own in parts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        save_file({key: weights[key] for key in own}, folder / name, metadata={"format": "pt"})
    named = {key: name for name, own in parts.items() for key in own}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": named}))
    whole.unlink()


@pytest.mark.parametrize(
    "outside",
    [
        "../elsewhere.safetensors",
        "inner/../../elsewhere.safetensors",
        "ABSOLUTE",
        "inner/w.safetensors",
    ],
)
def test_a_shard_outside_the_folder_is_refused(folder: Path, tmp_path: Path, outside: str) -> None:
    named = str(tmp_path / "elsewhere.safetensors") if outside == "ABSOLUTE" else outside
    (folder / "x").mkdir()
    shard(folder, named)
    # The decoy is what a hash of the folder's own files would have covered.
    save_file({"x": torch.zeros(1)}, folder / "decoy.safetensors")
    for read in (load_model, fingerprint):
        with pytest.raises(
            ModelError, match=r"model\.safetensors\.index\.json.*not a safetensors file"
        ):
            read(folder)


def test_shards_in_the_folder_are_loaded_and_hashed(folder: Path) -> None:
    expected = load_model(folder).state_dict()
    shard(folder, "a.safetensors", "b.safetensors")
    found = load_model(folder).state_dict()
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    assert [file.name for file in weight_files(folder)] == ["a.safetensors", "b.safetensors"]


def test_a_file_that_is_not_loaded_is_not_hashed_and_one_that_is_is(folder: Path) -> None:
    shard(folder, "a.safetensors", "b.safetensors")
    before = fingerprint(folder)
    save_file({"x": torch.zeros(1)}, folder / "stray.safetensors")
    assert fingerprint(folder) == before
    weights = load_file(folder / "b.safetensors")
    key = next(iter(weights))
    save_file({**weights, key: weights[key] + 1}, folder / "b.safetensors")
    assert fingerprint(folder) != before


def test_a_file_of_all_weights_goes_before_an_index(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    shard(folder, "../elsewhere.safetensors")
    (folder / "model.safetensors").write_bytes(whole)
    assert [file.name for file in weight_files(folder)] == ["model.safetensors"]
    load_model(folder)


def test_weights_that_config_names_are_those_that_are_hashed(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    shutil.move(folder / "model.safetensors", folder / "other.safetensors")
    save_file({"x": torch.zeros(1)}, folder / "model.safetensors")  # what would have been hashed
    (folder / "config.json").write_text(
        json.dumps({**config, "transformers_weights": "other.safetensors"})
    )
    load_model(folder)
    assert [file.name for file in weight_files(folder)] == ["other.safetensors"]
    (folder / "config.json").write_text(
        json.dumps({**config, "transformers_weights": "../other.safetensors"})
    )
    with pytest.raises(ModelError, match=r"config\.json.*not a safetensors file"):
        load_model(folder)


@pytest.mark.parametrize(
    "content",
    [
        '{"weight_map": []}',
        '{"weight_map": {}}',
        '{"weight_map": {"x": 3}}',
        "[" * 100_000,
        "{",
        "3",
    ],
)
def test_a_damaged_index_is_one_error_that_names_it(folder: Path, content: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / INDEX).write_text(content)
    for read in (load_model, fingerprint):
        with pytest.raises(ModelError, match=r"index\.json"):
            read(folder)


def test_a_base_that_is_an_adapter_itself_is_refused(folder: Path) -> None:
    # transformers would read the weights of whatever base the adapter names.
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "/x"}))
    from vestige.models.pretrained import load

    with pytest.raises(ModelError, match="adapter"):
        load(folder)


def test_links_as_the_hub_cache_has_them_are_followed(folder: Path, tmp_path: Path) -> None:
    before = fingerprint(folder)
    shutil.move(folder / "model.safetensors", tmp_path / "blob")
    (folder / "model.safetensors").symlink_to(tmp_path / "blob")
    load_model(folder)
    assert fingerprint(folder) == before


def test_our_own_checkpoint_is_one_file(make: dict, tmp_path: Path) -> None:  # type: ignore[type-arg]
    save_model(make["lstm"](), tmp_path / "ours")
    before = fingerprint(tmp_path / "ours")
    save_file({"x": torch.zeros(1)}, tmp_path / "ours" / "stray.safetensors")
    assert fingerprint(tmp_path / "ours") == before


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.ckpt", "weights.pkl", "net.pickle"])
def test_a_pickled_folder_is_refused_naming_the_file(tmp_path, name):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ModelError, match=f"{name} is a pickle file, which can run code"):
        weight_files(tmp_path)
