"""An audit of texts of a served model: the scores of its folder, and no text is sent twice."""

from dataclasses import replace

import numpy as np
import pytest

from tests.audits.membership.made_texts import auc, audited
from tests.audits.membership.made_users import CONTROL, texts_of
from tests.audits.stories import sentences
from tests.models.served import KEY, Served, Shifted, network, serving
from tests.monitors import RecordingMonitor
from vestige.audits.membership.membership import ShadowOptions, membership
from vestige.audits.membership.shadows import shadow_models
from vestige.claims import NO_LEAK, UNDECIDED
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import DataError
from vestige.models.remote.options import RemoteOptions
from vestige.monitor import SILENT

pytest.importorskip("openai")

WORDS = "the quick brown fox jumps over the lazy dog and a cat sat on my mat".split()  # noqa: SIM905


def random_texts(count, *, seed):
    return Corpus.from_texts(list(texts_of(["user"], WORDS, seed=seed, texts=count)))


LISTS = {"texts": random_texts(6, seed=1), "reference": random_texts(30, seed=2)}


@pytest.fixture(scope="module")
def models():
    subwords = SubwordVocabulary.train_bpe(random_texts(50, seed=3), size=300)
    return network(subwords), network(subwords, seed=1)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def audit(target, **options):
    return membership(target, **LISTS, **options)


@pytest.mark.slow
def test_a_server_gives_the_scores_of_its_model_and_no_text_is_sent_twice(models, tmp_path):
    target, base = models
    served, log = Served(target), RecordingMonitor()
    with serving(served) as url:
        name = f"openai:{url}#small"
        options = {"score": "log-ratio", "statistics": tmp_path}
        result = audit(name, base=base, monitor=log, **options)
        calls = len(served.asked)
        served_base = audit(name, base=name, **options)
        audit(name, score="loss", statistics=tmp_path)
    local = audit(target, base=base, score="log-ratio")
    assert (result.summary["score"], result.summary["tokens_alike"]) == ("log-ratio", 1)
    assert np.corrcoef(audited(result, "score"), audited(local, "score"))[0, 1] > 0.5
    assert np.allclose(audited(served_base, "score"), 0)
    cost = next(n for n, line in enumerate(log.lines) if "at most" in line)
    assert cost < next(n for n, line in enumerate(log.lines) if "The server's model is" in line)
    assert result.summary["calls"] == calls
    assert all(CONTROL.fullmatch(body["prompt"]) for body in served.asked[calls:])
    prompts = [text for body in served.asked for text in np.atleast_1d(body["prompt"]).tolist()]
    texts = [text for text in prompts if text and not CONTROL.fullmatch(text)]
    assert (
        len(texts) == len(set(texts)) == len({text for corpus in LISTS.values() for text in corpus})
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("abilities", "options", "message"),
    [
        ({}, {"score": "min-k-plus"}, "needs more than"),
        ({"echo": False}, {}, "shows no log-probabilities of a prompt"),
        ({}, {"remote": RemoteOptions(budget=3)}, "`budget` 3 is too small"),
        ({}, {"score": "learned", "shadow_texts": random_texts(20, seed=4), "base": "the server"},
         "served base"),
    ],
)  # fmt: skip
def test_an_audit_that_a_server_or_budget_does_not_allow_is_refused(
    models, abilities, options, message
):
    served = Served(models[0], **abilities)
    with serving(served) as url:
        name = f"openai:{url}#small"
        if "base" in options:
            options = {**options, "base": name}
        with pytest.raises(DataError, match=message):
            audit(name, **options)
    assert bool(served.asked) == bool(abilities)


def test_a_budget_is_for_remote_models(models):
    with pytest.raises(ValueError, match="`budget` needs a remote model"):
        audit(models[0], remote=RemoteOptions(budget=3))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A base, its fine-tune, texts, positions of the texts in its training, and its settings."""
    texts = Corpus.from_texts(sentences(360, seed=0))
    base = network(SubwordVocabulary.train_bpe(texts, size=300))
    settings = ShadowOptions(shadows=1, epochs=12, batch_size=4, learning_rate=0.01)
    [fine_tune] = shadow_models(
        None, base, texts.take(range(100)), settings,
        folder=tmp_path_factory.mktemp("tuned"), seed=0, device="cpu", monitor=SILENT,
    )  # fmt: skip
    return base, fine_tune.model, texts, fine_tune.members, settings


@pytest.mark.slow
def test_a_served_model_without_a_base_can_show_no_leak(tuned):
    _, model, texts, *_ = tuned
    with serving(Served(model)) as url:
        result = membership(
            f"openai:{url}#small", texts=texts.take(range(100, 145)),
            reference=texts.take(range(200, 290)),
        )  # fmt: skip
    assert (result.verdict, result.claim.failed) == (NO_LEAK, ())


@pytest.mark.slow
def test_shadow_models_help_with_a_server_that_shows_five_tokens(tuned, tmp_path):
    base, model, texts, members, settings = tuned
    audited_texts = texts.take([*members, *(n for n in range(100) if n not in members)])
    options = {
        "base": base, "texts": audited_texts, "reference": texts.take(range(100, 260)),
        "statistics": tmp_path / "cache",
    }  # fmt: skip
    log = RecordingMonitor()
    with serving(Shifted(model, most=5)) as url:
        name = f"openai:{url}#small"
        log_ratio = membership(name, score="log-ratio", monitor=log, **options)
        learned = membership(
            name, shadow_texts=texts.take(range(260, 360)),
            shadows=replace(settings, shadows=4, shadow_dir=tmp_path / "shadows"), **options,
        )  # fmt: skip
    assert learned.summary["score"] == "learned"
    assert learned.claim.test.significant
    # The base of this test is untrained.
    assert learned.verdict == UNDECIDED
    assert "The base predicts text" in learned.claim.reasons[0]
    assert 0 < learned.summary["tokens_expected"] < 1
    assert any("hides the log-probability of" in line for line in log.lines)
    # All tokens of a text except the first are compared, whether shown or estimated.
    lengths = [len(ids) - 1 for ids in base.vocabulary.encode_batch(list(audited_texts))]
    assert audited(learned, "length").tolist() == lengths
    used = np.arange(len(lengths)) < len(members)
    area = auc(-audited(learned), used)
    assert area > max(0.7, auc(-audited(log_ratio), used) + 0.05)
