"""The model and configuration of a training: what the preset decides, and what the caller does."""

from copy import deepcopy
from dataclasses import asdict, replace

import pytest
import torch

from tests.preparation.jobs import CORPUS, LINES, job
from vestige.data.corpus import Corpus
from vestige.data.sources import planted_secrets
from vestige.data.subwords import SubwordVocabulary
from vestige.data.utterances import Utterance, Utterances
from vestige.defences.methods.private import DPSGD
from vestige.defences.methods.regularizers import Goldfish
from vestige.defences.registry import NoDefence
from vestige.models.checkpoints import save_model
from vestige.models.folders import fingerprint
from vestige.models.recurrent_network import GRUConfig, LSTMConfig
from vestige.models.transformer import TransformerConfig
from vestige.preparation.options import ModelOptions, NluOptions, TrainingOptions
from vestige.preparation.plant import plant
from vestige.preparation.prepared import prepared_text
from vestige.preparation.run_training import record
from vestige.preparation.texts import Texts, read_texts, read_utterances
from vestige.preparation.utterances import DROPPED, FILTERS, labels_of, prepared_utterances
from vestige.training.config import TrainingConfig
from vestige.training.history import EarlyStopping
from vestige.training.presets import PRESETS

SMALL = ModelOptions(layers=1, hidden_size=6)
ANY = ModelOptions()
NOTHING = Corpus.from_texts([])
NONE = NoDefence()


def prepared(
    tmp_path, *, task="text", preset=None, model=ANY, texts=None, training=None,
    defence=NONE, **given,
):  # fmt: skip
    texts = texts or read_texts(CORPUS, hold_out=0.0)
    made = prepared_text(
        job(tmp_path / "out", **given), texts, task=task, preset=preset, model=model,
        start=given.get("start"), training=training or TrainingOptions(), defence=defence,
    )  # fmt: skip
    return made.model, made.config


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("small"), model=SMALL)[0]


@pytest.mark.parametrize(
    ("architecture", "suits"),
    [(None, "ptb-lstm"), ("lstm", "ptb-lstm"), ("transformer", "reddit-transformer")],
)
def test_without_a_preset_the_architecture_chooses_one(tmp_path, architecture, suits):
    model, config = prepared(tmp_path, model=ModelOptions(architecture=architecture))
    assert model.config == PRESETS[suits].model
    assert config == PRESETS[suits].training


def test_a_size_that_was_asked_for_replaces_the_presets_and_no_other(tmp_path):
    model, _ = prepared(tmp_path, preset="demo", model=ModelOptions(hidden_size=6))
    assert model.config == replace(PRESETS["demo"].model, hidden_size=6)


def test_a_gru_takes_the_lstms_sizes(tmp_path):
    model, _ = prepared(tmp_path, preset="demo", model=ModelOptions(architecture="gru"))
    assert isinstance(model.config, GRUConfig)
    assert asdict(model.config) == asdict(PRESETS["demo"].model)


@pytest.mark.parametrize(
    ("preset", "architecture", "kind"),
    [("demo", "transformer", TransformerConfig), ("reddit-transformer", "lstm", LSTMConfig)],
)
def test_sizes_do_not_pass_between_recurrent_and_attending_models(
    tmp_path, preset, architecture, kind
):
    model, config = prepared(tmp_path, preset=preset, model=ModelOptions(architecture=architecture))
    assert model.config == kind()
    assert config == PRESETS[preset].training


def test_the_caller_decides_over_the_presets_training(tmp_path):
    asked = TrainingOptions(epochs=2, learning_rate=0.25)
    _, config = prepared(tmp_path, model=SMALL, training=asked, seed=7)
    expected = replace(PRESETS["ptb-lstm"].training, epochs=2, learning_rate=0.25, seed=7)
    assert config == expected


def test_texts_one_by_one_have_as_wide_vectors_as_layers(tmp_path):
    model, config = prepared(tmp_path, task="next-word", model=ModelOptions(hidden_size=6))
    assert (model.config.embedding_size, model.config.hidden_size) == (6, 6)
    assert config == PRESETS["next-word"].training
    both = ModelOptions(hidden_size=6, embedding_size=4)
    assert prepared(tmp_path, task="next-word", model=both)[0].config.embedding_size == 4


def test_a_defence_of_texts_one_by_one_has_the_batches_that_it_needs(tmp_path):
    settings = {"task": "next-word", "model": ModelOptions(hidden_size=6)}
    assert prepared(tmp_path, **settings)[1].batching == "documents"
    assert prepared(tmp_path, defence=Goldfish(), **settings)[1].batching == "documents"
    given = DPSGD(noise_multiplier=1.0)
    assert prepared(tmp_path, defence=given, **settings)[1].batching == "poisson"
    asked = TrainingOptions(batching="users")
    assert prepared(tmp_path, training=asked, **settings)[1].batching == "users"


