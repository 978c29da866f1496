"""An audit of texts of a served model: the scores of its folder, and nothing is paid twice."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.audits.membership.made_texts import audited
from tests.audits.told import Told, sentences
from tests.models.served import FAULTS, KEY, Served, Shifted, failing, network, serving
from vestige.audits.membership.membership import ShadowOptions, membership
from vestige.audits.membership.shadows import shadow_models
from vestige.claims import NO_LEAK, UNDECIDED
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.errors import DataError
from vestige.models.remote.options import RemoteOptions
from vestige.models.served_texts import ServedTexts
from vestige.models.token_statistics import cached_outputs, token_statistics
from vestige.monitor import SILENT

pytest.importorskip("openai")

WORDS = tuple("the quick brown fox jumps over the lazy dog and a cat sat on my mat".split())  # noqa: SIM905

CONTROL = re.compile(r"The \w+ \w+ on \w+ and \w+ by \w+ that the \w+ \w+ be")
"""A sentence that a probe draws."""


def texts_of(count, *, seed):
    chance = np.random.default_rng(seed)
    return Corpus.from_texts([" ".join(chance.choice(WORDS, 8)) for _ in range(count)])


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


def scores(found):
    return [row["score"] for row in found.rows][: len(MINE)]


@pytest.mark.slow
def test_scores_are_those_of_the_model_but_for_the_first_token_and_nothing_is_asked_twice(
    models, tmp_path
):
    target, base = models
    served, told = Served(target), Told()
    with serving(served) as url:
        at = f"openai:{url}#small"
        given = {"score": "log-ratio", "statistics": tmp_path}
        found = audit(at, base=base, monitor=told, **given)
        calls = len(served.asked)
        both, again = audit(at, base=at, **given), audit(at, score="loss", statistics=tmp_path)
        later = served.asked[calls:]
    whole = audit(target, base=base, score="log-ratio")
    assert (found.summary["score"], found.summary["tokens_alike"]) == ("log-ratio", 1)
    assert np.corrcoef(scores(found), scores(whole))[0, 1] > 0.5
    assert np.allclose(scores(both), 0)
    assert again.summary["score"] == "loss"
    cost = next(n for n, line in enumerate(told.lines) if "at most" in line)
    assert cost < next(n for n, line in enumerate(told.lines) if "The server's model is" in line)
    assert found.summary["calls"] == calls
    assert all(CONTROL.fullmatch(body["prompt"]) for body in later)
    asked = [one for b in served.asked for one in np.atleast_1d(b["prompt"]).tolist()]
    texts = [one for one in asked if one and not CONTROL.fullmatch(one)]
    assert len(texts) == len(set(texts)) == len(set(MINE) | set(NEVER))


@pytest.mark.slow
def test_log_probabilities_are_those_that_the_model_gives(models, tmp_path):
    """Of texts as long as compared, the loss is the mean over all tokens behind the first."""
    target, _ = models
    with serving(Served(target)) as url:
        served = ServedTexts.open(f"openai:{url}#small", None, RemoteOptions(), device="cpu")
        with cached_outputs(tmp_path, Told()) as outputs:
            read = served.readings({"texts": MINE, "reference": NEVER}, outputs)
    said = read.statistics["texts"]["target"]
    true = token_statistics(target, target.vocabulary.encode_batch(list(MINE)))
    whole = np.delete(true.log_probs, true.offsets[:-1])
    assert sum(said.log_probs) == pytest.approx(sum(whole), rel=1e-4)
    assert served.spent["calls"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["truncated JSON", "an echoed key"])
def test_no_fault_changes_a_result_and_the_key_is_nowhere(models, tmp_path, kind):
    settings = RemoteOptions(attempts=8, timeout=2.0)
    with serving(Served(models[0])) as upstream:
        plain = audit(f"openai:{upstream}#small", remote=settings)
        with failing(upstream, FAULTS[kind]) as (url, faults):
            found = audit(f"openai:{url}#small", out=tmp_path / "out", remote=settings)
    assert faults
    assert found.rows == plain.rows
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.suffix == ".sqlite" for file in files)
    assert not [file for file in files if KEY.encode() in file.read_bytes()]


@pytest.mark.slow
def test_what_a_server_does_not_show_or_a_budget_does_not_cover_is_refused(models):
    with serving(Served(models[0])) as url, pytest.raises(DataError, match="needs more than"):
        audit(f"openai:{url}#small", score="min-k-plus")
    refused = pytest.raises(DataError, match="shows no log-probabilities of a prompt")
    with serving(Served(models[0], echo=False)) as url, refused:
        audit(f"openai:{url}#small", base=models[1])
    served = Served(models[0])
    with serving(served) as url, pytest.raises(DataError, match="`budget` 3 is too small"):
        audit(f"openai:{url}#small", remote=RemoteOptions(budget=3))
    assert not served.asked
    with pytest.raises(ValueError, match="`budget` needs a remote model"):
        audit(models[0], remote=RemoteOptions(budget=3))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A base, a fine-tune of it, what it has read, other texts, and settings of its training."""
    texts = Corpus.from_texts(sentences(360, seed=0))
    subwords = SubwordVocabulary.train_bpe(texts, size=300)
    base = network(subwords)
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
        found = membership(
            f"openai:{url}#small", texts=texts.take(range(100, 145)),
            reference=texts.take(range(200, 290)),
        )  # fmt: skip
    assert (found.verdict, found.claim.failed) == (NO_LEAK, ())


