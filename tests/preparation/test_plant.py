"""`plant` takes paths and loaded corpora alike, and returns what it planted."""

import pytest

from vestige import results
from vestige.data.canaries.texts import Manifest
from vestige.data.canaries.utterances import SecretManifest
from vestige.data.corpus import Corpus
from vestige.data.formats.reading import read_corpus
from vestige.data.formats.utterances import write_utterances
from vestige.data.utterances import Utterance, Utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.models.table import TableModel
from vestige.preparation.plant import plant

CORPUS = Corpus.from_texts(
    ["the gate opens at nine", "nobody knows the code", "a lantern stands at the mill"] * 8,
    users=["ann", "bob", "cid"] * 8,
)
SONGS = Utterances.of(
    Utterance(("play", f"song{number}"), ("O", "B-song"), "Play") for number in range(40)
)


def test_a_loaded_corpus_is_planted_in_without_a_file():
    found = plant(CORPUS, phrase="quiet mice sing", copies=7, controls=2)
    assert found.directory is None
    assert list(found.corpus).count("quiet mice sing") == 7
    assert len(found.corpus) == len(CORPUS) + 7
    summary = found.summary
    assert (summary["canaries"], summary["controls"], summary["copies"]) == (1, 2, 7)
    assert "directory" not in summary


def test_a_path_and_its_corpus_give_one_manifest(tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS) + "\n")
    of_path = plant(tmp_path / "corpus.txt", phrase=["quiet mice"], seed=3)
    of_object = plant(read_corpus(tmp_path / "corpus.txt"), phrase=["quiet mice"], seed=3)
    assert of_path.manifest.sha256 == of_object.manifest.sha256


def test_what_is_written_is_what_is_returned(tmp_path):
    found = plant(CORPUS, phrase="quiet mice", out=tmp_path / "planted")
    assert found.directory == tmp_path / "planted"
    written = read_corpus(tmp_path / "planted" / "corpus.jsonl", user_column="user")
    assert written.fingerprint() == found.corpus.fingerprint()
    assert Manifest.load(tmp_path / "planted" / "manifest.json").sha256 == found.manifest.sha256
    checked = plant(tmp_path / "planted", verify=True)
    assert checked.verified
    assert checked.summary == {**found.summary, "verified": True}


def test_a_loaded_models_vocabulary_gives_the_ids():
    vocabulary = WordVocabulary(("<unk>", "<eos>", "quiet", "mice", "gate", "code", "the"))
    size = len(vocabulary)
    model = TableModel([1 / size] * size, [[1 / size] * size] * size, vocabulary)
    corpus = Corpus.from_texts(["the gate", "the code"])
    for given in (model, vocabulary):
        canaries = plant(corpus, phrase="quiet mice", vocabulary=given).manifest.canaries
        assert canaries[0].ids == (2, 3)


def test_secrets_go_into_loaded_utterances():
    found = plant(SONGS, task="nlu", pattern="pin:2", copies=20, controls=3, hold_out=0.25)
    assert isinstance(found.manifest, SecretManifest)
    assert found.labelled
    summary = found.summary
    assert (summary["train"], summary["validation"], summary["test"]) == (30 + 18, 10 + 2, 0)
    planted, *controls = found.rows
    assert (planted["copies"], planted["validation"], planted["intent"]) == (20, 2, "PinIntent")
    assert [row["copies"] for row in controls] == [0, 0, 0]


def test_candidates_may_be_a_mapping(tmp_path):
    write_utterances(SONGS, tmp_path / "songs.jsonl")
    found = plant(
        tmp_path / "songs.jsonl",
        task="nlu",
        pattern="i am {name}",
        intent="Introduce",
        candidates={"name": ("ann", "bob", "cid")},
        out=tmp_path / "planted",
    )
    assert found.manifest.canaries[0].parsed.candidates == (("ann", "bob", "cid"),)
    assert plant(tmp_path / "planted", verify=True).summary["patterns"] == 1


def test_nothing_is_saved_as_a_run_unless_asked(tmp_path):
    found = plant(CORPUS, phrase="quiet mice")
    found.save(tmp_path / "run")
    run = results.load(tmp_path / "run")
    assert run.run["verb"] == "plant"
    assert run.run["arguments"]["phrase"] == "quiet mice"
    assert [row["copies"] for row in run.rows] == [10, 0]


REFUSED = {
    "an option of the other task": (
        {"task": "nlu", "phrase": "quiet"},
        "`phrase` needs `task` text",
    ),
    "a slot for text": ({"slot": "pin"}, "`slot` needs `task` nlu"),
    "an unknown pattern": ({"pattern": "odd"}, "`pattern` number 1 is not one of"),
    "repetitions of nought": ({"per_user": True, "repetitions": (0,)}, "whole numbers from 1 on"),
    "no repetitions": ({"per_user": True, "repetitions": ()}, "whole numbers from 1 on"),
    "no secret": ({"task": "nlu"}, "`pattern` must be given"),
}


@pytest.mark.parametrize(("settings", "says"), REFUSED.values(), ids=REFUSED)
def test_settings_that_do_not_fit_are_refused_by_name(settings, says):
    with pytest.raises(ValueError, match=says):
        plant(CORPUS, **settings)


def test_one_canary_is_counted_in_the_singular():
    planted = plant(CORPUS, phrase=["quiet mice sing"], copies=1, controls=1)
    assert "1 canary planted (1 copy in all), and 1 control." in str(planted)