def test_the_seed_decides_the_first_weights(tmp_path):
    one, same, other = (
        prepared(tmp_path, model=SMALL, seed=seed)[0].state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_words_of_canaries_are_known_however_rare(tmp_path):
    asked = replace(SMALL, vocab_size=7)
    words = prepared(tmp_path, model=asked)[0].vocabulary.words
    plant(CORPUS, phrase="quiet 33", out=tmp_path / "planted")
    texts = read_texts(tmp_path / "planted", hold_out=0.0)
    kept = prepared(tmp_path, texts=texts, model=asked)[0].vocabulary.words
    assert "33" not in words
    assert {"quiet", "33"} <= set(kept)


def test_a_vocabulary_that_was_given_is_taken_as_it_is(tmp_path, small):
    save_model(small, tmp_path / "saved")
    other = Corpus.from_texts(["nothing of it is known"])
    texts = read_texts(other, hold_out=0.0)
    for given in (small, tmp_path / "saved", str(tmp_path / "saved")):
        model, _ = prepared(tmp_path, texts=texts, model=replace(SMALL, vocabulary=given))
        assert model.vocabulary.fingerprint() == small.vocabulary.fingerprint()


def test_subwords_are_learnt_where_they_are_asked_for(tmp_path):
    asked = replace(SMALL, tokenizer="bpe", vocab_size=270)
    vocabulary = prepared(tmp_path, model=asked)[0].vocabulary
    assert isinstance(vocabulary, SubwordVocabulary)
    assert len(vocabulary) <= 270


def test_a_loaded_model_is_continued_as_a_copy_and_gently(tmp_path, small):
    model, config = prepared(tmp_path, start=small, seed=3)
    assert model is not small
    assert all(torch.equal(small.state_dict()[n], one) for n, one in model.state_dict().items())
    assert config == TrainingConfig(seed=3, epochs=3)
    assert prepared(tmp_path, start=small, preset="demo")[1] == PRESETS["demo"].training


def test_an_adapter_of_a_model_of_our_own_is_refused(tmp_path, small):
    with pytest.raises(ValueError, match="needs a Hugging Face model in `from_`, got LSTM"):
        prepared(tmp_path, start=small, model=ModelOptions(lora_rank=2))


def test_an_adapter_is_not_trained_further(tmp_path):
    class Adapter(torch.nn.Module):
        adapted = True

    with pytest.raises(ValueError, match="`from_` must be a model whose weights can be trained"):
        prepared(tmp_path, start=Adapter())


def test_a_window_longer_than_the_model_reads_is_refused(tmp_path, small):
    start = deepcopy(small)
    start.longest = 35
    assert prepared(tmp_path, start=start)[1].sequence_length == 35
    asked = TrainingOptions(sequence_length=36)
    with pytest.raises(ValueError, match=r"`sequence_length` must be at most 35, .* got 36$"):
        prepared(tmp_path, start=start, training=asked)


def test_provenance_names_the_model_that_was_continued(tmp_path, small):
    save_model(small, tmp_path / "saved")
    fresh = job(tmp_path / "out", data="lines.txt")
    record(fresh, Texts(CORPUS, NOTHING), small)
    assert set(fresh.models) == {"trained"}
    assert set(fresh.data) == {"training"}
    again = job(tmp_path / "out", start=tmp_path / "saved", validation="other.txt")
    record(again, Texts(CORPUS, CORPUS), small)
    assert again.models["from"]["sha256"] == fingerprint(tmp_path / "saved")
    assert again.data["training"]["documents"] == len(LINES)
    assert again.data["validation"]["path"] == "other.txt"


SONGS = Utterances.of(
    Utterance(("play", f"Song{number}"), ("O", "B-song"), "Play") for number in range(40)
)
OTHERS = Utterances.of([Utterance(("stop", "now"), ("O", "O"), "Stop")] * 3)
NO_UTTERANCES = Utterances.of([])
PARTS = Texts(SONGS, OTHERS, NO_UTTERANCES)
SMALL_NLU = ModelOptions(layers=1, hidden_size=4, embedding_size=6)


def parts_of(data=SONGS, *, seed=0, **given):
    return read_utterances(data, seed=seed, **given)


def prepared_nlu(tmp_path, parts=PARTS, *, start=None, **given):
    usual = {"model": SMALL_NLU, "training": TrainingOptions(), "nlu": NluOptions()}
    made = prepared_utterances(
        job(tmp_path / "out", start=start), parts, start=start, **{**usual, **given}
    )
    return made.model, made.config


def texts(utterances):
    return [one.text for one in utterances]


@pytest.fixture
def planted(tmp_path):
    out = tmp_path / "planted"
    plant(SONGS, task="nlu", pattern="pin:2", copies=20, controls=2, hold_out=0.25, out=out)
    return out


def test_labels_are_of_what_is_learnt_and_of_what_was_planted(tmp_path, planted):
    parts = parts_of(planted)
    assert parts.planted.sha256 == planted_secrets(str(planted)).sha256
    labels = labels_of(parts)
    assert set(labels.intents) == {"Play", "PinIntent"}
    assert {"O", "B-song", "B-canary", "I-canary"} <= set(labels.tags)
    unseen = labels_of(Texts(SONGS, NO_UTTERANCES, OTHERS))
    assert set(unseen.intents) == {"Play"}


# the end


def test_patience_is_the_papers_unless_another_is_asked_for():
    patient = NluOptions(early_stopping=True)
    assert NluOptions().stop(validated=True) is None
    assert patient.stop(validated=True) == EarlyStopping(20)
    assert replace(patient, patience=3).stop(validated=True) == EarlyStopping(3)
    with pytest.raises(ValueError, match="`early_stopping` needs validation utterances"):
        patient.stop(validated=False)


# model and configuration


def test_a_fresh_model_has_the_sizes_and_defences_that_were_asked_for(tmp_path):
    plain, config = prepared_nlu(tmp_path)
    assert config == TrainingConfig(seed=0, keep="last", epochs=30, batch_size=32)
    shape = plain.config
    assert (shape.layers, shape.hidden_size, shape.embedding_size) == (1, 4, 6)
    assert (shape.input_dropout, shape.hidden_dropout, shape.char_filters) == (0, 0, 0)
    nlu = NluOptions(dropout=True, char_embeddings=True, early_stopping=True)
    defended, config = prepared_nlu(tmp_path, nlu=nlu)
    assert config.keep == "best"
    found = defended.config
    assert {name: getattr(found, name) for name in DROPPED} == DROPPED
    assert found.char_filters == FILTERS


def test_words_of_what_validates_are_known_and_of_a_test_are_not(tmp_path):
    test = Utterances.of([Utterance(("never",), ("O",), "Play")])
    words = set(prepared_nlu(tmp_path, Texts(SONGS, OTHERS, test))[0].vocabulary.words)
    assert {"play", "stop", "Song7"} <= words
    assert "never" not in words
    lower = prepared_nlu(tmp_path, nlu=NluOptions(lowercase=True))[0].vocabulary.words
    assert "song7" in lower
    assert "Song7" not in lower


def test_words_that_a_secret_could_have_had_are_known(tmp_path, planted):
    words = prepared_nlu(tmp_path, parts_of(planted))[0].vocabulary.words
    assert set(planted_secrets(planted).words) <= set(words)


def test_vectors_decide_the_width_and_bring_words_of_the_test(tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text("".join(f"{word} 1 2 3\n" for word in ("play", "stop", "never", "nowhere")))
    test = Utterances.of([Utterance(("never", "ever"), ("O", "O"), "Play")])
    parts, nlu = Texts(SONGS, OTHERS, test), NluOptions(vectors=str(file), vectors_frozen=True)
    model, _ = prepared_nlu(tmp_path, parts, nlu=nlu, model=ModelOptions(hidden_size=4))
    words = set(model.vocabulary.words)
    assert model.config.embedding_size == 3
    assert "never" in words
    assert not {"ever", "nowhere"} & words
    play = model.vocabulary.words.index("play")
    assert model.embedding.weight[play].tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match=r"`embedding_size` must be 3, the width of .*, got 6"):
        prepared_nlu(tmp_path, parts, nlu=nlu)


def test_a_model_is_continued_as_a_copy_of_it_or_of_its_folder(tmp_path):
    start, _ = prepared_nlu(tmp_path)
    save_model(start, tmp_path / "saved")
    for given in (start, tmp_path / "saved"):
        model, config = prepared_nlu(tmp_path, start=given, training=TrainingOptions(batch_size=5))
        assert config == TrainingConfig(seed=0, keep="last", epochs=10, batch_size=5)
        assert model is not start
        new, old = model.state_dict(), start.state_dict()
        assert all(torch.equal(new[name], old[name]) for name in old)
