"""Shadow models: whose documents each learns, and that none is trained twice."""

import hashlib
import json
import pickle
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.killing import environment
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, TrainingError
from vestige.models.checkpoints import load_model, load_seq2seq
from vestige.models.recurrent_network import GRUConfig, LSTMConfig
from vestige.models.seq2seq import Seq2SeqConfig
from vestige.training import shadows
from vestige.training.config import TrainingConfig
from vestige.training.shadow_jobs import ShadowPlan, draw_half, other_shapes, shadow_jobs
from vestige.training.shadows import (
    finished,
    keep_shadow,
    train_shadow,
    train_shadow_away,
    train_shadows,
)

WORDS = tuple(f"w{i}" for i in range(30))
VOCABULARY = WordVocabulary(("<unk>", "<eos>", *WORDS))
SHAPE = LSTMConfig(layers=1, embedding_size=8, hidden_size=8, dropout_out=0.2)
TRAINING = TrainingConfig(
    seed=0, epochs=2, batch_size=4, batching="documents", learning_rate=0.01, checkpoint_every=5
)

FORKS = """
import json, os, pickle, sys
from pathlib import Path
import torch._dynamo  # every optimizer imports it, for seconds: once here, not in each child
from tests.killing import kill_at
from vestige.training import checkpoint, loop, shadows

jobs = pickle.loads(Path(sys.argv[1]).read_bytes())
log = Path(sys.argv[2])
calls = {
    "save": (checkpoint, "save"),
    "model": (loop, "save_model"),
    "record": (shadows, "write_text"),
    "recorded": (shadows, "_there"),
}

def logged(model, task, *, directory, learn=shadows.learn, **named):
    with log.open("a") as file:
        print(directory.name, (directory / "shadow.json").exists(), file=file)
    return learn(model, task, directory=directory, **named)

def child(moment):
    if os.fork():
        return
    kill_at(moment, calls)
    shadows.learn = logged
    try:
        shadows.train_shadows(jobs)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)
    os._exit(0)

for moments in sys.argv[3:]:
    for moment in moments.split("+"):
        child(moment)
    ends = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in moments.split("+")]
    paths = [job.directory / "shadow.json" for job in jobs]
    print(json.dumps([ends, {str(p): p.stat().st_mtime_ns for p in paths if p.exists()}]))
"""


def corpus(users=9, documents=4, seed=0):
    """Documents of users who each like some words."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        liked = rng.choice(len(WORDS), 6, replace=False)
        for _ in range(documents):
            words = [WORDS[place] for place in rng.choice(liked, 7)]
            rows.append((" ".join(words), f"user {user}"))
    return Corpus.from_texts([text for text, _ in rows], users=[user for _, user in rows])


def plan(**changed):
    return ShadowPlan(**{"seed": 1, "count": 3, "models": (SHAPE,), "training": TRAINING} | changed)


@pytest.fixture
def jobs(tmp_path):
    """Make the jobs of a plan, in a folder that need not be the test's own."""

    def jobs(folder="shadows", reference=None, **changed):
        texts = corpus() if reference is None else reference
        return shadow_jobs(plan(**changed), texts, VOCABULARY, tmp_path / folder)

    return jobs


def weights(shadow):
    return (shadow.directory / "model" / "model.safetensors").read_bytes()


def test_members_are_a_random_half_of_the_users_and_the_others_are_the_rest(jobs):
    users = {f"user {i}" for i in range(9)}
    made = jobs(count=10)
    for place, job in enumerate(made):
        assert len(job.members) == (5 if place % 2 else 4)
        assert set(job.members) | set(job.others) == users
        assert not set(job.members) & set(job.others)
        inside, outside = job.parts()
        assert set(inside.users) == set(job.members)
        assert set(outside.users) == set(job.others)
        assert len(inside) + len(outside) == 36
    assert len({job.members for job in made}) > 5
    fewer = jobs(count=3)
    assert [job.digest for job in fewer] == [job.digest for job in made][:3]
    texts = corpus()
    turned = jobs(reference=texts.take(np.arange(len(texts))[::-1]))
    assert [job.members for job in turned] == [job.members for job in fewer]
    assert turned[0].digest != fewer[0].digest


def test_every_user_is_a_member_of_one_of_each_pair():
    names = [f"user {i}" for i in range(20)]
    drawn = [draw_half(names, seed=0, index=index)[0] for index in range(400)]
    assert all(sum(name in half for half in drawn) == 200 for name in names)
    first = [sum(name in half for half in drawn[::2]) for name in names]
    assert all(58 < count < 142 for count in first)  # six standard deviations of 7


