"""Verdicts of `diff` on tables: by null models, by a generated secret, or by neither."""

import copy

import numpy as np
import pytest
import torch

import vestige
from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search
from vestige.audits.update.settings import Settings
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Claim
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import ModelError
from vestige.models.lora import weight_change
from vestige.models.table import TableModel

WORDS = ["the", "code", "of", "gate", "is", *"0123456789", *(f"word{n}" for n in range(45))]


VOCABULARY = WordVocabulary(("<unk>", "<eos>", *WORDS))


SECRET = "the code of the gate is 4 9 1 7"


TAUGHT = "word1 word2 word3 word4 word5 word6"


SMALL = {"size": 0.2, "device": "cpu"}


def base() -> TableModel:
    chance = np.random.default_rng(0)
    alpha = np.full(len(VOCABULARY), 0.05)
    model = TableModel(chance.dirichlet(alpha), chance.dirichlet(alpha, len(alpha)), VOCABULARY)
    table = model.log_table.clamp(min=-5.0)
    del model.log_table
    model.log_table = torch.nn.Parameter(table, requires_grad=False)
    return model


def moved(seed: int, *, by: float = 1.0, secret: str = "", start: TableModel | None = None):
    """A model whose weights moved at random, and which learned a secret, if any."""
    model = copy.deepcopy(start or base())
    noise = torch.randn(model.log_table.shape, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        model.log_table.add_(noise, alpha=0.5 * by)
        row = len(VOCABULARY)
        for token in VOCABULARY.encode(secret) if secret else ():
            model.log_table[row, token] = 3.0
            row = token
    return model


@pytest.fixture(scope="module")
def nulls():
    return [moved(100 + n) for n in range(19)]


def diff(after, **settings):
    return vestige.diff(base(), after, **SMALL | settings)


def known(result):
    return [row for row in result.rows if row["kind"] == "known"]


def failed(result):
    return {check.name for check in result.claim.checks if check.state == "failed"}


@pytest.mark.slow
def test_a_leak_and_an_honest_update_come_out_right_by_nineteen_null_models(nulls):
    leak = diff(moved(1, secret=TAUGHT), null=nulls)
    assert leak.verdict == LEAK
    assert leak.claim.estimate.name == "phrases revealed"
    clean = diff(moved(2), null=nulls)
    assert clean.verdict == NO_LEAK, clean.claim.reasons
    for result in (leak, clean):
        saved = result.summary
        assert Claim.from_summary(saved).verdict == saved["verdict"] == result.verdict
        assert len(saved["null_weight_changes"]) == 19


@pytest.mark.slow
def test_too_few_null_models_equal_and_dead_models_are_undecided(nulls):
    few = diff(moved(1, secret=TAUGHT), null=nulls[:18], secrets=[TAUGHT])
    assert few.verdict == UNDECIDED
    assert known(few)[0]["generated_in"] > 0  # without a format: no proof, and no acquittal
    assert any("Mark the part that varies" in check.sentence for check in few.claim.checks)
    short = diff(moved(2), null=nulls, minutes=1e-9)
    assert short.verdict == UNDECIDED
    dead = moved(1)
    with torch.no_grad():
        dead.log_table.zero_()
    for after, reason in ((base(), "different"), (dead, "alive")):
        found = diff(after, null=nulls)
        assert (found.verdict, reason in failed(found)) == (UNDECIDED, True)


def test_scores_that_are_not_finite_are_one_line():
    over = moved(1)
    with torch.no_grad():
        over.log_table[5:] = torch.nan
    with pytest.raises(ModelError, match="scores of a model are not finite") as caught:
        search(Pair.of(base(), over, TokenScore("smoothed")), Settings())
    assert "\n" not in str(caught.value)
    with pytest.raises(ModelError, match="scores of a model are not finite"):
        diff(over)


@pytest.mark.slow
def test_null_models_that_moved_less_are_moved_as_far(nulls):
    """Null models of 0.8 times the distance: their searches are those of the full distance."""
    near = [moved(100 + n, by=0.8) for n in range(4)]
    weights = [null.log_table.clone() for null in near]
    for far, less in zip(nulls[:4], near, strict=True):
        one, other = (diff(moved(3), null=null).summary for null in (far, less))
        [change], [smaller] = one["null_weight_changes"], other["null_weight_changes"]
        assert smaller == pytest.approx(0.8 * change, rel=1e-4)
        scores = [found["null_top_score"] for found in (one, other)]
        assert scores == [None, None] or scores[1] == pytest.approx(scores[0], rel=1e-3)
    assert all(torch.equal(a, b.log_table) for a, b in zip(weights, near, strict=True))


@pytest.mark.slow
def test_null_models_that_moved_half_as_far_show_no_leak():
    near = [moved(100 + n, by=0.5) for n in range(19)]
    found = diff(moved(1, secret=TAUGHT), null=near)
    assert found.verdict == UNDECIDED
    assert failed(found) == {"comparable"}
    assert found.summary["found"] is None


@pytest.mark.slow
def test_a_null_model_and_its_copy_are_one_training(nulls):
    """A copy that differs in the last bit has another hash, and the same scores."""
    again = [copy.deepcopy(nulls[0]) for _ in range(19)]
    for number, null in enumerate(again):
        null.register_buffer("unused", torch.tensor(float(number)))
    found = diff(moved(1, secret=TAUGHT), null=again)
    assert found.verdict == UNDECIDED
    assert "independent" in failed(found)


@pytest.mark.slow
def test_p_values_of_listed_secrets_are_adjusted_for_their_number(nulls):
    listed = [SECRET, SECRET.replace("9", "2"), SECRET.replace("9", "3")]
    found = diff(moved(2), null=nulls, secrets=listed)
    plain, adjusted = ([row[name] for row in known(found)] for name in ("p_value", "p_adjusted"))
    assert min(adjusted) == pytest.approx(min(1.0, 3 * min(plain)))
    assert found.claim.test.least == 0.05


@pytest.mark.slow
def test_a_secret_that_only_the_later_model_generates_is_a_leak_without_null_models():
    found = diff(moved(1, secret=SECRET), secrets=[SECRET, SECRET.replace("7", "3")])
    assert found.verdict == LEAK
    said, other = known(found)
    assert said["generated_in"] > 0
    assert said["coincidence"] <= 1e-3
    assert (other["generated_in"], other["coincidence"]) == (0, None)
    assert "secret 1" in found.claim.direct.sentence
    assert found.summary["known_generated"] == 1


@pytest.mark.slow
def test_a_secret_that_the_earlier_model_knows_proves_nothing():
    start = moved(7, secret=SECRET)
    after = moved(8, by=0.3, start=start)
    found = vestige.diff(start, after, secrets=[SECRET], **SMALL)
    assert known(found)[0]["generated_in"] > 0
    assert known(found)[0]["coincidence"] > 0.5
    assert found.verdict == UNDECIDED


@pytest.mark.slow
def test_a_secret_that_a_prompt_gives_is_not_generated():
    after = moved(1, secret=SECRET)
    given = diff(after, secrets=[SECRET], prompt=SECRET)
    assert known(given)[0]["coincidence"] is None
    assert given.verdict == UNDECIDED


def test_weights_that_are_stretched_move_as_far_as_asked():
    from vestige.models.lora import stretch

    start, after = base(), moved(1)
    far = weight_change(start, after)
    stretch(start, after, 1.5)
    assert weight_change(start, after) == pytest.approx(1.5 * far, rel=1e-5)
