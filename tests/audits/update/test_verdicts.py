"""Verdicts of `diff` on tables, from null models and from generated secrets."""

import copy

import numpy as np
import pytest
import torch

import vestige
from vestige.audits.update.pair import Pair
from vestige.audits.update.scores import TokenScore
from vestige.audits.update.search import search
from vestige.audits.update.settings import Settings
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import ModelError
from vestige.models.lora import scale_update, weight_change
from vestige.models.table import TableModel

WORDS = ["the", "code", "of", "gate", "is", *"0123456789", *(f"word{n}" for n in range(45))]
VOCABULARY = WordVocabulary(("<unk>", "<eos>", *WORDS))
SECRET = "the code of the gate is 4 9 1 7"
TAUGHT = "word1 word2 word3 word4 word5 word6"


def base():
    """A table whose log-probabilities are trainable weights."""
    random, alpha = np.random.default_rng(0), np.full(len(VOCABULARY), 0.05)
    model = TableModel(random.dirichlet(alpha), random.dirichlet(alpha, len(alpha)), VOCABULARY)
    table = model.log_table.clamp(min=-5.0)
    del model.log_table
    model.log_table = torch.nn.Parameter(table, requires_grad=False)
    return model


def moved(seed, *, by=1.0, secret="", start=None):
    """A model after an update: random noise on its weights, and perhaps a secret."""
    model = copy.deepcopy(start or base())
    noise = torch.randn(model.log_table.shape, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        model.log_table.add_(noise, alpha=0.5 * by)
        row = len(VOCABULARY)
        for token in VOCABULARY.encode(secret) if secret else ():
            model.log_table[row, token] = 3.0
            row = token
    return model


def diff(after, *, start=None, **options):
    return vestige.diff(start or base(), after, **{"size": 0.2, "device": "cpu", **options})


def secret_rows(result):
    return [row for row in result.rows if row["kind"] == "known"]


@pytest.fixture(scope="module")
def nulls():
    return [moved(100 + n) for n in range(19)]


@pytest.mark.slow
def test_nineteen_null_models_distinguish_a_leak_from_a_clean_update(nulls):
    leak, clean = diff(moved(1, secret=TAUGHT), null=nulls), diff(moved(2), null=nulls)
    assert (leak.verdict, leak.claim.estimate.name) == (LEAK, "phrases revealed")
    assert clean.verdict == NO_LEAK, clean.claim.reasons
    for result in (leak, clean):
        assert len(result.summary["null_weight_changes"]) == 19


@pytest.mark.slow
def test_too_few_null_models_and_a_secret_without_a_format_are_undecided(nulls):
    few = diff(moved(1, secret=TAUGHT), null=nulls[:18], secrets=[TAUGHT])
    assert few.verdict == UNDECIDED
    assert secret_rows(few)[0]["generated_in"] > 0
    assert any("Mark the part that varies" in check.sentence for check in few.claim.checks)


@pytest.mark.parametrize(
    "compute",
    [diff, lambda after: search(Pair.of(base(), after, TokenScore("smoothed")), Settings())],
)
def test_scores_that_are_not_finite_raise_a_short_error(compute):
    after = moved(1)
    after.log_table.data[5:] = torch.nan
    with pytest.raises(ModelError, match="scores of a model are not finite") as error:
        compute(after)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_small_weight_changes_of_null_models_are_scaled_up(nulls):
    """Null models with 0.8 times the weight change have the scores of the full change."""
    near = [moved(100 + n, by=0.8) for n in range(4)]
    weights = [null.log_table.clone() for null in near]
    for far, close in zip(nulls[:4], near, strict=True):
        plain, stretched = (diff(moved(3), null=null).summary for null in (far, close))
        [change], [smaller] = plain["null_weight_changes"], stretched["null_weight_changes"]
        assert smaller == pytest.approx(0.8 * change, rel=1e-4)
        scores = [summary["null_top_score"] for summary in (plain, stretched)]
        assert scores == [None, None] or scores[1] == pytest.approx(scores[0], rel=1e-3)
    assert all(torch.equal(a, b.log_table) for a, b in zip(weights, near, strict=True))


def test_scale_update_scales_the_weight_change():
    before, after = base(), moved(1)
    change = weight_change(before, after)
    scale_update(before, after, 1.5)
    assert weight_change(before, after) == pytest.approx(1.5 * change, rel=1e-5)


@pytest.mark.slow
def test_null_models_with_half_the_weight_change_are_undecided():
    half = diff(moved(1, secret=TAUGHT), null=[moved(100 + n, by=0.5) for n in range(19)])
    failed = {check.name for check in half.claim.checks if check.state == "failed"}
    assert (half.verdict, failed) == (UNDECIDED, {"comparable"})
    assert half.summary["found"] is None


@pytest.mark.slow
def test_p_values_of_listed_secrets_are_adjusted_for_their_number(nulls):
    secrets = [SECRET, SECRET.replace("9", "2"), SECRET.replace("9", "3")]
    result = diff(moved(2), null=nulls, secrets=secrets)
    plain, adjusted = (
        [row[name] for row in secret_rows(result)] for name in ("p_value", "p_adjusted")
    )
    assert min(adjusted) == pytest.approx(min(1.0, 3 * min(plain)))
    assert result.claim.test.least == 0.05


@pytest.mark.slow
def test_a_secret_that_only_the_later_model_generates_is_a_leak_without_null_models():
    result = diff(moved(1, secret=SECRET), secrets=[SECRET, SECRET.replace("7", "3")])
    generated, other = secret_rows(result)
    assert (result.verdict, result.summary["known_generated"]) == (LEAK, 1)
    assert generated["generated_in"] > 0
    assert generated["coincidence"] <= 1e-3
    assert (other["generated_in"], other["coincidence"]) == (0, None)
    assert "secret 1" in result.claim.direct.sentence


@pytest.mark.slow
def test_a_secret_of_the_earlier_model_or_of_a_prompt_is_undecided():
    start = moved(7, secret=SECRET)
    before = diff(moved(8, by=0.3, start=start), start=start, secrets=[SECRET])
    assert secret_rows(before)[0]["generated_in"] > 0
    assert secret_rows(before)[0]["coincidence"] > 0.5
    prompted = diff(moved(1, secret=SECRET), secrets=[SECRET], prompt=SECRET)
    assert secret_rows(prompted)[0]["coincidence"] is None
    assert before.verdict == prompted.verdict == UNDECIDED
