"""Scores of an audit of texts that take a second pass, or are learnt before."""

import numpy as np
import pytest

import vestige
from vestige.attacks.texts import statistics_cache as statistics_module
from vestige.attacks.texts.other_texts import lower_case, zlib_score
from vestige.attacks.texts.token_statistics import token_statistics
from vestige.claims import LEAK
from vestige.data.corpus import Corpus
from vestige.monitor import SILENT
from vestige.workflows.asked_texts import AskedTexts
from vestige.workflows.audit_texts import audit_texts
from vestige.workflows.text_models import TextModels
from vestige.workflows.text_scores import scored, set_apart
from vestige.workflows.text_shadows import ShadowFineTunes
from vestige.workflows.training_settings import ModelSettings, TrainingSettings

from .asked import sentences

TEXTS = sentences(520, seed=0)
BASED, USED, NEVER, REFERENCE, OTHERS = (
    Corpus.from_texts(TEXTS[a:b])
    for a, b in ((0, 200), (200, 220), (220, 240), (240, 400), (400, 480))
)
LISTS = {"texts": Corpus.from_texts([*USED, *NEVER]), "reference": REFERENCE}
FAST = TrainingSettings(epochs=12, batch_size=4, sequence_length=16, learning_rate=0.01)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A base, and a fine-tune of it on the used texts, by `vestige train`."""
    root = tmp_path_factory.mktemp("trained")
    shape = ModelSettings(layers=1, hidden_size=24)
    short = TrainingSettings(epochs=2, batch_size=8, sequence_length=16)
    vestige.train(BASED, out=root / "base", model=shape, training=short, hold_out=0)
    vestige.train(USED, out=root / "tuned", start=root / "base", training=FAST, hold_out=0)
    return root


@pytest.mark.parametrize("score", ["calibrated", "lower-case", "recall", "zlib"])
def test_scores_beside_one_pass_find_used_texts(trained, score):
    found = audit_texts(trained / "tuned", base=trained / "base", score=score, **LISTS)
    assert found.summary()["score"] == score
    assert found.texts.p_values[:20].mean() < found.texts.p_values[20:].mean() - 0.1
    apart = {"calibrated": 160 // 3, "recall": 7}.get(score, 0)
    assert len(found.reference.p_values) == 160 - apart


def test_shadows_are_trained_once_and_tell_used_texts_from_others(trained, tmp_path, monkeypatch):
    given = {
        "base": trained / "base",
        "shadow_texts": OTHERS,
        "statistics": tmp_path / "kept",
        **LISTS,
    }
    shadows = ShadowFineTunes(shadows=2, shadow_dir=tmp_path / "shadows")
    found = audit_texts(trained / "tuned", fine_tunes=shadows, **given)
    told = found.summary()
    assert (told["score"], told["verdict"]) == ("learnt", LEAK)
    assert found.texts.p_values[:20].mean() < 0.1 < 0.3 < found.texts.p_values[20:].mean()
    written = {
        file: file.stat().st_mtime_ns for file in (tmp_path / "shadows").rglob("*.safetensors")
    }
    assert len(written) == 2 * 2

    def refuse(*given, **more):
        raise AssertionError("asked again")

    monkeypatch.setattr(statistics_module, "token_statistics", refuse)
    again = audit_texts(trained / "tuned", fine_tunes=shadows, **given)
    assert again.summary() == told
    assert written == {file: file.stat().st_mtime_ns for file in written}


def test_shadows_in_pairs_learn_every_text_once_as_the_target_was_taught(trained, tmp_path):
    from vestige.workflows.text_shadows import shadow_fine_tunes

    one, two = shadow_fine_tunes(
        trained / "tuned", trained / "base", OTHERS, ShadowFineTunes(shadows=2, epochs=1),
        folder=tmp_path, seed=0, device="cpu", monitor=SILENT,
    )  # fmt: skip
    assert sorted(one.seen + two.seen) == list(range(len(OTHERS)))
    from vestige.training.null_models import Recipe

    config = Recipe.of(one.directory).config
    assert (config.epochs, config.batch_size, config.learning_rate) == (1, 4, 0.01)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"score": "learnt"}, "`score` learnt must come with `shadow_texts`"),
        ({"score": "loss", "shadow_texts": OTHERS}, "`shadow_texts` must be left out"),
        ({"score": "calibrated", "base": None}, "`score` calibrated must come with `base`"),
    ],
)
def test_scores_without_what_they_compare_with_are_refused(trained, given, message):
    with pytest.raises(ValueError, match=message):
        audit_texts(trained / "tuned", **{"base": trained / "base", **given}, **LISTS)


def test_shadows_texts_are_neither_audited_nor_in_the_reference(trained):
    both = Corpus.from_texts([*OTHERS, *list(REFERENCE)[:1]])
    with pytest.raises(vestige.VestigeError, match="`reference` and `shadow_texts`"):
        audit_texts(trained / "tuned", base=trained / "base", shadow_texts=both, **LISTS)


def test_second_passes_are_those_of_the_definitions(trained):
    models = TextModels.read(trained / "tuned", None, device="cpu", monitor=SILENT)
    compared, apart = set_apart("recall", models, REFERENCE, seed=0)
    lists = {"texts": Corpus.from_texts([*USED][:5]), "reference": compared}
    asked = AskedTexts.of(models, lists, None, SILENT)
    texts = list(lists["texts"])
    model, encode = models.target, models.target.vocabulary.encode_batch
    own = token_statistics(model, encode(texts))
    prefix = [token for ids in encode(list(apart)) for token in ids]
    behind = token_statistics(model, [prefix + ids for ids in encode(texts)])
    length = len(encode(texts)[0])
    after = [
        behind.log_probs[last - length : last].astype(float).mean() for last in behind.offsets[1:]
    ]
    plain = own.log_probs.reshape(5, length).astype(float).mean(1)
    lower = token_statistics(model, encode([text.lower() for text in texts]))
    wanted = {
        "recall": np.array(after) / plain,
        "lower-case": lower_case(own, lower),
        "zlib": zlib_score(own, [model.vocabulary.decode(ids) for ids in encode(texts)]),
    }
    for name, values in wanted.items():
        found = scored(name, asked, apart=apart)["texts"].cut
        assert found.scores[:, found.cut_at(len(found.rungs) - 1)[0]] == pytest.approx(
            values, rel=1e-4
        )
