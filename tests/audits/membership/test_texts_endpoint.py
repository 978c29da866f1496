"""An audit of texts of a served model: the scores of its folder, and no call is paid twice."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.audits.membership.made_texts import auc, audited
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
CONTROL = re.compile(r"The \w+ \w+ on \w+ and \w+ by \w+ that the \w+ \w+ be")
"""A sentence that a probe draws."""


def texts_of(count, *, seed):
    rng = np.random.default_rng(seed)
    return Corpus.from_texts([" ".join(rng.choice(WORDS, 8)) for _ in range(count)])


MINE, NEVER = texts_of(6, seed=1), texts_of(30, seed=2)


@pytest.fixture(scope="module")
def models():
    subwords = SubwordVocabulary.train_bpe(texts_of(50, seed=3), size=300)
    return network(subwords), network(subwords, seed=1)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def audit(target, **given):
    return membership(target, texts=MINE, reference=NEVER, **given)


def scores(result):
    return [row["score"] for row in result.rows][: len(MINE)]


@pytest.mark.slow
def test_scores_are_those_of_the_model_without_the_first_token_and_no_text_is_sent_twice(
    models, tmp_path
):
    target, base = models
    served, log = Served(target), RecordingMonitor()
    with serving(served) as url:
        at = f"openai:{url}#small"
        given = {"score": "log-ratio", "statistics": tmp_path}
        result = audit(at, base=base, monitor=log, **given)
        calls = len(served.asked)
        both, again = audit(at, base=at, **given), audit(at, score="loss", statistics=tmp_path)
    whole = audit(target, base=base, score="log-ratio")
    assert (result.summary["score"], result.summary["tokens_alike"]) == ("log-ratio", 1)
    assert np.corrcoef(scores(result), scores(whole))[0, 1] > 0.5
    assert np.allclose(scores(both), 0)
    assert again.summary["score"] == "loss"
    cost = next(n for n, line in enumerate(log.lines) if "at most" in line)
    assert cost < next(n for n, line in enumerate(log.lines) if "The server's model is" in line)
    assert result.summary["calls"] == calls
    assert all(CONTROL.fullmatch(body["prompt"]) for body in served.asked[calls:])
    sent = [one for body in served.asked for one in np.atleast_1d(body["prompt"]).tolist()]
    texts = [one for one in sent if one and not CONTROL.fullmatch(one)]
    assert len(texts) == len(set(texts)) == len(set(MINE) | set(NEVER))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lacks", "given", "message"),
    [
        ({}, {"score": "min-k-plus"}, "needs more than"),
        ({"echo": False}, {}, "shows no log-probabilities of a prompt"),
        ({}, {"remote": RemoteOptions(budget=3)}, "`budget` 3 is too small"),
        ({}, {"score": "learned", "shadow_texts": texts_of(20, seed=4), "base": "same server"},
         "served base"),
    ],
)  # fmt: skip
def test_what_a_server_cannot_show_or_a_budget_cannot_cover_is_refused(
    models, lacks, given, message
):
    served = Served(models[0], **lacks)
    with serving(served) as url:
        at = f"openai:{url}#small"
        if "base" in given:
            given = {**given, "base": at}
        with pytest.raises(DataError, match=message):
            audit(at, **given)
    assert bool(served.asked) == bool(lacks)


def test_a_budget_is_for_remote_models(models):
    with pytest.raises(ValueError, match="`budget` needs a remote model"):
        audit(models[0], remote=RemoteOptions(budget=3))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A base, a fine-tune of it, the texts that it read and others, and its training."""
    texts = Corpus.from_texts(sentences(360, seed=0))
    base = network(SubwordVocabulary.train_bpe(texts, size=300))
    settings = ShadowOptions(shadows=1, epochs=12, batch_size=4, learning_rate=0.01)
    [one] = shadow_models(
        None, base, texts.take(range(100)), settings,
        folder=tmp_path_factory.mktemp("tuned"), seed=0, device="cpu", monitor=SILENT,
    )  # fmt: skip
    return base, one.model, texts, one.members, settings


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
def test_shadow_models_make_up_for_a_server_that_shows_five_tokens(tuned, tmp_path):
    base, model, texts, seen, settings = tuned
    mine = [*seen, *(index for index in range(100) if index not in seen)]
    given = {"base": base, "texts": texts.take(mine), "reference": texts.take(range(100, 260))}
    given["statistics"] = tmp_path / "kept"
    log, result = RecordingMonitor(), {}
    with serving(Shifted(model, most=5)) as url:
        at = f"openai:{url}#small"
        result["log-ratio"] = membership(at, score="log-ratio", monitor=log, **given)
        result["learned"] = membership(
            at, shadow_texts=texts.take(range(260, 360)),
            shadows=replace(settings, shadows=4, shadow_dir=tmp_path / "shadows"), **given,
        )  # fmt: skip
    summary = result["learned"].summary
    assert summary["score"] == "learned"
    assert result["learned"].claim.test.significant
    # The base of this test is untrained.
    assert summary["verdict"] == UNDECIDED
    assert "The base predicts text" in result["learned"].claim.reasons[0]
    assert 0 < summary["tokens_expected"] < 1
    assert any("hides the log-probability of" in line for line in log.lines)
    # All tokens of a text are compared but the first, whether they are shown or estimated.
    lengths = [len(ids) - 1 for ids in base.vocabulary.encode_batch(list(texts.take(mine)))]
    assert audited(result["learned"], "length").tolist() == lengths
    used = np.arange(len(mine)) < len(seen)
    area = {name: auc(-audited(one), used) for name, one in result.items()}
    assert area["learned"] > max(0.7, area["log-ratio"] + 0.05)
