"""`anatomy` reads paths and loaded corpora alike."""

import pytest

from vestige.audits.anatomy.anatomy import anatomy
from vestige.data.corpus import Corpus
from vestige.data.formats.reading import read_corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel

SEEN = Corpus.from_texts(["the gate is new", "the code of the mill"] * 6)
UNSEEN = Corpus.from_texts(["the mill is new", "of the gate code"] * 6)
WORDS = WordVocabulary(("<unk>", "<eos>", "the", "gate", "is", "new", "code", "of", "mill"))


@pytest.fixture(scope="module")
def model():
    return LSTMLanguageModel(WORDS, LSTMConfig(embedding_size=4, hidden_size=6, layers=1)).eval()


def test_loaded_objects_are_recorded(model):
    found = anatomy(model, SEEN, UNSEEN, orders=1, bins=3, seed=2)
    assert found.record["data"]["seen"] == {
        "path": None,
        "documents": len(SEEN),
        "sha256": SEEN.fingerprint(),
    }


def test_files_are_read_and_named(model, tmp_path):
    save_model(model, tmp_path / "model")
    for name, texts in (("seen", SEEN), ("unseen", UNSEEN)):
        (tmp_path / f"{name}.txt").write_text("\n".join(texts) + "\n")
    seen, unseen = tmp_path / "seen.txt", tmp_path / "unseen.txt"
    found = anatomy(tmp_path / "model", seen, unseen, frequencies=seen, orders=0, device="cpu")
    objects = anatomy(model, read_corpus(seen), read_corpus(unseen), orders=0)
    assert found.summary == {**objects.summary, "counted": "given text"}
    assert set(found.record["data"]) == {"seen", "unseen", "frequencies"}
    given = {
        "model": str(tmp_path / "model"),
        "seen": str(seen),
        "unseen": str(unseen),
        "frequencies": str(seen),
        "orders": 0,
        "device": "cpu",
    }
    assert given.items() <= found.record["arguments"].items()


def test_an_encoder_decoder_is_read_as_such(tmp_path):
    config = Seq2SeqConfig(embedding_size=4, hidden_size=6)
    save_model(Seq2SeqModel(WORDS, WORDS, config), tmp_path / "model")
    pairs = [
        Corpus.from_texts(list(texts), sources=["the gate"] * len(texts))
        for texts in (SEEN, UNSEEN)
    ]
    found = anatomy(tmp_path / "model", *pairs, orders=0, device="cpu")
    assert found.record["models"]["model"]["architecture"] == "seq2seq"


def test_a_share_out_of_range_is_refused_before_the_model_is_read():
    with pytest.raises(ValueError, match="`frequent` must be less than 1"):
        anatomy("nowhere", SEEN, UNSEEN, frequent=1.5)
