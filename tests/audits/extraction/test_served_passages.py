"""Passages of a served model are those of its folder, except for each text's first token."""

import numpy as np
import pytest

from tests.audits.stories import sentences
from tests.models.served import FAULTS, KEY, Served, Shifted, failing, network, serving
from tests.monitors import RecordingMonitor
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
def learned(tmp_path_factory):
    """A model that knows some of the texts by heart, and these texts."""
    subwords = SubwordVocabulary.train_bpe(TEXTS, size=300)
    settings = ShadowOptions(shadows=1, epochs=120, batch_size=4, learning_rate=0.03)
    [one] = shadow_models(
        None, network(subwords), TEXTS.take(range(16)), settings,
        folder=tmp_path_factory.mktemp("learned"), seed=0, device="cpu", monitor=SILENT,
    )  # fmt: skip
    return one.model, TEXTS.take(one.members)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def column(result, name):
    return [np.nan if row[name] is None else row[name] for row in result.rows]


@pytest.mark.slow
@pytest.mark.parametrize("server", [Served, Shifted])
def test_a_server_gives_what_the_folder_gives(learned, tmp_path, server):
    model, seen = learned
    never = TEXTS.take(range(16, 40))
    folder = extract(model, seen, reference=never, **SETTINGS)
    with serving(server(model)) as url:
        at = f"openai:{url}#small"
        result = extract(at, seen, reference=never, out=tmp_path / "out", **SETTINGS)
    assert folder.summary["greedy"] > 0.3
    for name in ("length", "passages", "greedy", "sampled", "log_prob", "tries"):
        np.testing.assert_allclose(column(result, name), column(folder, name), 1e-3, err_msg=name)
    # No server shows the first token of a text: it counts as one that is not generated.
    lost = np.array(column(folder, "exact")) - np.array(column(result, "exact"))
    tokens = lost * column(folder, "length")
    assert ((tokens >= 0) & (tokens < 1 + 1e-9)).all()
    record = results.load(tmp_path / "out").run
    assert record["models"]["target"]["calls"] > 5  # several prompts in each
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if KEY.encode() in path.read_bytes()]


@pytest.mark.slow
def test_samples_are_from_no_more_tokens_than_are_shown(learned):
    model, seen = learned
    log = RecordingMonitor()
    with serving(Shifted(model, most=5)) as url:
        result = extract(f"openai:{url}#small", seen, monitor=log, **{**SETTINGS, "top_k": 9})
    assert result.summary["top_k"] == 5
    assert any("the 5 most probable" in line for line in log.lines)
    folder = extract(model, seen, **SETTINGS)
    assert column(result, "log_prob") == pytest.approx(column(folder, "log_prob"), rel=1e-3)


@pytest.mark.slow
def test_faults_change_no_result_and_nothing_is_sent_twice(learned, tmp_path):
    model, seen = learned
    given = {"statistics": tmp_path, "remote": RemoteOptions(attempts=8, timeout=2.0), **SETTINGS}
    served = Served(model)
    with serving(served) as url:
        plain = extract(f"openai:{url}#small", seen, **given)
        calls = len(served.asked)
        again = extract(f"openai:{url}#small", seen, **given)
        assert len(served.asked) - calls <= 2 * 2  # the control questions of two sessions
        with failing(url, FAULTS["changed order"]) as (proxy, faults):
            result = extract(f"openai:{proxy}#small", seen, **given)
    assert faults
    np.testing.assert_equal(list(again.rows), list(plain.rows))
    np.testing.assert_equal(list(result.rows), list(plain.rows))


def test_a_server_that_echoes_no_prompt_and_a_small_budget_are_refused(learned):
    model, seen = learned
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
