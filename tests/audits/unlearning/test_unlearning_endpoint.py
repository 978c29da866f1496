"""Deletions from a served model are verified as those from its files are."""

import numpy as np
import pytest

from tests.audits.told import sentences
from tests.models.served import KEY, Served, network, serving
from vestige.audits.membership.membership import ShadowOptions
from vestige.audits.membership.shadows import shadow_models
from vestige.audits.unlearning.unlearning import unlearning
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.models.remote.options import RemoteOptions
from vestige.monitor import SILENT

pytest.importorskip("openai")

TEXTS = Corpus.from_texts(sentences(80, seed=0))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model that read texts, one that read others, and which of the first 40 the former read."""
    base = network(SubwordVocabulary.train_bpe(TEXTS, size=300))
    settings = ShadowOptions(shadows=2, epochs=40, batch_size=4, learning_rate=0.01)
    one, other = shadow_models(
        None, base, TEXTS.take(range(40)), settings,
        folder=tmp_path_factory.mktemp("trained"), seed=0, device="cpu", monitor=SILENT,
    )  # fmt: skip
    return one.model, other.model, TEXTS.take(one.members)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def deleted_rows(found):
    return [row for row in found.rows if row["kind"] == "deleted"]


def lengths(found):
    return [row["length"] for row in deleted_rows(found)]


NEVER = TEXTS.take(range(40, 80))


@pytest.mark.slow
@pytest.mark.parametrize("served", ["before", "after", "both"])
def test_servers_are_compared_as_folders_but_for_first_tokens(trained, tmp_path, served):
    before, after, deleted = trained
    files = unlearning(before, after, deleted=deleted, reference=NEVER)
    with serving(Served(before)) as one, serving(Served(after)) as other:
        at = {"before": f"openai:{one}#small", "after": f"openai:{other}#small"}
        given = {"before": before, "after": after}
        given |= at if served == "both" else {served: at[served]}
        found = unlearning(**given, deleted=deleted, reference=NEVER, statistics=tmp_path / "kept")
    assert found.verdict == files.verdict
    assert found.summary["before_p_value"] < 0.01
    assert files.summary["before_p_value"] < 0.01
    assert found.summary["left"] == pytest.approx(files.summary["left"], abs=0.1)
    assert lengths(found) == [n - 1 for n in lengths(files)]
    for role in at:
        one, other = ([row[role] for row in deleted_rows(run)] for run in (found, files))
        assert np.corrcoef(one, other)[0, 1] > 0.9


def test_a_retrained_model_beside_a_server_and_settings_of_none_are_refused(trained):
    before, after, deleted = trained
    with pytest.raises(ValueError, match="`retrained` does not go with a served model"):
        unlearning(
            before, "openai:http://x/v1#small", deleted=deleted, reference=NEVER, retrained=after
        )
    with pytest.raises(ValueError, match="`budget` needs a remote model"):
        unlearning(before, after, deleted=deleted, reference=NEVER, remote=RemoteOptions(budget=1))
