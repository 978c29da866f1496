"""Scores of texts that are calibrated on held-out texts or learned from shadow models."""

from itertools import pairwise

import pytest

import vestige
from tests.audits.membership.made_texts import audited
from tests.audits.stories import sentences
from vestige.audits.membership.membership import ShadowOptions, membership
from vestige.audits.membership.shadows import shadow_models
from vestige.audits.membership.text_scores import zlib_score
from vestige.audits.membership.texts import AuditedTexts, score_texts
from vestige.claims import LEAK
from vestige.data.corpus import Corpus
from vestige.models import token_statistics as statistics_module
from vestige.models.snapshots import Snapshots
from vestige.models.token_statistics import cached_outputs, token_statistics
from vestige.monitor import SILENT
from vestige.preparation.options import ModelOptions, TrainingOptions
from vestige.training.recipe import Recipe

TEXTS = sentences(520, seed=0)
PUBLIC, USED, UNUSED, REFERENCE, SHADOW_TEXTS = (
    Corpus.from_texts(TEXTS[start:end]) for start, end in pairwise((0, 200, 220, 240, 400, 480))
)
LISTS = {"texts": USED + UNUSED, "reference": REFERENCE}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A base and its fine-tune on the used texts, by `vestige train`."""
    root = tmp_path_factory.mktemp("trained")
    model = ModelOptions(layers=1, hidden_size=24)
    short = TrainingOptions(epochs=2, batch_size=8, sequence_length=16)
    long = TrainingOptions(epochs=12, batch_size=4, sequence_length=16, learning_rate=0.01)
    vestige.train(PUBLIC, out=root / "base", model=model, training=short, hold_out=0)
    vestige.train(USED, out=root / "tuned", from_=root / "base", training=long, hold_out=0)
    return root


@pytest.mark.slow
@pytest.mark.parametrize(("score", "held_out"), [("calibrated", 160 // 3), ("zlib", 0)])
def test_calibrated_and_zlib_scores_detect_used_texts(trained, score, held_out):
    result = membership(trained / "tuned", base=trained / "base", score=score, **LISTS)
    assert result.summary["score"] == score
    assert audited(result)[:20].mean() < audited(result)[20:].mean() - 0.1
    assert result.summary["reference"] == 160 - held_out


def test_the_zlib_score_of_a_complete_text_equals_its_definition(trained):
    models = Snapshots.with_base(trained / "tuned", None, device="cpu", monitor=SILENT)
    lists = {"texts": USED.take(range(5)), "reference": REFERENCE}
    model, ids = models.target, models.target.vocabulary.encode_batch(list(lists["texts"]))
    expected = zlib_score(
        token_statistics(model, ids), [model.vocabulary.decode(row) for row in ids]
    )
    with cached_outputs(None, SILENT) as outputs:
        texts = AuditedTexts(lists, models.readings(lists, outputs), models, outputs)
        result = score_texts("zlib", texts)["texts"].scores
    last = result.cut_at(len(result.rungs) - 1)[0]
    assert result.scores[:, last] == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_shadow_models_are_trained_once_and_detect_used_texts(trained, tmp_path, monkeypatch):
    options = {
        "base": trained / "base", "shadow_texts": SHADOW_TEXTS, "statistics": tmp_path / "cache",
        "shadows": ShadowOptions(shadows=2, shadow_dir=tmp_path / "shadows"), **LISTS,
    }  # fmt: skip
    result = membership(trained / "tuned", **options)
    assert (result.summary["score"], result.verdict) == ("learned", LEAK)
    assert audited(result)[:20].mean() < 0.1 < 0.3 < audited(result)[20:].mean()
    weights = (tmp_path / "shadows").rglob("*.safetensors")
    written = {file: file.stat().st_mtime_ns for file in weights}
    assert len(written) == 2 * 2

    def fail(*arguments, **options):
        pytest.fail("a text is scored again")

    monkeypatch.setattr(statistics_module, "token_statistics", fail)
    assert membership(trained / "tuned", **options).summary == result.summary
    assert written == {file: file.stat().st_mtime_ns for file in written}


def test_a_pair_of_shadow_models_is_trained_like_the_target_on_two_halves(trained, tmp_path):
    first, second = shadow_models(
        trained / "tuned", trained / "base", SHADOW_TEXTS, ShadowOptions(shadows=2, epochs=1),
        folder=tmp_path, seed=0, device="cpu", monitor=SILENT,
    )  # fmt: skip
    assert sorted(first.members + second.members) == list(range(len(SHADOW_TEXTS)))
    config = Recipe.of(first.directory).config
    assert (config.epochs, config.batch_size, config.learning_rate) == (1, 4, 0.01)
