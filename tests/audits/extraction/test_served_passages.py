"""Memorization asked of a server is that of the model's files, but for each text's first token."""

import numpy as np
import pytest

from tests.audits.told import Told, sentences
from tests.models.served import FAULTS, KEY, Served, Shifted, failing, network, serving
from vestige import results
from vestige.audits.extraction.extract import extract
from vestige.audits.membership.membership import ShadowOptions
from vestige.audits.membership.shadows import shadow_models
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import DataError
from vestige.models.remote.options import RemoteOptions
from vestige.monitor import SILENT

pytest.importorskip("openai")

TEXTS = Corpus.from_texts(sentences(40, seed=0))
SETTINGS = {"prefix": 4, "suffix": 4, "top_k": 5}


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A model that says some of the texts by heart, and which."""
    subwords = SubwordVocabulary.train_bpe(TEXTS, size=300)
    settings = ShadowOptions(shadows=1, epochs=120, batch_size=4, learning_rate=0.03)
    [one] = shadow_models(
        None, network(subwords), TEXTS.take(range(16)), settings,
        folder=tmp_path_factory.mktemp("learnt"), seed=0, device="cpu", monitor=SILENT,
    )  # fmt: skip
    return one.model, TEXTS.take(one.members)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def column(found, name):
    return [np.nan if row[name] is None else row[name] for row in found.rows]


@pytest.mark.slow
@pytest.mark.parametrize("server", [Served, Shifted])
def test_a_server_tells_what_the_files_tell(learnt, tmp_path, server):
    model, seen = learnt
    never = TEXTS.take(range(16, 40))
    files = extract(model, seen, reference=never, **SETTINGS)
    with serving(server(model)) as url:
        at = f"openai:{url}#small"
        found = extract(at, seen, reference=never, out=tmp_path / "out", **SETTINGS)
    assert files.summary["greedy"] > 0.3
    names = ("length", "passages", "greedy", "sampled", "log_prob", "tries")
    for name in names:
        np.testing.assert_allclose(column(found, name), column(files, name), 1e-3, err_msg=name)
    # Of a text's first token no server tells: it counts as one that does not come back.
    lost = np.array(column(files, "exact")) - np.array(column(found, "exact"))
    assert all(
        0 <= own * n < 1 + 1e-9 for own, n in zip(lost, column(files, "length"), strict=True)
    )
    record = results.load(tmp_path / "out").run
    assert record["models"]["target"]["calls"] > 5  # several prompts in each
    files_written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files_written if KEY.encode() in path.read_bytes()]


@pytest.mark.slow
def test_samples_are_drawn_from_no_more_than_is_shown(learnt):
    model, seen = learnt
    told = Told()
    with serving(Shifted(model, most=5)) as url:
        found = extract(f"openai:{url}#small", seen, monitor=told, **{**SETTINGS, "top_k": 9})
    assert found.summary["top_k"] == 5
    assert any("the 5 most probable" in line for line in told.lines)
    of_files = extract(model, seen, **SETTINGS)
    assert column(found, "log_prob") == pytest.approx(column(of_files, "log_prob"), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rate limit", "truncated JSON", "changed order"])
def test_no_fault_changes_a_result(learnt, kind):
    model, seen = learnt
    settings = RemoteOptions(attempts=8, timeout=2.0)
    with serving(Served(model)) as upstream:
        plain = extract(f"openai:{upstream}#small", seen, remote=settings, **SETTINGS)
        with failing(upstream, FAULTS[kind]) as (url, faults):
            found = extract(f"openai:{url}#small", seen, remote=settings, **SETTINGS)
    assert faults
    np.testing.assert_equal(list(found.rows), list(plain.rows))


@pytest.mark.slow
def test_nothing_is_asked_twice(learnt, tmp_path):
    model, seen = learnt
    served = Served(model)
    with serving(served) as url:
        first = extract(f"openai:{url}#small", seen, statistics=tmp_path, **SETTINGS)
        calls = len(served.asked)
        again = extract(f"openai:{url}#small", seen, statistics=tmp_path, **SETTINGS)
    np.testing.assert_equal(list(again.rows), list(first.rows))
    assert len(served.asked) - calls <= 2 * 2  # the control questions of two sessions


def test_what_a_server_does_not_echo_and_a_small_budget_are_refused(learnt):
    model, seen = learnt
    served = Served(model, echo=False)
    with serving(served) as url:
        at = f"openai:{url}#small"
        with pytest.raises(DataError, match="`budget` 5 is too small"):
            extract(at, seen, remote=RemoteOptions(budget=5), **SETTINGS)
        assert not served.asked
        with pytest.raises(DataError, match="shows no log-probabilities of a prompt"):
            extract(at, seen, **SETTINGS)
    with pytest.raises(ValueError, match="`budget` needs a remote model"):
        extract(model, seen, remote=RemoteOptions(budget=5), **SETTINGS)