@pytest.mark.slow
def test_shadows_teach_what_a_server_that_shows_five_tokens_gives_away(tuned, tmp_path):
    base, model, texts, seen, settings = tuned
    mine = [*seen, *(place for place in range(100) if place not in seen)]
    given = {
        "base": base,
        "reference": texts.take(range(100, 260)),
        "statistics": tmp_path / "kept",
    }
    found = {}
    with serving(Shifted(model, most=5)) as url:
        at, told = f"openai:{url}#small", Told()
        found["log-ratio"] = membership(
            at, texts=texts.take(mine), score="log-ratio", monitor=told, **given
        )
        found["learned"] = membership(
            at, texts=texts.take(mine), shadow_texts=texts.take(range(260, 360)),
            shadows=replace(settings, shadows=4, shadow_dir=tmp_path / "shadows"), **given,
        )  # fmt: skip
    said = found["learned"].summary
    assert said["score"] == "learned"
    assert found["learned"].claim.test.significant
    # The base of this test is untrained.
    assert said["verdict"] == UNDECIDED
    assert "The base predicts text" in found["learned"].claim.reasons[0]
    assert 0 < said["tokens_expected"] < 1
    assert any("hides the log-probability of" in line for line in told.lines)
    # Of a text of w tokens all are compared but the first, shown or expected.
    tokens = base.vocabulary.encode_batch(list(texts.take(mine)))
    assert [row["length"] for row in found["learned"].rows][: len(mine)] == [
        len(ids) - 1 for ids in tokens
    ]
    auc = {name: above(audited(one), len(seen)) for name, one in found.items()}
    assert auc["learned"] > max(0.7, auc["log-ratio"] + 0.05)


def above(p_values, used):
    """The chance that a used text has the smaller p-value."""
    own, other = p_values[:used, None], p_values[None, used:]
    return ((own < other) + 0.5 * (own == other)).mean()


def test_shadows_need_the_folder_of_the_base(tuned):
    _, model, texts, *_ = tuned
    given = {"reference": texts.take(range(5, 40)), "shadow_texts": texts.take(range(40, 60))}
    with serving(Served(model)) as url:
        at = f"openai:{url}#small"
        with pytest.raises(DataError, match="served base"):
            membership(at, texts=texts.take(range(5)), base=at, **given)
