"""What a record says of models and corpora: hashes that equal those of equal content only."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import ModelError
from vestige.models.checkpoints import save_model
from vestige.models.folders import of_corpus, of_model, of_network, sha256_of
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.table import TableModel

VOCABULARY = WordVocabulary(("<unk>", "<eos>", "red", "blue"))


def lstm(seed=0, size=4):
    torch.manual_seed(seed)
    return LSTMLanguageModel(
        VOCABULARY, LSTMConfig(layers=1, embedding_size=size, hidden_size=size)
    ).eval()


def table(first=0.25):
    return TableModel([first, 1 - first], [[0.5, 0.5], [1.0, 0.0]])


def test_equal_weights_have_one_hash_and_others_another():
    assert sha256_of(lstm(0)) == sha256_of(lstm(0))
    assert len({sha256_of(one) for one in (lstm(0), lstm(1), lstm(0, 5), table())}) == 4


def test_one_weight_that_moves_by_the_least_changes_the_hash():
    model = lstm()
    before = sha256_of(model)
    with torch.no_grad():
        one = next(iter(model.parameters())).view(-1)
        kept = one[0].clone()
        one[0] = torch.nextafter(kept, torch.tensor(9.0))
        assert sha256_of(model) != before
        one[0] = kept
    assert sha256_of(model) == before


def test_the_same_numbers_of_another_type_have_another_hash():
    assert sha256_of(table()) != sha256_of(table().double())


def test_the_hash_of_a_loaded_model_is_over_name_shape_type_and_bytes():
    model = table()
    [(name, tensor)] = model.state_dict().items()
    naive = hashlib.sha256(f"{name} {tuple(tensor.shape)} torch.float32".encode())
    naive.update(tensor.numpy().tobytes())
    assert sha256_of(model) == naive.hexdigest()


def test_a_model_on_disk_is_hashed_by_the_bytes_of_its_weight_file(tmp_path):
    save_model(lstm(), tmp_path / "m")
    [weights] = (tmp_path / "m").glob("*.safetensors")
    expected = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert sha256_of(tmp_path / "m") == sha256_of(str(tmp_path / "m")) == expected


def test_a_directory_without_a_model_has_no_hash(tmp_path):
    with pytest.raises(ModelError):
        sha256_of(tmp_path)


def test_a_path_and_an_object_differ_in_path_and_hash_alone(tmp_path):
    model = lstm()
    save_model(model, tmp_path / "m")
    by_path, by_object = of_model(tmp_path / "m", model), of_model(model, model)
    assert (by_path.pop("path"), by_object.pop("path")) == (str(tmp_path / "m"), None)
    assert by_path.pop("sha256") == sha256_of(tmp_path / "m")
    assert by_object.pop("sha256") == sha256_of(model)
    assert by_path == by_object


def test_parameters_are_counted_as_the_shapes_say():
    e = h = 4
    gates = 4 * h * e + 4 * h * h + 2 * 4 * h
    embedding, head = 4 * e, 4 * h + 4
    counted = of_model(None, lstm(size=4))["parameters"]
    assert counted == embedding + gates + head
    assert of_model(None, table())["parameters"] == 0


def test_a_network_is_told_with_its_settings_before_it_has_a_place():
    told = of_network(lstm(size=5))
    assert (told["tokens"], told["hidden_size"], told["layers"]) == (4, 5, 1)
    assert told["vocabulary"] == VOCABULARY.fingerprint()
    assert "sha256" not in told
    assert set(of_network(table())) == {"architecture", "parameters", "vocabulary", "tokens"}


def test_an_adapter_is_told_with_its_base(tmp_path):
    save_model(lstm(0), tmp_path / "base")
    save_model(lstm(1), tmp_path / "own")
    model = lstm(1)
    model.base = str(tmp_path / "base")
    assert of_model(tmp_path / "own", model)["base"] == {
        "path": str(tmp_path / "base"), "sha256": sha256_of(tmp_path / "base")
    }  # fmt: skip


def test_an_object_without_an_architecture_is_told_by_its_class():
    class Own(torch.nn.Module):
        vocabulary = VOCABULARY

    assert of_model(None, Own())["architecture"] == "Own"


def test_a_corpus_is_told_by_size_and_content_and_by_path_where_it_has_one():
    one, other = (Corpus.from_texts(texts) for texts in (["a b", "c"], ["a b", "d"]))
    assert of_corpus(Path("x"), one) == {**of_corpus(one, one), "path": "x"}
    assert of_corpus(one, one)["path"] is None
    assert of_corpus(one, one)["documents"] == 2
    assert of_corpus(one, one)["sha256"] != of_corpus(other, other)["sha256"]


def test_tensors_are_hashed_in_the_order_of_their_names():
    class Pair(torch.nn.Module):
        def __init__(self, names):
            super().__init__()
            for name in names:
                self.register_buffer(name, torch.tensor(np.array([ord(name)])))

    assert sha256_of(Pair("ab")) == sha256_of(Pair("ba"))
    assert sha256_of(Pair("ab")) != sha256_of(Pair("ac"))
