"""Users are audited from paths and objects alike; an audit resumes, and refuses contradictions."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from tests.audits.told import Told
from tests.models.narrowed import narrow
from vestige.claims import UNDECIDED
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, ModelError, RunError
from vestige.models.checkpoints import save_model
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.monitor import SILENT

from .queried import users

WORDS = tuple(f"w{n}" for n in range(20))


def texts_of(names, *, seed):
    chance = np.random.default_rng(seed)
    owners = [name for name in names for _ in range(4)]
    return Corpus.from_texts([" ".join(chance.choice(WORDS, 8)) for _ in owners], users=owners)


MINE = texts_of(["me", "you"], seed=1)
YOURS = texts_of(["you"], seed=3)
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
    return users(model, texts, **{"reference": OTHERS, "shadows": 0, **named})


def test_paths_and_objects_give_the_same_audit(model, folder):
    loaded = audit(model)
    paths = users(
        str(folder / "model"),
        folder / "mine.jsonl",
        reference=folder / "others.jsonl",
        user="who",
        shadows=0,
        device="cpu",
    )
    assert loaded.rows == paths.rows
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
    assert [one.rows for one in found] == [found[0].rows] * 3
    assert found[0].summary["queries"] > 0


def test_a_service_that_always_lists_the_same_words_is_undecided():
    found = audit(lambda contexts: [list(WORDS[:3])] * len(contexts), top_k=3)
    assert found.verdict == UNDECIDED
    assert "alive" in {check.name for check in found.claim.checks if check.state == "failed"}


def test_without_out_nothing_is_left_and_the_result_can_be_saved(model, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    found = audit(model)
    assert list(tmp_path.iterdir()) == []
    found.save(tmp_path / "run")
    assert (tmp_path / "run" / "rows.parquet").is_file()


def test_a_finished_audit_is_never_overwritten(model, tmp_path):
    audit(model, out=tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(RunError, match="out exists already"):
        audit(model, out=tmp_path / "out")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


class Interrupting(Told):
    """A monitor that interrupts the audit when the users are compared, as Ctrl-C does."""

    def log(self, text):
        super().log(text)
        if text.startswith("Comparing"):
            raise KeyboardInterrupt


def test_another_audit_does_not_take_unfinished_work(model, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        audit(model, out=tmp_path / "out", monitor=Interrupting())
    with pytest.raises(RunError, match=r"other settings: alpha 0\.05 and not 0\.2"):
        audit(model, out=tmp_path / "out", alpha=0.2)
    with pytest.raises(RunError, match="other settings: texts"):
        audit(model, YOURS, out=tmp_path / "out")


def test_ranks_are_computed_once(model, tmp_path):
    with pytest.raises(KeyboardInterrupt) as caught:
        audit(model, out=tmp_path / "out", monitor=Interrupting())
    assert caught.value.__notes__ == ["Finished work is kept: the same command resumes it"]
    log = Told()
    found = audit(model, out=tmp_path / "out", monitor=log)
    assert "reading the texts" not in log.tasks
    assert found.rows == audit(model, monitor=SILENT).rows
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"queries": 1, "calls": 2}, "`calls` must be left out with `queries`"),
        ({"select": "rare"}, "`select` rare must come with `queries` or `calls`"),
        ({"alpha": 1.0}, "`alpha` must be less than 1"),
        ({"top_k": 99}, "`top_k` must lie in"),
        ({"select": "informative", "calls": 3}, "needs shadow models"),
        ({"budget": 9}, "`budget` needs a remote model"),
        ({"person": " "}, "`person` must be a name"),
    ],
)
def test_settings_that_contradict_each_other_are_named_as_parameters(model, named, message):
    with pytest.raises(ValueError, match=message):
        audit(model, **named)


def test_what_cannot_be_audited_is_refused(model):
    with pytest.raises(ModelError, match="neither a model nor a function"):
        audit(3)
    with pytest.raises(ValueError, match="`top_k` must be given for a remote model"):
        audit(lambda contexts: [])
    with pytest.raises(DataError, match="2 users are in both `texts` and `reference`"):
        audit(model, reference=OTHERS + MINE)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"shadows": 1}, "`shadows` must be 0, 2 or more"),
        ({"other_shapes": True, "hidden_size": 3}, "`hidden_size` does not go with `other_shapes`"),
        ({"processes": 2, "cluster": "auto"}, "`processes` does not go with `cluster`"),
    ],
)
def test_options_of_shadow_models_that_contradict_each_other_are_named(model, named, message):
    with pytest.raises(ValueError, match=message):
        audit(model, **named)


def test_a_budget_that_cannot_be_enough_is_refused_before_anything_is_asked(model):
    asked = []

    def ask(contexts):
        asked.append(contexts)
        return narrow(model, k=5).likeliest(contexts)

    with pytest.raises(DataError, match=r"`budget` 9 is too small: this audit needs \d+ queries"):
        audit(ask, top_k=5, budget=9)
    assert asked == []
