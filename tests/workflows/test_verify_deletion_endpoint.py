"""Deletions from a served model are verified as those from its files are."""

import numpy as np
import pytest

from tests.models.served import KEY, Served, network, serving
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.monitor import SILENT
from vestige.workflows.endpoint_settings import EndpointSettings
from vestige.workflows.text_shadows import ShadowFineTunes, shadow_fine_tunes
from vestige.workflows.verify_deletion import verify_deletion

from .asked import sentences

pytest.importorskip("openai")

TEXTS = Corpus.from_texts(sentences(80, seed=0))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model that read texts, one that read others, and which of the first 40 the former read."""
    base = network(SubwordVocabulary.train_bpe(TEXTS, size=300))
    settings = ShadowFineTunes(shadows=2, epochs=40, batch_size=4, learning_rate=0.01)
    one, other = shadow_fine_tunes(
        None, base, TEXTS.take(range(40)), settings,
        folder=tmp_path_factory.mktemp("trained"), seed=0, device="cpu", monitor=SILENT,
    )  # fmt: skip
    return one.model, other.model, TEXTS.take(one.seen)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


NEVER = TEXTS.take(range(40, 80))


@pytest.mark.parametrize("served", ["before", "after", "both"])
def test_servers_are_compared_as_folders_but_for_first_tokens(trained, tmp_path, served):
    before, after, deleted = trained
    files = verify_deletion(before, after, deleted, reference=NEVER)
    with serving(Served(before)) as one, serving(Served(after)) as other:
        at = {"before": f"openai:{one}#small", "after": f"openai:{other}#small"}
        given = {"before": before, "after": after}
        given |= at if served == "both" else {served: at[served]}
        found = verify_deletion(
            **given, deleted=deleted, reference=NEVER, statistics=tmp_path / "kept"
        )
    assert found.verdict == files.verdict
    assert found.before_p_value < 0.01
    assert files.before_p_value < 0.01
    assert found.left[0] == pytest.approx(files.left[0], abs=0.1)
    assert list(found.tokens) == [n - 1 for n in files.tokens]
    for role in at:
        known = getattr(found, role).deleted
        assert np.corrcoef(known, getattr(files, role).deleted)[0, 1] > 0.9


def test_a_retrained_model_beside_a_server_and_settings_of_none_are_refused(trained):
    before, after, deleted = trained
    with pytest.raises(ValueError, match="`retrained` must be left out with an endpoint"):
        verify_deletion(
            before, "openai:http://x/v1#small", deleted, reference=NEVER, retrained=after
        )
    with pytest.raises(ValueError, match="`budget` must be left out"):
        verify_deletion(
            before, after, deleted, reference=NEVER, endpoint=EndpointSettings(budget=1)
        )
