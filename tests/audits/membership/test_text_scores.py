"""Scores of an audit of texts that take a second pass, or are learnt before."""

import numpy as np
import pytest

import vestige
from tests.audits.told import sentences
from vestige.attacks.texts import statistics_cache as statistics_module
from vestige.attacks.texts.cached_outputs import cached_outputs
from vestige.attacks.texts.other_texts import lower_case, zlib_score
from vestige.attacks.texts.text_models import TextModels
from vestige.attacks.texts.token_statistics import token_statistics
from vestige.audits.membership.audited_texts import AuditedTexts
from vestige.audits.membership.membership import membership
from vestige.audits.membership.shadow_options import ShadowOptions
from vestige.audits.membership.text_scores import hold_out, score_texts
from vestige.audits.membership.text_shadows import shadow_models
from vestige.claims import LEAK
from vestige.data.corpus import Corpus
from vestige.monitor import SILENT
from vestige.preparation.options import ModelOptions, TrainingOptions

TEXTS = sentences(520, seed=0)
BASED, USED, NEVER, REFERENCE, OTHERS = (
    Corpus.from_texts(TEXTS[a:b])
    for a, b in ((0, 200), (200, 220), (220, 240), (240, 400), (400, 480))
)
LISTS = {"texts": Corpus.from_texts([*USED, *NEVER]), "reference": REFERENCE}


def audited(found):
    """(n,) p-values of the audited texts."""
    return np.array([row["p_value"] for row in found.rows if row["kind"] == "audited"])


FAST = TrainingOptions(epochs=12, batch_size=4, sequence_length=16, learning_rate=0.01)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A base, and a fine-tune of it on the used texts, by `vestige train`."""
    root = tmp_path_factory.mktemp("trained")
    shape = ModelOptions(layers=1, hidden_size=24)
    short = TrainingOptions(epochs=2, batch_size=8, sequence_length=16)
    vestige.train(BASED, out=root / "base", model=shape, training=short, hold_out=0)
    vestige.train(USED, out=root / "tuned", from_=root / "base", training=FAST, hold_out=0)
    return root


@pytest.mark.parametrize("score", ["calibrated", "lower-case", "recall", "zlib"])
def test_scores_beside_one_pass_find_used_texts(trained, score):
    found = membership(trained / "tuned", base=trained / "base", score=score, **LISTS)
    assert found.summary["score"] == score
    assert audited(found)[:20].mean() < audited(found)[20:].mean() - 0.1
    apart = {"calibrated": 160 // 3, "recall": 7}.get(score, 0)
    assert found.summary["reference"] == 160 - apart


def test_shadows_are_trained_once_and_tell_used_texts_from_others(trained, tmp_path, monkeypatch):
    given = {
        "base": trained / "base",
        "shadow_texts": OTHERS,
        "statistics": tmp_path / "kept",
        **LISTS,
    }
    shadows = ShadowOptions(shadows=2, shadow_dir=tmp_path / "shadows")
    found = membership(trained / "tuned", shadows=shadows, **given)
    told = found.summary
    assert (told["score"], told["verdict"]) == ("learned", LEAK)
    assert audited(found)[:20].mean() < 0.1 < 0.3 < audited(found)[20:].mean()
    written = {
        file: file.stat().st_mtime_ns for file in (tmp_path / "shadows").rglob("*.safetensors")
    }
    assert len(written) == 2 * 2

    def refuse(*given, **more):
        raise AssertionError("asked again")

    monkeypatch.setattr(statistics_module, "token_statistics", refuse)
    again = membership(trained / "tuned", shadows=shadows, **given)
    assert again.summary == told
    assert written == {file: file.stat().st_mtime_ns for file in written}


def test_shadows_in_pairs_learn_every_text_once_as_the_target_was_taught(trained, tmp_path):
    one, two = shadow_models(
        trained / "tuned", trained / "base", OTHERS, ShadowOptions(shadows=2, epochs=1),
        folder=tmp_path, seed=0, device="cpu", monitor=SILENT,
    )  # fmt: skip
    assert sorted(one.members + two.members) == list(range(len(OTHERS)))
    from vestige.training.null_models import Recipe

    config = Recipe.of(one.directory).config
    assert (config.epochs, config.batch_size, config.learning_rate) == (1, 4, 0.01)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"score": "learned"}, "`score` learned needs `shadow_texts`"),
        ({"score": "loss", "shadow_texts": OTHERS}, "`shadow_texts` does not go with `score` loss"),
        ({"score": "calibrated", "base": None}, "`score` calibrated needs `base`"),
    ],
)
def test_scores_without_what_they_compare_with_are_refused(trained, given, message):
    with pytest.raises(ValueError, match=message):
        membership(trained / "tuned", **{"base": trained / "base", **given}, **LISTS)


def test_shadows_texts_are_neither_audited_nor_in_the_reference(trained):
    both = Corpus.from_texts([*OTHERS, *list(REFERENCE)[:1]])
    with pytest.raises(vestige.VestigeError, match="`reference` and `shadow_texts`"):
        membership(trained / "tuned", base=trained / "base", shadow_texts=both, **LISTS)


def test_second_passes_are_those_of_the_definitions(trained):
    models = TextModels.with_base(trained / "tuned", None, device="cpu", monitor=SILENT)
    compared, apart = hold_out("recall", REFERENCE, seed=0)
    lists = {"texts": Corpus.from_texts([*USED][:5]), "reference": compared}
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
    with cached_outputs(None, SILENT) as outputs:
        texts = AuditedTexts(lists, models.readings(lists, outputs), models, outputs)
        scored = {name: score_texts(name, texts, held_out=apart) for name in wanted}
    for name, values in wanted.items():
        found = scored[name]["texts"].cut
        assert found.scores[:, found.cut_at(len(found.rungs) - 1)[0]] == pytest.approx(
            values, rel=1e-4
        )