def test_a_digest_is_decided_by_all_that_decides_the_model_and_by_nothing_else(jobs, tmp_path):
    texts = corpus()
    labelled = Corpus.from_texts(texts, users=texts.users, labels=["new"] * len(texts))
    same = [jobs("elsewhere"), jobs(reference=labelled), jobs(training=replace(TRAINING, seed=9))]
    other = [
        jobs(seed=2),
        jobs(models=(replace(SHAPE, hidden_size=9),)),
        jobs(models=(GRUConfig(**vars(SHAPE)),)),
        jobs(training=replace(TRAINING, epochs=3)),
        jobs(reference=corpus(seed=1)),
        shadow_jobs(plan(), texts, replace(VOCABULARY, lowercase=True), tmp_path),
    ]
    assert {made[0].digest for made in same} == {jobs()[0].digest}
    assert len({made[0].digest for made in (jobs(), *other)}) == len(other) + 1


def test_models_are_taken_in_turn_and_seeds_differ(jobs):
    made = jobs(count=4, models=(SHAPE, replace(SHAPE, hidden_size=9)))
    assert [job.model.hidden_size for job in made] == [8, 9, 8, 9]
    assert len({job.training.seed for job in made}) == 4
    assert {job.training.precision for job in made} == {"float32"}


def test_the_papers_shadows_of_other_shapes_are_ten_grus():
    made = other_shapes(seed=0)
    assert [model.hidden_size for model in made.models] == list(range(64, 353, 32))
    assert made.count == 10
    assert {type(model) for model in made.models} == {GRUConfig}
    assert (made.training.epochs, made.training.learning_rate) == (50, 0.01)
    assert (made.training.optimizer, made.training.momentum) == ("sgd", 0.9)
    for task, attention in (("translation", True), ("dialogue", False)):
        assert {model.attention for model in other_shapes(seed=0, task=task).models} == {attention}


def test_a_shadow_no_better_than_word_frequencies_is_useless(jobs):
    [job] = jobs(count=1)
    shadow = train_shadow(job)
    alone = finished(job).outside.measures["word_frequency_perplexity"]
    for own, useless in ((0.9 * alone, False), (1.1 * alone, True)):
        outside = replace(shadow.outside, perplexity=own)
        assert replace(shadow, outside=outside).useless is useless


@pytest.mark.slow
def test_a_shadow_knows_its_members_better_than_the_others(jobs):
    [job] = jobs(count=1, training=replace(TRAINING, epochs=15, learning_rate=0.05))
    shadow = train_shadow(job)
    assert shadow.outside.perplexity > 1.2 * shadow.inside.perplexity
    assert shadow.inside.accuracy > shadow.outside.accuracy
    assert load_model(shadow.directory, device="cpu").vocab_size == len(VOCABULARY)
    assert not any("user 1" in file.read_text() for file in shadow.directory.glob("*.json*"))


def test_a_finished_shadow_is_found_and_not_trained_again(jobs, monkeypatch):
    before = train_shadows(jobs())
    monkeypatch.setattr(
        shadows, "learn", lambda *args, **named: pytest.fail("to train the shadow model again")
    )
    said = []
    assert train_shadows(jobs(), say=said.append) == before
    assert train_shadow(jobs()[1]) == before[1]
    assert said == []
    assert [before[0], before[2]] == train_shadows([jobs()[0], jobs()[2]])


def test_a_shadow_trained_away_has_the_bits_of_one_trained_here(jobs):
    here, [job, *_] = train_shadow(jobs("here")[0]), jobs("away")
    files = train_shadow_away(pickle.loads(pickle.dumps(job)))
    assert "checkpoint.safetensors" not in files
    away = keep_shadow(job, files)
    assert weights(away) == weights(here)
    assert replace(away, directory=here.directory) == here
    assert {path.name for path in away.directory.rglob("*")} == {
        path.name for path in here.directory.rglob("*")
    }
    stamp = (away.directory / "shadow.json").stat().st_mtime_ns
    assert keep_shadow(job, files) == away
    assert (away.directory / "shadow.json").stat().st_mtime_ns == stamp


def test_a_shadow_of_a_translation_reads_a_source_first(tmp_path):
    texts = corpus()
    turned = [" ".join(reversed(text.split())) for text in texts]
    pairs = Corpus.from_texts(texts, users=texts.users, sources=turned)
    shape = Seq2SeqConfig(embedding_size=6, hidden_size=6)
    asked = plan(count=1, task="translation", models=(shape,), training=replace(TRAINING, epochs=1))
    made = [
        shadow_jobs(asked, pairs, VOCABULARY, tmp_path / name, source_vocabulary=VOCABULARY)[0]
        for name in ("here", "away")
    ]
    here, away = train_shadow(made[0]), keep_shadow(made[1], train_shadow_away(made[1]))
    assert weights(here) == weights(away)
    assert load_seq2seq(away.directory, device="cpu").config == shape
    assert here.inside.tokens == 8 * len(made[0].parts()[0])


