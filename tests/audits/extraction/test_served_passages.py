"""A served model gives the passages of its folder, except for the first token of each text."""

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
def trained(tmp_path_factory):
    """A model that knows some texts verbatim, and these texts."""
    subwords = SubwordVocabulary.train_bpe(TEXTS, size=300)
    settings = ShadowOptions(shadows=1, epochs=120, batch_size=4, learning_rate=0.03)
    [shadow] = shadow_models(
        None, network(subwords), TEXTS.take(range(16)), settings,
        folder=tmp_path_factory.mktemp("trained"), seed=0, device="cpu", monitor=SILENT,
    )  # fmt: skip
    return shadow.model, TEXTS.take(shadow.members)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def address(url):
    return f"openai:{url}#small"


def column(result, name):
    return [np.nan if row[name] is None else row[name] for row in result.rows]


@pytest.mark.slow
@pytest.mark.parametrize("server", [Served, Shifted])
def test_a_server_gives_the_passages_of_the_folder(trained, tmp_path, server):
    model, members = trained
    reference = TEXTS.take(range(16, 40))
    expected = extract(model, members, reference=reference, **SETTINGS)
    with serving(server(model)) as url:
        result = extract(
            address(url), members, reference=reference, out=tmp_path / "out", **SETTINGS
        )
    assert expected.summary["greedy"] > 0.3
    for name in ("length", "passages", "greedy", "sampled", "log_prob", "tries"):
        np.testing.assert_allclose(column(result, name), column(expected, name), 1e-3, err_msg=name)
    # No server gives the probability of a text's first token, so it counts as not generated.
    lost = np.array(column(expected, "exact")) - np.array(column(result, "exact"))
    tokens = lost * column(expected, "length")
    assert ((tokens >= 0) & (tokens < 1 + 1e-9)).all()
    record = results.load(tmp_path / "out").run
    assert record["models"]["target"]["calls"] > 5  # several prompts per call
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if KEY.encode() in path.read_bytes()]


@pytest.mark.slow
def test_top_k_is_limited_to_the_tokens_that_the_server_shows(trained):
    model, members = trained
    monitor = RecordingMonitor()
    with serving(Shifted(model, most=5)) as url:
        result = extract(address(url), members, monitor=monitor, **{**SETTINGS, "top_k": 9})
    assert result.summary["top_k"] == 5
    assert any("the 5 most probable" in line for line in monitor.lines)
    expected = extract(model, members, **SETTINGS)
    assert column(result, "log_prob") == pytest.approx(column(expected, "log_prob"), rel=1e-3)


@pytest.mark.slow
def test_faults_change_no_result_and_no_query_is_repeated(trained, tmp_path):
    model, members = trained
    options = {"statistics": tmp_path, "remote": RemoteOptions(attempts=8, timeout=2.0), **SETTINGS}
    served = Served(model)
    with serving(served) as url:
        expected = extract(address(url), members, **options)
        calls = len(served.asked)
        again = extract(address(url), members, **options)
        assert len(served.asked) - calls <= 2 * 2  # the control queries of two sessions
        with failing(url, FAULTS["changed order"]) as (proxy, faults):
            result = extract(address(proxy), members, **options)
    assert faults
    np.testing.assert_equal(list(again.rows), list(expected.rows))
    np.testing.assert_equal(list(result.rows), list(expected.rows))


def test_a_server_without_prompt_probabilities_and_a_small_budget_are_refused(trained):
    model, members = trained
    served = Served(model, echo=False)
    with serving(served) as url:
        with pytest.raises(DataError, match="`budget` 5 is too small"):
            extract(address(url), members, remote=RemoteOptions(budget=5), **SETTINGS)
        assert not served.asked
        with pytest.raises(DataError, match="shows no log-probabilities of a prompt"):
            extract(address(url), members, **SETTINGS)
    with pytest.raises(ValueError, match="`budget` needs a remote model"):
        extract(model, members, remote=RemoteOptions(budget=5), **SETTINGS)
