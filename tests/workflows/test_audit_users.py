"""`audit_users` takes paths and objects alike, goes on where it was, and refuses contradictions."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from tests.reports.test_damaged_runs import seal
from vestige.attacks.membership.user_audit import UserAudit
from vestige.claims import UNDECIDED
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, ModelError, RunError
from vestige.models.checkpoints import save_model
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.top_k import narrow
from vestige.workflows.audit_options import ServiceSettings, ShadowSettings
from vestige.workflows.audit_users import audit_users

WORDS = tuple(f"w{n}" for n in range(20))
NONE = ShadowSettings(shadows=0)


def texts_of(names, *, seed):
    chance = np.random.default_rng(seed)
    owners = [name for name in names for _ in range(4)]
    return Corpus.from_texts([" ".join(chance.choice(WORDS, 8)) for _ in owners], users=owners)


MINE = texts_of(["me", "you"], seed=1)
OTHERS = texts_of([f"person {n:02}" for n in range(40)], seed=2)


@pytest.fixture(scope="module")
def model():
    config = LSTMConfig(layers=1, embedding_size=6, hidden_size=6)
    return LSTMLanguageModel(WordVocabulary(("<unk>", "<eos>", *WORDS)), config).eval()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    root = tmp_path_factory.mktemp("audit")
    save_model(model, root / "model")
    for name, corpus in (("mine", MINE), ("others", OTHERS)):
        rows = [{"text": t, "who": u} for t, u in zip(corpus, corpus.users, strict=True)]
        (root / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return root


def audit(model, texts=MINE, **named):
    return audit_users(model, texts, **{"reference": OTHERS, "shadow_models": NONE, **named})


class Log:
    """A monitor that remembers."""

    def __init__(self):
        self.lines, self.tasks = [], []

    def log(self, text):
        self.lines.append(text)

    def progress(self, task):
        from vestige.monitor import SILENT

        self.tasks.append(task)
        return SILENT.progress(task)


def test_paths_and_objects_give_the_same_audit(model, folder):
    loaded = audit(model)
    paths = audit_users(
        str(folder / "model"),
        folder / "mine.jsonl",
        reference=folder / "others.jsonl",
        user="who",
        shadow_models=NONE,
        device="cpu",
    )
    assert list(loaded.rows()) == list(paths.rows())
    assert loaded.record["arguments"]["model"] == "<LSTMLanguageModel>"
    assert paths.record["models"]["target"]["sha256"]


def test_a_callable_an_outsiders_model_and_a_name_give_the_same_audit(model, monkeypatch):
    outside = narrow(model, k=5)
    monkeypatch.setitem(__import__("sys").modules, "asked_of_tests", SimpleNamespace(
        ask=outside.likeliest
    ))  # fmt: skip
    found = [
        audit(target, top_k=5) for target in (outside, outside.likeliest, "asked_of_tests:ask")
    ]
    assert [list(one.rows()) for one in found] == [list(found[0].rows())] * 3
    assert found[0].summary()["queries"] > 0


def test_a_service_that_always_lists_the_same_words_is_undecided():
    found = audit(lambda contexts: [list(WORDS[:3])] * len(contexts), top_k=3)
    assert found.verdict == UNDECIDED
    assert "alive" in {check.name for check in found.checks if check.state == "failed"}


def test_without_out_nothing_is_left_and_the_result_can_be_saved(model, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    found = audit(model)
    assert list(tmp_path.iterdir()) == []
    found.save(tmp_path / "run")
    assert (tmp_path / "run" / "rows.parquet").is_file()


def test_a_finished_audit_is_read_and_not_done_again(model, tmp_path):
    first, log = audit(model, out=tmp_path / "out"), Log()
    again = audit(model, out=tmp_path / "out", monitor=log)
    assert list(again.rows()) == list(first.rows())
    assert again.summary() == first.summary()
    assert log.tasks == []
    assert "nothing is done again" in log.lines[0]


def test_another_audit_does_not_take_the_directory(model, tmp_path):
    audit(model, out=tmp_path / "out")
    with pytest.raises(RunError, match="another audit: settings differs"):
        audit(model, out=tmp_path / "out", rate=0.2)


def test_ranks_are_computed_once(model, tmp_path):
    audit(model, out=tmp_path / "out")
    [ranks] = (tmp_path / "out" / "ranks").iterdir()
    (tmp_path / "out" / "run" / "rows.parquet").unlink()
    __import__("shutil").rmtree(tmp_path / "out" / "run")
    log = Log()
    audit(model, out=tmp_path / "out", monitor=log)
    assert "asking the model" not in log.tasks
    assert ranks.is_file()


def test_damaged_rows_of_a_finished_audit_are_named(model, tmp_path):
    audit(model, out=tmp_path / "out")
    run = tmp_path / "out" / "run" / "summary.json"
    told = json.loads(run.read_text())
    del told["calibrated_on"]
    run.write_text(json.dumps(told))
    with pytest.raises(RunError, match="was changed after the run"):
        audit(model, out=tmp_path / "out")
    seal(tmp_path / "out" / "run")
    with pytest.raises(RunError, match="rows that no audit has"):
        audit(model, out=tmp_path / "out")


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"queries": 1, "calls": 2}, "`calls` must be left out with `queries`"),
        ({"select": "rare"}, "`select` rare must come with `queries` or `calls`"),
        ({"rate": 1.0}, "`rate` must lie in"),
        ({"top_k": 99}, "`top_k` must lie in"),
        ({"select": "informative", "calls": 3}, "must come with shadow models"),
        ({"service": ServiceSettings(budget=9)}, "`budget` must be left out unless MODEL"),
        ({"person": " "}, "`person` must be a name"),
    ],
)
def test_settings_that_contradict_each_other_are_named_as_parameters(model, named, message):
    with pytest.raises(ValueError, match=message):
        audit(model, **named)


def test_what_cannot_be_audited_is_refused(model):
    with pytest.raises(ModelError, match="no model and cannot be called"):
        audit(3)
    with pytest.raises(ValueError, match="`top_k` must be given for a service"):
        audit(lambda contexts: [])
    with pytest.raises(DataError, match="2 users stand in `texts` and in `reference`"):
        audit(model, reference=OTHERS + MINE)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"shadows": 1}, "`shadows` must be 0, 2 or more"),
        ({"other_shapes": True, "hidden_size": 3}, "`hidden_size` must be left out"),
        ({"processes": 2, "cluster": "auto"}, "`processes` must be left out with `cluster`"),
    ],
)
def test_shadow_settings_are_checked_when_they_are_made(named, message):
    with pytest.raises(ValueError, match=message):
        ShadowSettings(**named)


def test_a_budget_that_cannot_be_enough_is_refused_before_anything_is_asked(model):
    asked = []

    def ask(contexts):
        asked.append(contexts)
        return narrow(model, k=5).likeliest(contexts)

    with pytest.raises(DataError, match=r"`budget` 9 is too small: this audit takes \d+ queries"):
        audit(ask, top_k=5, service=ServiceSettings(budget=9))
    assert asked == []


def test_a_saved_audit_comes_back_from_its_rows(model):
    found = audit(model, shadow_models=NONE)
    back = UserAudit.of_rows(found.summary(), found.rows(), record={})
    assert list(back.rows()) == list(found.rows())
    with pytest.raises(ValueError, match="at least one"):
        UserAudit.of_rows(found.summary(), [], record={})
    with pytest.raises(ValueError, match="no readable claim"):
        UserAudit.of_rows({}, found.rows(), record={})