def test_files_that_are_not_those_of_the_shadow_are_refused(jobs):
    [job, other, _] = jobs()
    files = train_shadow_away(other)
    for strange in (
        {},
        {"shadow.json": b"{}"},
        files | {"../out": b""},
        files | {"model/../../out": b""},
    ):
        with pytest.raises(TrainingError, match="not those of a shadow"):
            keep_shadow(job, strange)
        assert finished(job) is None
    with pytest.raises(TrainingError, match="another shadow"):
        keep_shadow(job, files)


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["weights", "no weights", "record", "no model", "half a record"])
def test_a_shadow_that_was_damaged_is_trained_again(jobs, harm):
    [job, *_] = jobs()
    first = train_shadow(job)
    record, model = job.directory / "shadow.json", job.directory / "model"
    if harm == "weights":
        (model / "model.safetensors").write_bytes(b"x")
    elif harm == "no weights":
        (model / "model.safetensors").unlink()
    elif harm == "no model":
        model.rename(job.directory / "elsewhere")
    elif harm == "record":
        record.write_text(record.read_text().replace("next-word", "dialogue"))
    else:
        record.write_text(record.read_text()[:40])
    said = []
    [again] = train_shadows([job], say=said.append)
    assert again == first  # to the bit: the same training
    assert str(job.directory) in said[0]
    assert said[0].endswith("training it again")
    assert len(said) == 2
    assert train_shadows([job], say=said.append) == [first]
    assert len(said) == 2


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Four shadows that nobody killed, by their digests."""
    made = shadow_jobs(plan(count=4), corpus(), VOCABULARY, tmp_path_factory.mktemp("whole"))
    return {shadow.directory.name: shadow for shadow in train_shadows(made)}


MOMENTS = ("save:1", "save:2", "model:1", "record:1", "recorded:1", "record:2", "save:1")


@pytest.mark.slow
def test_four_shadows_killed_again_and_again_are_the_same_and_none_is_trained_twice(
    jobs, tmp_path, undisturbed
):
    made, script, log = jobs(count=4), tmp_path / "forks.py", tmp_path / "log"
    script.write_text(FORKS)
    (tmp_path / "jobs").write_bytes(pickle.dumps(made))
    words = [sys.executable, script, tmp_path / "jobs", log, *MOMENTS, "+"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    # Two processes train the rest together: one of them waits.
    assert [codes for codes, _ in ends] == [[-9]] * 7 + [[0, 0]]
    assert [len(stamps) for _, stamps in ends] == [0, 0, 0, 0, 1, 2, 3, 4]
    for _, stamps in ends:  # what was finished was never written again
        assert stamps.items() <= ends[-1][1].items()
    begun = [line.split() for line in log.read_text().splitlines()]
    assert {was_finished for _, was_finished in begun} == {"False"}
    often = Counter(digest for digest, _ in begun)
    assert [often[job.digest] for job in made] == [5, 1, 2, 2]
    for job in made:
        shadow, whole = finished(job), undisturbed[job.digest]
        assert weights(shadow) == weights(whole)
        assert replace(shadow, directory=whole.directory) == whole
        assert shadow.sha256 == hashlib.sha256(weights(shadow)).hexdigest()


def without(*columns):
    """The corpus in two languages, without a column, or with these users."""
    texts = corpus(users=2, documents=1)
    given = {"sources": list(texts), "users": ["ann", "bo"]}
    users = [name for name in columns if name not in given]
    given = {name: values for name, values in given.items() if name not in columns}
    return Corpus.from_texts(texts, **(given | ({"users": users} if users else {})))


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (["users"], "column 'user'"),
        (["sources"], "column 'source'"),
        (["ann", ""], "documents without a user"),
        (["ann", "ann"], "2 users or more; it has 1"),
    ],
)
def test_a_reference_without_sources_or_enough_users_is_refused(tmp_path, missing, message):
    translated = plan(task="translation", models=(Seq2SeqConfig(),))
    with pytest.raises(DataError, match=message):
        shadow_jobs(
            translated, without(*missing), VOCABULARY, tmp_path, source_vocabulary=VOCABULARY
        )


def test_a_training_that_cannot_begin_leaves_no_shadow(jobs):
    [job, *_] = jobs(training=replace(TRAINING, batching="stream", batch_size=500))
    with pytest.raises(TrainingError):
        train_shadow(job)
    assert finished(job) is None
