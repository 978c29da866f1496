"""`unlearning` of served models gives the results of folders, except for first tokens."""

import numpy as np
import pytest

from tests.audits.stories import sentences
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
REFERENCE = TEXTS.take(range(40, 80))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two models trained on different texts, and the texts of the first."""
    base = network(SubwordVocabulary.train_bpe(TEXTS, size=300))
    settings = ShadowOptions(shadows=2, epochs=40, batch_size=4, learning_rate=0.01)
    first, second = shadow_models(
        None, base, TEXTS.take(range(40)), settings,
        folder=tmp_path_factory.mktemp("trained"), seed=0, device="cpu", monitor=SILENT,
    )  # fmt: skip
    return first.model, second.model, TEXTS.take(first.members)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def column(result, name):
    return np.array([row[name] for row in result.rows if row["kind"] == "deleted"])


@pytest.mark.slow
@pytest.mark.parametrize("served", [("before",), ("after",), ("before", "after")])
def test_served_models_give_the_results_of_folders_except_for_first_tokens(
    trained, tmp_path, served
):
    before, after, deleted = trained
    lists = {"deleted": deleted, "reference": REFERENCE}
    folders = unlearning(before, after, **lists)
    with serving(Served(before)) as before_url, serving(Served(after)) as after_url:
        urls = {"before": f"openai:{before_url}#small", "after": f"openai:{after_url}#small"}
        models = {"before": before, "after": after, **{role: urls[role] for role in served}}
        result = unlearning(**models, **lists, statistics=tmp_path / "cache")
    assert result.verdict == folders.verdict
    assert all(r.summary["before_p_value"] < 0.01 for r in (result, folders))
    assert result.summary["left"] == pytest.approx(folders.summary["left"], abs=0.1)
    assert (column(result, "length") == column(folders, "length") - 1).all()
    for role in urls:
        assert np.corrcoef(column(result, role), column(folders, role))[0, 1] > 0.9


@pytest.mark.parametrize(
    ("before", "options", "message"),
    [
        ("openai:http://x/v1#small", {"retrained": "folder"},
         "`retrained` does not go with a served model"),
        ("folder", {"remote": RemoteOptions(budget=1)}, "`budget` needs a remote model"),
    ],
)  # fmt: skip
def test_options_that_contradict_the_kind_of_model_are_refused(before, options, message):
    with pytest.raises(ValueError, match=message):
        unlearning(before, "folder", deleted=TEXTS.take(range(40)), reference=REFERENCE, **options)
