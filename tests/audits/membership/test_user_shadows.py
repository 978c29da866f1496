"""Shadow models take the target's shape and training where these are known, and what was asked."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.audits.told import Told
from vestige import results
from vestige.audits.membership.membership import QueryOptions, ShadowOptions
from vestige.audits.membership.service import server_cost
from vestige.audits.membership.shadows import described, plan_shadows
from vestige.audits.membership.user_inputs import Target, remote_of, remote_target
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.models.recurrent_network import GRUConfig, LSTMConfig, LSTMLanguageModel
from vestige.models.remote.options import RemoteOptions
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.top_k import Context
from vestige.models.transformer import TransformerConfig
from vestige.session import Session
from vestige.training.presets import PRESETS, preset_of

from .queried import users

VOCABULARY = WordVocabulary(("<unk>", "<eos>", "red", "blue"))
OWN = LSTMConfig(layers=1, embedding_size=5, hidden_size=5)


class History:
    """A training of 4 epochs, of which the third was kept."""

    def summary(self):
        return {"epoch": 3.0, "steps": 9}

    def rows(self):
        return [{"epoch": 3.0}]


def session():
    return Session("membership", {}, device="cpu")


def target(config=OWN, path="nowhere", task="next-word"):
    model = None if config is None else SimpleNamespace(config=config)
    return SimpleNamespace(model=model, task=task, name="it", record={"path": path})


def plan(one, log=None, seed=0, **settings):
    count = settings.pop("shadows", 4)
    run = Session("membership", {}, seed=seed, device="cpu", monitor=log or Told())
    return plan_shadows(run, ShadowOptions(**settings), one, count=count)


@pytest.fixture
def trained(tmp_path):
    """A target that `vestige train` taught, with what it recorded."""

    def make(**settings):
        said = {"seed": 7, "epochs": 4, "batch_size": 3, "learning_rate": 0.5, **settings}
        results.save(History(), tmp_path / "run", run={"configuration": {**said, "other": 1}})
        return target(path=tmp_path)

    return make


def test_no_shadows_take_no_plan():
    assert plan(target(), shadows=0) is None


def test_shadows_have_the_targets_shape_and_the_presets_training_where_none_is_known():
    found = plan(target(), seed=9)
    assert (found.models, found.count, found.seed) == ((OWN,), 4, 9)
    assert found.training.epochs == PRESETS["next-word"].training.epochs
    assert plan(target(None)).models == (PRESETS["next-word"].model,)


def test_shadows_learn_as_the_target_did_up_to_the_epoch_that_it_kept(trained):
    log = Told()
    found = plan(trained(), log).training
    assert (found.epochs, found.batch_size, found.learning_rate) == (3, 3, 0.5)
    assert log.lines == ["Shadow models are trained as it was, for 3 epochs."]


def test_what_is_asked_for_goes_before_what_was_recorded(trained):
    log = Told()
    found = plan(trained(), log, epochs=8, batch_size=2).training
    assert (found.epochs, found.batch_size, found.learning_rate) == (8, 2, 0.5)
    assert log.lines[0].endswith("but with --epochs 8, --batch-size 2, for 8 epochs.")


@pytest.mark.parametrize("batching", ["poisson", "poisson-users"])
def test_a_private_training_is_not_imitated(trained, batching):
    found = plan(trained(batching=batching)).training
    assert found.epochs == PRESETS["next-word"].training.epochs


def test_a_damaged_record_is_not_imitated(trained):
    found = plan(trained(epochs="many")).training
    assert found.epochs == PRESETS["next-word"].training.epochs


def test_other_shapes_are_the_papers_whatever_the_target_is(trained):
    found = plan(trained(), other_shapes=True, epochs=2)
    assert [model.hidden_size for model in found.models] == list(range(64, 353, 32))
    assert {type(model) for model in found.models} == {GRUConfig}
    assert (found.training.epochs, found.training.momentum, found.count) == (2, 0.9, 4)


def test_a_width_widens_the_words_with_it():
    [wide] = plan(target(), hidden_size=9).models
    assert (wide.hidden_size, wide.embedding_size, wide.layers) == (9, 9, 1)


def test_a_transformer_keeps_its_embeddings():
    [found] = plan(target(TransformerConfig()), hidden_size=66).models
    assert found == replace(TransformerConfig(), hidden_size=66)


@pytest.mark.parametrize("task", ["translation", "dialogue"])
def test_shadows_of_pairs_are_pairs_of_the_task(task):
    assert plan(target(None, task=task)).models == (preset_of(task).model,)


def test_a_plan_is_described_with_the_names_of_its_shapes():
    told = described(plan(target()))
    assert told["models"][0]["name"] == "LSTMConfig"
    assert told["models"][0]["hidden_size"] == 5
    assert told["training"]["epochs"] == PRESETS["next-word"].training.epochs


# settings


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("inf"), float("nan")])
def test_a_timeout_is_a_positive_number_of_seconds(timeout):
    with pytest.raises(ValueError, match="`timeout`"):
        users("m:f", [], reference=[], timeout=timeout)


@pytest.mark.parametrize(
    "name", ["budget", "timeout", "attempts", "task", "vocabulary_size", "tokenizer"]
)
def test_no_setting_of_a_service_suits_a_model(name):
    value = {"task": "dialogue", "tokenizer": "words"}.get(name, 7)
    with pytest.raises(ValueError, match=f"`{name}` needs a remote model"):
        users(LSTMLanguageModel(VOCABULARY, OWN), [], reference=[], **{name: value})


def test_a_budget_may_be_just_enough():
    contexts = [Context((word,)) for word in ("red", "blue")]
    server_cost(contexts, RemoteOptions(budget=16), k=1)
    with pytest.raises(DataError, match="`budget` 15 is too small: this audit needs 16 if"):
        server_cost(contexts, RemoteOptions(budget=15), k=1)


def test_settings_that_were_set_are_those_that_are_not_none():
    chosen = ShadowOptions(shadows=0, epochs=2)
    assert chosen.changed("epochs", "shadows", "batch_size") == {"epochs": 2, "shadows": 0}


# target


def test_a_model_is_local_and_a_function_is_remote():
    assert remote_of("some/path") is None
    assert remote_of(LSTMLanguageModel(VOCABULARY, OWN)) is None
    assert remote_of(len) is len


@pytest.mark.parametrize(("attention", "task"), [(True, "translation"), (False, "dialogue")])
def test_attention_tells_translation_from_dialogue(attention, task):
    config = Seq2SeqConfig(embedding_size=3, hidden_size=3, attention=attention)
    found = Target.local("m", Seq2SeqModel(VOCABULARY, VOCABULARY, config), {})
    assert (found.task, found.source_vocabulary, found.vocab_size) == (task, VOCABULARY, 4)


def test_the_words_of_a_callable_are_the_commonest_of_the_reference():
    from vestige.data.corpus import Corpus

    text = Corpus.from_texts(["red red red blue blue lamp"])
    found = remote_target(session(), "m:f", len, text, QueryOptions(vocabulary_size=4))
    words = {found.vocabulary.piece(n) for n in range(found.vocab_size)}
    assert words == {"<unk>", "<eos>", "red", "blue"}
    assert (found.source_vocabulary, found.record["path"], found.task) == (
        None,
        "m:f",
        "next-word",
    )
